tandem_test(cli_test ${CMAKE_SOURCE_DIR}/tests/unit/cli_test.c tandem_cli)
tandem_test(job_file_test ${CMAKE_SOURCE_DIR}/tests/unit/job_file_test.c tandem_cli)
tandem_test(cli_run_test ${CMAKE_SOURCE_DIR}/tests/unit/cli_run_test.c tandem_cli)
tandem_test(show_events_test ${CMAKE_SOURCE_DIR}/tests/unit/show_events_test.c tandem_cli)
add_test(NAME cli_e2e_test
  COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/e2e/cli_test.py)
set_tests_properties(cli_e2e_test PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 600
  ENVIRONMENT TANDEM_BIN=${CMAKE_RUNTIME_OUTPUT_DIRECTORY})
