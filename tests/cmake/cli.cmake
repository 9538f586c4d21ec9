tandem_test(cli_test ${CMAKE_SOURCE_DIR}/tests/unit/cli_test.c tandem_cli)
