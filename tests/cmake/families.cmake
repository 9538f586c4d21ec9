set(solo ${CMAKE_SOURCE_DIR}/tests/parallel/solo.c ${CMAKE_SOURCE_DIR}/tests/parallel/reference.c
  ${CMAKE_SOURCE_DIR}/tests/parallel/golden.c)
tandem_test(families_test "${CMAKE_SOURCE_DIR}/tests/parallel/families_test.c;${solo}" tandem_layers
  tandem_ckpt tandem_comm PkgConfig::JANSSON)
set_tests_properties(families_test PROPERTIES TIMEOUT 300)
tandem_test(tensor_test
  "${CMAKE_SOURCE_DIR}/tests/parallel/tensor_test.c;${CMAKE_SOURCE_DIR}/tests/parallel/solo.c"
  tandem_layers tandem_comm)
set_tests_properties(tensor_test PROPERTIES TIMEOUT 300 LABELS threads)
