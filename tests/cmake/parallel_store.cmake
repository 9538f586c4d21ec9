set(store_case ${CMAKE_SOURCE_DIR}/tests/parallel/store_case.c
  ${CMAKE_SOURCE_DIR}/tests/parallel/store_case_want.c
  ${CMAKE_SOURCE_DIR}/tests/parallel/store_case_list.c)
tandem_test(parallel_store_test "${CMAKE_SOURCE_DIR}/tests/parallel/store_test.c;${store_case}"
  tandem_parallel)
set_tests_properties(parallel_store_test PROPERTIES TIMEOUT 300 LABELS threads)

# Not a test: what the ZeRO stages cost, and what overlap brings.
add_executable(store_bench ${CMAKE_SOURCE_DIR}/tests/bench/store_bench.c)
target_link_libraries(store_bench PRIVATE tandem_flags test_gang)
target_compile_definitions(store_bench PRIVATE TANDEM_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
