# Packed documents: rows of token lists (tokenized-jsonl).
tandem_test(packed_row_test ${CMAKE_SOURCE_DIR}/tests/unit/packed_row_test.c tandem_data)
