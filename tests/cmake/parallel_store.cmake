set(store_case ${CMAKE_SOURCE_DIR}/tests/parallel/store_case.c
  ${CMAKE_SOURCE_DIR}/tests/parallel/store_case_want.c
  ${CMAKE_SOURCE_DIR}/tests/parallel/store_case_list.c)
tandem_test(parallel_store_test "${CMAKE_SOURCE_DIR}/tests/parallel/store_test.c;${store_case}"
  tandem_parallel)
target_link_options(parallel_store_test PRIVATE
  LINKER:--wrap=clock_mono_ns,--wrap=segment_futex_wait)
set_tests_properties(parallel_store_test PROPERTIES TIMEOUT 300 LABELS threads)

# Not a test: what layouts cost, and what overlap brings. peer_bench.py sets it beside PyTorch.
add_executable(layout_bench ${CMAKE_SOURCE_DIR}/tests/bench/layout_bench.c
  ${CMAKE_SOURCE_DIR}/tests/bench/layout_waits.c)
target_link_libraries(layout_bench PRIVATE tandem_flags test_gang)
target_link_options(layout_bench PRIVATE -Wl,--wrap=store_begin_step,--wrap=host_stream_wait
  -Wl,--wrap=host_call_run,--wrap=host_stream_submit)
target_compile_definitions(layout_bench PRIVATE TANDEM_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
