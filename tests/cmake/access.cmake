# Tenants, users, tokens, rights, limits: their parts alone, then every method of a real tandemd.
tandem_test(auth_test ${CMAKE_SOURCE_DIR}/tests/unit/auth_test.c tandem_server)
set_tests_properties(auth_test PROPERTIES LABELS threads)
tandem_test(access_rows_test ${CMAKE_SOURCE_DIR}/tests/unit/access_rows_test.c test_store_fixture)
find_program(PYTHON_WITH_GRPC python3 PATHS /usr/bin NO_DEFAULT_PATH)
foreach(name access_test tokens_test)
  add_test(NAME ${name} COMMAND ${PYTHON_WITH_GRPC} ${CMAKE_SOURCE_DIR}/tests/e2e/${name}.py)
  set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 600
    ENVIRONMENT "TANDEM_BIN=${CMAKE_RUNTIME_OUTPUT_DIRECTORY};TSAN_OPTIONS=suppressions=${CMAKE_SOURCE_DIR}/tests/tsan.supp")
endforeach()
add_executable(auth_bench ${CMAKE_SOURCE_DIR}/tests/bench/auth_bench.c)
target_link_libraries(auth_bench PRIVATE tandem_flags tandem_server)
