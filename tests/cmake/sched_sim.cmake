# Random histories over the scheduler, without a controller.
file(GLOB sched_world_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/sched/*.c)
list(FILTER sched_world_sources EXCLUDE REGEX "(_test|/main)\\.c$")
add_library(test_sched_world OBJECT ${sched_world_sources})
target_link_libraries(test_sched_world PRIVATE tandem_flags PUBLIC tandem_sched)
add_executable(tandem-sched-sim ${CMAKE_SOURCE_DIR}/tests/sched/main.c)
target_link_libraries(tandem-sched-sim PRIVATE tandem_flags test_sched_world)
tandem_test(sched_sim_test ${CMAKE_SOURCE_DIR}/tests/sched/sched_sim_test.c test_sched_world)
set_tests_properties(sched_sim_test PROPERTIES TIMEOUT 7200)
# Faults planted in the scheduler must be found.
add_test(NAME sched_plant_test COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/sim/plant.py
  ${CMAKE_BINARY_DIR} --faults tests/sched/faults --program tandem-sched-sim)
set_tests_properties(sched_plant_test PROPERTIES TIMEOUT 1800)
# By hand: sched_month [DAYS [JOBS_A_DAY [LOAD [NODES]]]]; the test runs a day of it.
add_executable(sched_month ${CMAKE_SOURCE_DIR}/tests/bench/sched_month.c
  ${CMAKE_SOURCE_DIR}/tests/bench/month_trace.c ${CMAKE_SOURCE_DIR}/tests/bench/month_run.c
  ${CMAKE_SOURCE_DIR}/tests/bench/month_policies.c)
target_link_libraries(sched_month PRIVATE tandem_flags tandem_sched)
add_test(NAME sched_month_test COMMAND sched_month 1 200 0.9 32)
