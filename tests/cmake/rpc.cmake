add_library(test_rpc_fixture STATIC ${CMAKE_SOURCE_DIR}/tests/unit/rpc_fixture.c)
target_link_libraries(test_rpc_fixture PRIVATE tandem_flags
  PUBLIC tandem_server_rpc tandem_rpc_client PkgConfig::CMOCKA)
foreach(test rpc_call_test rpc_access_test rpc_strange_test rpc_stream_test rpc_server_test
    rpc_stop_test rpc_patience_test)
  tandem_test(${test} ${CMAKE_SOURCE_DIR}/tests/unit/${test}.c test_rpc_fixture)
  set_tests_properties(${test} PROPERTIES ENVIRONMENT
    "TSAN_OPTIONS=suppressions=${CMAKE_SOURCE_DIR}/tests/tsan.supp")
endforeach()
target_link_options(rpc_stop_test PRIVATE
  LINKER:--wrap=server_call_new,--wrap=grpc_completion_queue_shutdown)
target_link_options(rpc_patience_test PRIVATE LINKER:--wrap=rpc_why)
tandem_test(crowd_test ${CMAKE_SOURCE_DIR}/tests/unit/crowd_test.c tandem_server_rpc)
