# Thirty jobs of two tenants on this host, split into nodes: all of the queue, on real training. Not
# under sanitizers: five minutes there, for code that gpu_jobs_test, queue_test and the
# simulator run under them anyway.
if(NOT TANDEM_SANITIZE)
  add_test(NAME cluster_run_test
    COMMAND ${PYTHON_WITH_GRPC} ${CMAKE_SOURCE_DIR}/tests/e2e/cluster_run_test.py)
  set_tests_properties(cluster_run_test PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 1800
    ENVIRONMENT "TANDEM_BIN=${CMAKE_RUNTIME_OUTPUT_DIRECTORY}")
endif()
