# The database: curves in chunks, backups, upgrades.
tandem_test(metric_chunks_test ${CMAKE_SOURCE_DIR}/tests/unit/metric_chunks_test.c tandem_server
  test_store_fixture)
add_executable(metrics_bench ${CMAKE_SOURCE_DIR}/tests/bench/metrics_bench.c)
target_link_libraries(metrics_bench PRIVATE tandem_flags tandem_server)
