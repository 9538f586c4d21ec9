set(fabric_case ${CMAKE_SOURCE_DIR}/tests/unit/fabric_case.c)
tandem_test(device_set_test ${CMAKE_SOURCE_DIR}/tests/unit/device_set_test.c tandem_plan)
tandem_test(fabric_test "${CMAKE_SOURCE_DIR}/tests/unit/fabric_test.c;${fabric_case}" tandem_plan)
tandem_test(free_map_test "${CMAKE_SOURCE_DIR}/tests/unit/free_map_test.c;${fabric_case}"
  tandem_plan)
tandem_fuzz(cluster_fuzz ${CMAKE_SOURCE_DIR}/tests/fuzz/cluster_fuzz.c tandem_plan)

# A management library of our own for discovery; once with, once without what newer drivers have.
foreach(name fake-nvml fake-nvml-old)
  add_library(${name} MODULE ${CMAKE_SOURCE_DIR}/tests/e2e/helpers/fake_nvml.c)
  set_target_properties(${name} PROPERTIES OUTPUT_NAME nvidia-ml PREFIX lib SUFFIX .so.1
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/${name})
  target_link_libraries(${name} PRIVATE tandem_flags)
endforeach()
target_compile_definitions(fake-nvml-old PRIVATE FAKE_OLD)
tandem_test(discover_test ${CMAKE_SOURCE_DIR}/tests/unit/discover_test.c tandem_probe)
add_dependencies(discover_test tandem-probe fake-nvml fake-nvml-old)
tandem_test(node_rows_test ${CMAKE_SOURCE_DIR}/tests/unit/node_rows_test.c tandem_cli)
add_dependencies(node_rows_test tandem tandem-probe fake-nvml)
find_program(PYTHON_WITH_GRPC python3 PATHS /usr/bin NO_DEFAULT_PATH)
add_test(NAME discover_e2e_test
  COMMAND ${PYTHON_WITH_GRPC} ${CMAKE_SOURCE_DIR}/tests/e2e/discover_test.py)
set_tests_properties(discover_e2e_test PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 300
  ENVIRONMENT TANDEM_BIN=${CMAKE_RUNTIME_OUTPUT_DIRECTORY})
