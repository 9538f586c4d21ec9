# The way in from other hosts: TLS, the config file, certificates.
add_executable(make_cert ${CMAKE_SOURCE_DIR}/tests/e2e/helpers/make_cert.c)
target_link_libraries(make_cert PRIVATE tandem_flags tandem_cli)
tandem_test(tls_test ${CMAKE_SOURCE_DIR}/tests/unit/tls_test.c tandem_server tandem_cli)
add_test(NAME tls_e2e_test
  COMMAND ${PYTHON_WITH_GRPC} ${CMAKE_SOURCE_DIR}/tests/e2e/tls_test.py)
set_tests_properties(tls_e2e_test PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 600
  ENVIRONMENT TANDEM_BIN=${CMAKE_RUNTIME_OUTPUT_DIRECTORY})
foreach(name tls_stop tls_slow)
  add_test(NAME ${name}_test
    COMMAND ${PYTHON_WITH_GRPC} ${CMAKE_SOURCE_DIR}/tests/e2e/${name}_test.py)
  set_tests_properties(${name}_test PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 300
    ENVIRONMENT TANDEM_BIN=${CMAKE_RUNTIME_OUTPUT_DIRECTORY})
endforeach()
set_tests_properties(tls_test PROPERTIES LABELS threads ENVIRONMENT
  "TSAN_OPTIONS=suppressions=${CMAKE_SOURCE_DIR}/tests/tsan.supp")
add_executable(tls_bench ${CMAKE_SOURCE_DIR}/tests/bench/tls_bench.c)
target_link_libraries(tls_bench PRIVATE tandem_flags tandem_server tandem_cli)
