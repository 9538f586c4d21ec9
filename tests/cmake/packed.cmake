# Packed documents: rows of token lists (tokenized-jsonl).
tandem_test(packed_row_test ${CMAKE_SOURCE_DIR}/tests/unit/packed_row_test.c tandem_data)
tandem_test(packed_loader_test ${CMAKE_SOURCE_DIR}/tests/unit/packed_loader_test.c tandem_data)
# By hand: rows_bench [TOKENS [ROWS]]
add_executable(rows_bench EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/tests/bench/rows_bench.c)
target_link_libraries(rows_bench PRIVATE tandem_flags tandem_data PkgConfig::JANSSON)
