# The journal of reports: its format, tandem-node's outbox on it, and what follows a killed node.
tandem_test(journal_test ${CMAKE_SOURCE_DIR}/tests/unit/journal_test.c tandem_proto)
tandem_fuzz(journal_fuzz ${CMAKE_SOURCE_DIR}/tests/fuzz/journal_fuzz.c tandem_proto)
add_library(outbox_bench STATIC ${CMAKE_SOURCE_DIR}/tests/unit/outbox_bench.c)
target_link_libraries(outbox_bench PRIVATE tandem_flags PUBLIC tandem_node PkgConfig::CMOCKA)
foreach(test outbox_test outbox_full_test)
  tandem_test(${test} ${CMAKE_SOURCE_DIR}/tests/unit/${test}.c outbox_bench)
  set_tests_properties(${test} PROPERTIES LABELS threads)
endforeach()
target_link_options(outbox_full_test PRIVATE
  LINKER:--wrap=fs_write_all,--wrap=pthread_cond_wait,--wrap=journal_read)
tandem_test(replay_test ${CMAKE_SOURCE_DIR}/tests/unit/replay_test.c tandem_server)
find_program(PYTHON_WITH_GRPC python3 PATHS /usr/bin NO_DEFAULT_PATH)
add_test(NAME node_kill_test
  COMMAND ${PYTHON_WITH_GRPC} ${CMAKE_SOURCE_DIR}/tests/e2e/node_kill_test.py)
set_tests_properties(node_kill_test PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 3600
  ENVIRONMENT TANDEM_BIN=${CMAKE_RUNTIME_OUTPUT_DIRECTORY})
add_test(NAME worker_rules_test
  COMMAND ${PYTHON_WITH_GRPC} ${CMAKE_SOURCE_DIR}/tests/e2e/worker_rules_test.py)
set_tests_properties(worker_rules_test PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 900
  ENVIRONMENT TANDEM_BIN=${CMAKE_RUNTIME_OUTPUT_DIRECTORY})
