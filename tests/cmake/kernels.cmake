tandem_test(stream_test ${CMAKE_SOURCE_DIR}/tests/unit/stream_test.c tandem_kernels)

tandem_test(ops_test ${CMAKE_SOURCE_DIR}/tests/parity/ops_test.c tandem_kernels)
target_sources(ops_test PRIVATE ${CMAKE_SOURCE_DIR}/tests/parity/ops_case.c
  ${CMAKE_SOURCE_DIR}/tests/parity/ops_run.c)
