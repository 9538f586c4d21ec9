set(case ${CMAKE_SOURCE_DIR}/tests/parallel/store_case.c
  ${CMAKE_SOURCE_DIR}/tests/parallel/store_case_want.c
  ${CMAKE_SOURCE_DIR}/tests/parallel/store_case_list.c)
tandem_test(parallel_store_test "${CMAKE_SOURCE_DIR}/tests/parallel/store_test.c;${case}"
  tandem_parallel)
set_tests_properties(parallel_store_test PROPERTIES TIMEOUT 300 LABELS threads)
