# The queue: preemption, claims, dependencies, limits, on real processes.
find_program(PYTHON_WITH_GRPC python3 PATHS /usr/bin NO_DEFAULT_PATH)
add_test(NAME queue_test
  COMMAND ${PYTHON_WITH_GRPC} ${CMAKE_SOURCE_DIR}/tests/e2e/queue_test.py)
set_tests_properties(queue_test PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 900
  ENVIRONMENT "TANDEM_BIN=${CMAKE_RUNTIME_OUTPUT_DIRECTORY};TSAN_OPTIONS=suppressions=${CMAKE_SOURCE_DIR}/tests/tsan.supp")
