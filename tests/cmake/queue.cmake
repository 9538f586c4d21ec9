# The queue: preemption, claims, dependencies, limits, quotas, on real processes.
find_program(PYTHON_WITH_GRPC python3 PATHS /usr/bin NO_DEFAULT_PATH)
foreach(name queue queue_kill quota)
  add_test(NAME ${name}_test
    COMMAND ${PYTHON_WITH_GRPC} ${CMAKE_SOURCE_DIR}/tests/e2e/${name}_test.py)
  set_tests_properties(${name}_test PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 900
    ENVIRONMENT "TANDEM_BIN=${CMAKE_RUNTIME_OUTPUT_DIRECTORY};TSAN_OPTIONS=suppressions=${CMAKE_SOURCE_DIR}/tests/tsan.supp")
endforeach()
