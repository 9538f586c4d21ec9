# Real ranks, killed and damaged at drawn moments.
find_program(PYTHON_WITH_GRPC python3 PATHS /usr/bin NO_DEFAULT_PATH)
add_test(NAME gang_kill_test
  COMMAND ${PYTHON_WITH_GRPC} ${CMAKE_SOURCE_DIR}/tests/fault/gang_kill_test.py)
set_tests_properties(gang_kill_test PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 3600
  ENVIRONMENT TANDEM_BIN=${CMAKE_RUNTIME_OUTPUT_DIRECTORY})
