# What docs/performance.md predicts against what the programs say.
add_test(NAME predictions_test COMMAND ${Python3_EXECUTABLE}
  ${CMAKE_SOURCE_DIR}/tests/e2e/predictions_test.py)
set_tests_properties(predictions_test PROPERTIES TIMEOUT 600
  ENVIRONMENT TANDEM_BIN=${CMAKE_RUNTIME_OUTPUT_DIRECTORY})
