# Packed documents: rows of token lists (tokenized-jsonl).
tandem_test(packed_row_test ${CMAKE_SOURCE_DIR}/tests/unit/packed_row_test.c tandem_data)
tandem_test(packed_loader_test
  "${CMAKE_SOURCE_DIR}/tests/unit/packed_loader_test.c;${CMAKE_SOURCE_DIR}/tests/unit/data_case.c"
  tandem_data)
# By hand: rows_bench [TOKENS [ROWS]]
add_executable(rows_bench EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/tests/bench/rows_bench.c)
target_link_libraries(rows_bench PRIVATE tandem_flags tandem_data PkgConfig::JANSSON)
tandem_test(packed_train_test ${CMAKE_SOURCE_DIR}/tests/parallel/packed_train_test.c test_gang)
set_tests_properties(packed_train_test PROPERTIES TIMEOUT 600 LABELS threads)
tandem_test(packed_row_random_test ${CMAKE_SOURCE_DIR}/tests/unit/packed_row_random_test.c
  tandem_data PkgConfig::JANSSON)
tandem_fuzz(packed_row_fuzz ${CMAKE_SOURCE_DIR}/tests/fuzz/packed_row_fuzz.c tandem_data)
tandem_test(packed_plan_test "${CMAKE_SOURCE_DIR}/tests/unit/packed_plan_test.c;\
${CMAKE_SOURCE_DIR}/tests/unit/data_case.c;${CMAKE_SOURCE_DIR}/tests/unit/plan_case.c" tandem_data)
add_test(NAME packed_e2e_test COMMAND ${PYTHON_WITH_GRPC} ${CMAKE_SOURCE_DIR}/tests/e2e/packed_test.py)
set_tests_properties(packed_e2e_test PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 600
  ENVIRONMENT TANDEM_BIN=${CMAKE_RUNTIME_OUTPUT_DIRECTORY})
