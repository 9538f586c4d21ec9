set(fabric_case ${CMAKE_SOURCE_DIR}/tests/unit/fabric_case.c)
tandem_test(device_set_test ${CMAKE_SOURCE_DIR}/tests/unit/device_set_test.c tandem_plan)
tandem_test(fabric_test "${CMAKE_SOURCE_DIR}/tests/unit/fabric_test.c;${fabric_case}" tandem_plan)
tandem_test(free_map_test "${CMAKE_SOURCE_DIR}/tests/unit/free_map_test.c;${fabric_case}"
  tandem_plan)
tandem_fuzz(cluster_fuzz ${CMAKE_SOURCE_DIR}/tests/fuzz/cluster_fuzz.c tandem_plan)
