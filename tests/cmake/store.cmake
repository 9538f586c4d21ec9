# The database: curves in chunks, backups, upgrades.
tandem_test(metric_chunks_test ${CMAKE_SOURCE_DIR}/tests/unit/metric_chunks_test.c tandem_server
  test_store_fixture)
tandem_test(store_files_test ${CMAKE_SOURCE_DIR}/tests/unit/store_files_test.c tandem_server
  test_store_fixture)
add_executable(metrics_bench ${CMAKE_SOURCE_DIR}/tests/bench/metrics_bench.c)
target_link_libraries(metrics_bench PRIVATE tandem_flags tandem_server)
add_test(NAME backup_test
  COMMAND ${PYTHON_WITH_GRPC} ${CMAKE_SOURCE_DIR}/tests/e2e/backup_test.py)
set_tests_properties(backup_test PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 600 LABELS threads
  ENVIRONMENT "TANDEM_BIN=${CMAKE_RUNTIME_OUTPUT_DIRECTORY};TSAN_OPTIONS=suppressions=${CMAKE_SOURCE_DIR}/tests/tsan.supp")
add_test(NAME upgrade_test
  COMMAND ${PYTHON_WITH_GRPC} ${CMAKE_SOURCE_DIR}/tests/e2e/upgrade_test.py)
set_tests_properties(upgrade_test PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 600
  ENVIRONMENT "TANDEM_BIN=${CMAKE_RUNTIME_OUTPUT_DIRECTORY};TSAN_OPTIONS=suppressions=${CMAKE_SOURCE_DIR}/tests/tsan.supp")
tandem_fuzz(metric_codec_fuzz ${CMAKE_SOURCE_DIR}/tests/fuzz/metric_codec_fuzz.c tandem_store)
