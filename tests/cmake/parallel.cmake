# A gang whose ranks are threads, and whole tensors from what its ranks hold.
add_library(test_gang STATIC ${CMAKE_SOURCE_DIR}/tests/parallel/gang.c
  ${CMAKE_SOURCE_DIR}/tests/parallel/gang_job.c ${CMAKE_SOURCE_DIR}/tests/parallel/golden.c)
target_compile_definitions(test_gang PRIVATE TANDEM_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
target_link_libraries(test_gang PRIVATE tandem_flags
  PUBLIC tandem_rank PkgConfig::CMOCKA PkgConfig::JANSSON)
add_library(test_record STATIC ${CMAKE_SOURCE_DIR}/tests/parallel/compare.c
  ${CMAKE_SOURCE_DIR}/tests/parallel/drawn.c
  ${CMAKE_SOURCE_DIR}/tests/parallel/record.c
  ${CMAKE_SOURCE_DIR}/tests/parallel/shapes.c ${CMAKE_SOURCE_DIR}/tests/parallel/whole.c)
target_link_libraries(test_record PRIVATE tandem_flags PUBLIC test_gang)

# Layouts against one rank, and against the references.
tandem_test(golden_curve_test ${CMAKE_SOURCE_DIR}/tests/parallel/golden_curve_test.c test_gang)
set_tests_properties(golden_curve_test PROPERTIES TIMEOUT 3600 LABELS threads)
tandem_test(layout_sweep_test "${CMAKE_SOURCE_DIR}/tests/parallel/layout_sweep_test.c;\
${CMAKE_SOURCE_DIR}/tests/parallel/cover.c;${CMAKE_SOURCE_DIR}/tests/parallel/layouts.c;\
${CMAKE_SOURCE_DIR}/tests/parallel/sweep.c" test_record)
set_tests_properties(layout_sweep_test PROPERTIES TIMEOUT 14400 LABELS threads)
tandem_test(shape_sweep_test ${CMAKE_SOURCE_DIR}/tests/parallel/shape_sweep_test.c test_record)
set_tests_properties(shape_sweep_test PROPERTIES TIMEOUT 14400)
file(GLOB named_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/parallel/named*.c)
tandem_test(named_faults_test "${named_sources}" test_record)
set_tests_properties(named_faults_test PROPERTIES TIMEOUT 900)
tandem_test(layout_bits_test ${CMAKE_SOURCE_DIR}/tests/parallel/layout_bits_test.c test_record)
set_tests_properties(layout_bits_test PROPERTIES TIMEOUT 600 LABELS threads)

tandem_test(mixed_precision_test ${CMAKE_SOURCE_DIR}/tests/parallel/mixed_precision_test.c
  test_record)
set_tests_properties(mixed_precision_test PROPERTIES TIMEOUT 600)
tandem_test(hostile_plan_test ${CMAKE_SOURCE_DIR}/tests/parallel/hostile_plan_test.c test_gang)
set_tests_properties(hostile_plan_test PROPERTIES TIMEOUT 7200)

# The same layouts as processes.
add_executable(layout_curves ${CMAKE_SOURCE_DIR}/tests/parallel/layout_curves.c
  ${CMAKE_SOURCE_DIR}/tests/parallel/layouts.c)
target_link_libraries(layout_curves PRIVATE tandem_flags test_record)
add_test(NAME layout_process_test
  COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/parallel/layout_process_test.py)
set_tests_properties(layout_process_test PROPERTIES TIMEOUT 3600
  ENVIRONMENT "TANDEM_BIN=${CMAKE_RUNTIME_OUTPUT_DIRECTORY}")

# Faults planted in the runtime must be found by the tests that are named for them. What finds them
# is the same with sanitizers, and slower.
if(NOT TANDEM_SANITIZE)
  add_test(NAME named_plant_test
    COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/parallel/plant.py ${CMAKE_BINARY_DIR})
  set_tests_properties(named_plant_test PROPERTIES TIMEOUT 900)
endif()

# A gang whose ranks are processes, the test in tandem-node's place.
add_library(test_process_gang STATIC ${CMAKE_SOURCE_DIR}/tests/parallel/process_gang.c)
target_compile_definitions(test_process_gang PRIVATE
  TANDEM_BIN_DIR="${CMAKE_RUNTIME_OUTPUT_DIRECTORY}")
target_link_libraries(test_process_gang PRIVATE tandem_flags PUBLIC test_gang)
