# An independent client against the real programs. Debian's Python has grpc; another one that CMake
# found may not: the test says SKIPPED then.
find_program(PYTHON_WITH_GRPC python3 PATHS /usr/bin NO_DEFAULT_PATH)
if(NOT PYTHON_WITH_GRPC)
  set(PYTHON_WITH_GRPC ${Python3_EXECUTABLE})
endif()
add_test(NAME python_client_test
  COMMAND ${PYTHON_WITH_GRPC} ${CMAKE_SOURCE_DIR}/tests/e2e/python_client_test.py)
set_tests_properties(python_client_test PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 600
  ENVIRONMENT TANDEM_BIN=${CMAKE_RUNTIME_OUTPUT_DIRECTORY})
