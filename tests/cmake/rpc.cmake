tandem_test(rpc_test ${CMAKE_SOURCE_DIR}/tests/unit/rpc_test.c tandem_server_rpc tandem_rpc_client)
set_tests_properties(rpc_test PROPERTIES ENVIRONMENT
  "TSAN_OPTIONS=suppressions=${CMAKE_SOURCE_DIR}/tests/tsan.supp")
