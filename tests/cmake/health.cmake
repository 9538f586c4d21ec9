# The health of GPUs, and where the ranks on them run.
tandem_test(pin_test ${CMAKE_SOURCE_DIR}/tests/unit/pin_test.c tandem_node)
tandem_test(health_watch_test ${CMAKE_SOURCE_DIR}/tests/unit/health_watch_test.c tandem_node)
add_test(NAME health_test
  COMMAND ${PYTHON_WITH_GRPC} ${CMAKE_SOURCE_DIR}/tests/e2e/health_test.py)
set_tests_properties(health_test PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 600
  ENVIRONMENT "TANDEM_BIN=${CMAKE_RUNTIME_OUTPUT_DIRECTORY};TSAN_OPTIONS=suppressions=${CMAKE_SOURCE_DIR}/tests/tsan.supp")
