# The controller in a simulated world: tests/sim takes the place of base/clock, base/log,
# base/mailbox, server/worker, server/replay and server/rpc/call at link time.
file(GLOB sim_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/sim/sim*.c)
list(FILTER sim_sources EXCLUDE REGEX "_test\\.c$")
add_library(test_sim OBJECT ${sim_sources})
target_link_libraries(test_sim PRIVATE tandem_flags PUBLIC tandem_server PkgConfig::SQLITE)
add_executable(tandem-sim ${CMAKE_SOURCE_DIR}/tests/sim/main.c)
target_link_libraries(tandem-sim PRIVATE tandem_flags test_sim)
file(GLOB replay_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/sim/replay/*.c)
add_executable(tandem-replay ${replay_sources})
target_link_libraries(tandem-replay PRIVATE tandem_flags test_sim)
tandem_test(sim_test ${CMAKE_SOURCE_DIR}/tests/sim/sim_test.c test_sim)
set_tests_properties(sim_test PROPERTIES TIMEOUT 14400)
# Faults planted in the controller must be found: a fifth of them a day, TANDEM_FULL=1 all.
add_test(NAME sim_plant_test COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/sim/plant.py
  ${CMAKE_BINARY_DIR})
set_tests_properties(sim_plant_test PROPERTIES TIMEOUT 3600)
add_test(NAME record_test
  COMMAND ${PYTHON_WITH_GRPC} ${CMAKE_SOURCE_DIR}/tests/e2e/record_test.py)
set_tests_properties(record_test PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 300
  ENVIRONMENT "TANDEM_BIN=${CMAKE_RUNTIME_OUTPUT_DIRECTORY}")
