# Nodes by name at the server: cluster files, drains, what a host reports.
tandem_test(topology_test ${CMAKE_SOURCE_DIR}/tests/unit/topology_test.c tandem_server)
add_test(NAME cluster_server_test
  COMMAND ${PYTHON_WITH_GRPC} ${CMAKE_SOURCE_DIR}/tests/e2e/cluster_test.py)
set_tests_properties(cluster_server_test PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 900
  ENVIRONMENT "TANDEM_BIN=${CMAKE_RUNTIME_OUTPUT_DIRECTORY};TSAN_OPTIONS=suppressions=${CMAKE_SOURCE_DIR}/tests/tsan.supp")
add_dependencies(topology_test fake-nvml)

# What jobs get where there are GPUs, at the server. Its ranks are fake ones.
add_test(NAME gpu_jobs_test
  COMMAND ${PYTHON_WITH_GRPC} ${CMAKE_SOURCE_DIR}/tests/e2e/gpu_jobs_test.py)
set_tests_properties(gpu_jobs_test PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 600
  ENVIRONMENT "TANDEM_BIN=${CMAKE_RUNTIME_OUTPUT_DIRECTORY};TSAN_OPTIONS=suppressions=${CMAKE_SOURCE_DIR}/tests/tsan.supp")
