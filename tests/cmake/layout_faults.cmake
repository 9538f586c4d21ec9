# Ranks of every layout that are stopped, killed or stuck.
set(crew ${CMAKE_SOURCE_DIR}/tests/fault/crew.c ${CMAKE_SOURCE_DIR}/tests/fault/crew_plan.c
  ${CMAKE_SOURCE_DIR}/tests/parallel/gang_job.c ${CMAKE_SOURCE_DIR}/tests/parallel/golden.c)
add_executable(rank_stops ${CMAKE_SOURCE_DIR}/runtime/rank/main.c
  ${CMAKE_SOURCE_DIR}/tests/fault/helpers/rank_stops.c)
target_link_libraries(rank_stops PRIVATE tandem_flags tandem_rank)
target_link_options(rank_stops PRIVATE -Wl,--wrap=host_call_run,--wrap=comm_host_open)
tandem_test(layout_stop_test "${CMAKE_SOURCE_DIR}/tests/fault/layout_stop_test.c;${crew}" tandem_node
  tandem_data PkgConfig::JANSSON)
add_dependencies(layout_stop_test rank_stops)
tandem_test(layout_kill_test "${CMAKE_SOURCE_DIR}/tests/fault/layout_kill_test.c;${crew}" tandem_node
  tandem_data PkgConfig::JANSSON)
add_dependencies(layout_kill_test tandem-rank)
set_tests_properties(layout_kill_test PROPERTIES TIMEOUT 3600)
