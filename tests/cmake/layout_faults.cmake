# Ranks of every layout that are stopped, killed or stuck.
add_executable(rank_stops ${CMAKE_SOURCE_DIR}/runtime/rank/main.c
  ${CMAKE_SOURCE_DIR}/tests/fault/helpers/rank_stops.c)
target_link_libraries(rank_stops PRIVATE tandem_flags tandem_rank)
target_link_options(rank_stops PRIVATE -Wl,--wrap=host_call_run,--wrap=comm_host_open)
foreach(name layout_stop_test layout_kill_test)
  set(sources ${name}.c crew.c crew_plan.c)
  list(TRANSFORM sources PREPEND ${CMAKE_SOURCE_DIR}/tests/fault/)
  tandem_test(${name} "${sources}" tandem_node test_gang)
  add_dependencies(${name} rank_stops tandem-rank)
  set_tests_properties(${name} PROPERTIES TIMEOUT 3600)
endforeach()
