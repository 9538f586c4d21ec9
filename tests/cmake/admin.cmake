# Where files may be opened, and what the admin verbs do.
tandem_test(roots_test ${CMAKE_SOURCE_DIR}/tests/unit/roots_test.c tandem_base)
tandem_test(probing_test ${CMAKE_SOURCE_DIR}/tests/unit/probing_test.c tandem_server)
add_dependencies(probing_test tandem-probe)
find_program(PYTHON_WITH_GRPC python3 PATHS /usr/bin NO_DEFAULT_PATH)
add_test(NAME roots_e2e_test
  COMMAND ${PYTHON_WITH_GRPC} ${CMAKE_SOURCE_DIR}/tests/e2e/roots_test.py)
set_tests_properties(roots_e2e_test PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 600
  ENVIRONMENT "TANDEM_BIN=${CMAKE_RUNTIME_OUTPUT_DIRECTORY};TSAN_OPTIONS=suppressions=${CMAKE_SOURCE_DIR}/tests/tsan.supp")
# The verbs against a server that is a fake.
add_test(NAME admin_cli_test
  COMMAND ${PYTHON_WITH_GRPC} ${CMAKE_SOURCE_DIR}/tests/e2e/admin_cli_test.py)
set_tests_properties(admin_cli_test PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 300
  ENVIRONMENT "TANDEM_BIN=${CMAKE_RUNTIME_OUTPUT_DIRECTORY}")
# The same verbs against the real server; and where secrets are after all of it.
foreach(name admin secrets)
  add_test(NAME ${name}_test
    COMMAND ${PYTHON_WITH_GRPC} ${CMAKE_SOURCE_DIR}/tests/e2e/${name}_test.py)
  set_tests_properties(${name}_test PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 600
    ENVIRONMENT "TANDEM_BIN=${CMAKE_RUNTIME_OUTPUT_DIRECTORY};TSAN_OPTIONS=suppressions=${CMAKE_SOURCE_DIR}/tests/tsan.supp")
endforeach()
tandem_test(secrecy_test ${CMAKE_SOURCE_DIR}/tests/unit/secrecy_test.c tandem_server)
set_tests_properties(probing_test PROPERTIES LABELS threads)
