# Quotas and what is counted of the devices.
tandem_test(tenants_test ${CMAKE_SOURCE_DIR}/tests/unit/tenants_test.c tandem_server)
tandem_test(usage_test ${CMAKE_SOURCE_DIR}/tests/unit/usage_test.c tandem_server)
tandem_test(usage_rows_test ${CMAKE_SOURCE_DIR}/tests/unit/usage_rows_test.c tandem_server
  test_store_fixture)
add_executable(usage_bench ${CMAKE_SOURCE_DIR}/tests/bench/usage_bench.c)
target_link_libraries(usage_bench PRIVATE tandem_flags tandem_server)
tandem_test(top_page_test ${CMAKE_SOURCE_DIR}/tests/unit/top_page_test.c tandem_cli)
tandem_test(placement_draw_test ${CMAKE_SOURCE_DIR}/tests/unit/placement_draw_test.c tandem_cli)
find_program(PYTHON_WITH_GRPC python3 PATHS /usr/bin NO_DEFAULT_PATH)
add_test(NAME usage_e2e_test
  COMMAND ${PYTHON_WITH_GRPC} ${CMAKE_SOURCE_DIR}/tests/e2e/usage_test.py)
set_tests_properties(usage_e2e_test PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 600
  ENVIRONMENT "TANDEM_BIN=${CMAKE_RUNTIME_OUTPUT_DIRECTORY};TSAN_OPTIONS=suppressions=${CMAKE_SOURCE_DIR}/tests/tsan.supp")
