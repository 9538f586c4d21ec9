tandem_test(stream_test ${CMAKE_SOURCE_DIR}/tests/unit/stream_test.c tandem_kernels)
