# A gang whose ranks are threads, and whole tensors from what its ranks hold.
add_library(test_gang STATIC ${CMAKE_SOURCE_DIR}/tests/parallel/gang.c
  ${CMAKE_SOURCE_DIR}/tests/parallel/gang_job.c ${CMAKE_SOURCE_DIR}/tests/parallel/golden.c)
target_compile_definitions(test_gang PRIVATE TANDEM_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
target_link_libraries(test_gang PRIVATE tandem_flags
  PUBLIC tandem_rank PkgConfig::CMOCKA PkgConfig::JANSSON)
add_library(test_record STATIC ${CMAKE_SOURCE_DIR}/tests/parallel/record.c
  ${CMAKE_SOURCE_DIR}/tests/parallel/shapes.c ${CMAKE_SOURCE_DIR}/tests/parallel/whole.c)
target_link_libraries(test_record PRIVATE tandem_flags PUBLIC test_gang)

# Against the references.
tandem_test(golden_curve_test ${CMAKE_SOURCE_DIR}/tests/parallel/golden_curve_test.c test_gang)
set_tests_properties(golden_curve_test PROPERTIES TIMEOUT 3600 LABELS threads)
