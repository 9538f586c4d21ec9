# How processes end, and what is told of it: the launch thread with a made-up launcher, then the real
# programs.
add_library(undead SHARED ${CMAKE_SOURCE_DIR}/tests/fault/helpers/undead.c)
target_link_libraries(undead PRIVATE tandem_flags)
set_target_properties(undead PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
tandem_test(proc_test ${CMAKE_SOURCE_DIR}/tests/unit/proc_test.c tandem_server)
tandem_test(launching_test ${CMAKE_SOURCE_DIR}/tests/fault/launching_test.c tandem_server)
set_tests_properties(launching_test PROPERTIES LABELS threads)
find_program(PYTHON_WITH_GRPC python3 PATHS /usr/bin NO_DEFAULT_PATH)
add_test(NAME process_test
  COMMAND ${PYTHON_WITH_GRPC} ${CMAKE_SOURCE_DIR}/tests/e2e/process_test.py)
set_tests_properties(process_test PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 900 LABELS threads
  ENVIRONMENT "TANDEM_BIN=${CMAKE_RUNTIME_OUTPUT_DIRECTORY};TSAN_OPTIONS=suppressions=${CMAKE_SOURCE_DIR}/tests/tsan.supp")
add_test(NAME file_limit_test
  COMMAND ${PYTHON_WITH_GRPC} ${CMAKE_SOURCE_DIR}/tests/e2e/file_limit_test.py)
set_tests_properties(file_limit_test PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 300
  ENVIRONMENT "TANDEM_BIN=${CMAKE_RUNTIME_OUTPUT_DIRECTORY}")

# tandem-spawn: what it reads; then, as root, what it does and refuses to do.
add_executable(spawn_test ${CMAKE_SOURCE_DIR}/tests/unit/spawn_test.c
  ${CMAKE_SOURCE_DIR}/server/spawn/conf.c ${CMAKE_SOURCE_DIR}/server/spawn/request.c)
target_link_libraries(spawn_test PRIVATE tandem_flags tandem_base test_cmocka)
add_test(NAME spawn_test COMMAND spawn_test)
tandem_fuzz(spawn_fuzz ${CMAKE_SOURCE_DIR}/tests/fuzz/spawn_fuzz.c tandem_base)
if(TANDEM_FUZZ)
  target_sources(spawn_fuzz PRIVATE ${CMAKE_SOURCE_DIR}/server/spawn/conf.c
    ${CMAKE_SOURCE_DIR}/server/spawn/request.c)
endif()
add_executable(told ${CMAKE_SOURCE_DIR}/tests/fault/helpers/told.c)
target_link_libraries(told PRIVATE tandem_flags)
add_test(NAME spawn_misuse_test
  COMMAND ${PYTHON_WITH_GRPC} ${CMAKE_SOURCE_DIR}/tests/fault/spawn_misuse_test.py)
set_tests_properties(spawn_misuse_test PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 300
  ENVIRONMENT "TANDEM_BUILD=${CMAKE_BINARY_DIR}" RESOURCE_LOCK tandem_spawn)
add_test(NAME run_as_test
  COMMAND ${PYTHON_WITH_GRPC} ${CMAKE_SOURCE_DIR}/tests/e2e/run_as_test.py)
set_tests_properties(run_as_test PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 600
  ENVIRONMENT "TANDEM_BIN=${CMAKE_RUNTIME_OUTPUT_DIRECTORY}" RESOURCE_LOCK tandem_spawn)
add_test(NAME disk_full_test
  COMMAND ${PYTHON_WITH_GRPC} ${CMAKE_SOURCE_DIR}/tests/fault/disk_full_test.py)
set_tests_properties(disk_full_test PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 600
  ENVIRONMENT "TANDEM_BIN=${CMAKE_RUNTIME_OUTPUT_DIRECTORY};TSAN_OPTIONS=suppressions=${CMAKE_SOURCE_DIR}/tests/tsan.supp")
