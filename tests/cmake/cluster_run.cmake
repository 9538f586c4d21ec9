# Thirty jobs of two tenants on this host, split into nodes: all of the queue, on real training.
add_test(NAME cluster_run_test
  COMMAND ${PYTHON_WITH_GRPC} ${CMAKE_SOURCE_DIR}/tests/e2e/cluster_run_test.py)
set_tests_properties(cluster_run_test PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 1800
  ENVIRONMENT "TANDEM_BIN=${CMAKE_RUNTIME_OUTPUT_DIRECTORY};TSAN_OPTIONS=suppressions=${CMAKE_SOURCE_DIR}/tests/tsan.supp")
