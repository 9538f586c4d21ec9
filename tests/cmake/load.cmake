# The real programs, disturbed: killed controllers, malformed bytes, floods, watchers by the thousand.
function(tandem_load_test name)
  add_test(NAME ${name}
    COMMAND ${PYTHON_WITH_GRPC} ${CMAKE_SOURCE_DIR}/tests/e2e/${name}.py)
  set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 900
    ENVIRONMENT "TANDEM_BIN=${CMAKE_RUNTIME_OUTPUT_DIRECTORY};TSAN_OPTIONS=suppressions=${CMAKE_SOURCE_DIR}/tests/tsan.supp")
endfunction()
find_program(PYTHON_WITH_GRPC python3 PATHS /usr/bin NO_DEFAULT_PATH)
tandem_load_test(controller_kill_test)
tandem_load_test(controller_states_test)
tandem_load_test(malformed_test)
tandem_load_test(numbers_test)
tandem_load_test(watchers_test)
tandem_load_test(follow_test)
