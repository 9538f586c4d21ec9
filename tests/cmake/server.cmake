# The controller: its pure parts and its database alone, then the real programs together.
add_library(test_store_fixture STATIC ${CMAKE_SOURCE_DIR}/tests/unit/store_fixture.c)
target_link_libraries(test_store_fixture PRIVATE tandem_flags PUBLIC tandem_store PkgConfig::CMOCKA)
tandem_test(job_test ${CMAKE_SOURCE_DIR}/tests/unit/job_test.c tandem_server)
tandem_test(supervisor_test ${CMAKE_SOURCE_DIR}/tests/unit/supervisor_test.c tandem_server)
tandem_test(owner_rest_test ${CMAKE_SOURCE_DIR}/tests/unit/owner_rest_test.c tandem_server)
tandem_test(store_test ${CMAKE_SOURCE_DIR}/tests/unit/store_test.c test_store_fixture)
tandem_test(curve_test ${CMAKE_SOURCE_DIR}/tests/unit/curve_test.c tandem_server test_store_fixture)
add_executable(fake_rank ${CMAKE_SOURCE_DIR}/tests/e2e/helpers/fake_rank.c)
target_link_libraries(fake_rank PRIVATE tandem_flags tandem_link)
find_program(PYTHON_WITH_GRPC python3 PATHS /usr/bin NO_DEFAULT_PATH)
add_test(NAME server_test
  COMMAND ${PYTHON_WITH_GRPC} ${CMAKE_SOURCE_DIR}/tests/e2e/server_test.py)
set_tests_properties(server_test PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 900
  ENVIRONMENT "TANDEM_BIN=${CMAKE_RUNTIME_OUTPUT_DIRECTORY};TSAN_OPTIONS=suppressions=${CMAKE_SOURCE_DIR}/tests/tsan.supp")
foreach(bench server_bench crowd_bench)
  add_executable(${bench} ${CMAKE_SOURCE_DIR}/tests/bench/${bench}.c
    ${CMAKE_SOURCE_DIR}/tests/bench/bench_server.c)
  target_link_libraries(${bench} PRIVATE tandem_flags tandem_rpc_client)
  target_compile_definitions(${bench} PRIVATE TANDEM_SOURCE_DIR="${CMAKE_SOURCE_DIR}"
    TANDEM_BIN_DIR="${CMAKE_RUNTIME_OUTPUT_DIRECTORY}")
  add_dependencies(${bench} fake_rank)
endforeach()
add_test(NAME restart_test
  COMMAND ${PYTHON_WITH_GRPC} ${CMAKE_SOURCE_DIR}/tests/e2e/restart_test.py)
set_tests_properties(restart_test PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 900
  ENVIRONMENT "TANDEM_BIN=${CMAKE_RUNTIME_OUTPUT_DIRECTORY};TSAN_OPTIONS=suppressions=${CMAKE_SOURCE_DIR}/tests/tsan.supp")
