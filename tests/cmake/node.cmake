# Communicators, the link, tandem-node.
add_library(test_comm_gang STATIC ${CMAKE_SOURCE_DIR}/tests/parallel/comm_gang.c)
target_link_libraries(test_comm_gang PRIVATE tandem_flags PUBLIC tandem_comm PkgConfig::CMOCKA)
tandem_test(comm_test ${CMAKE_SOURCE_DIR}/tests/parallel/comm_test.c test_comm_gang)
tandem_test(comm_abort_test ${CMAKE_SOURCE_DIR}/tests/parallel/comm_abort_test.c test_comm_gang)
set_tests_properties(comm_abort_test PROPERTIES LABELS threads)
target_link_options(comm_abort_test PRIVATE
  LINKER:--wrap=segment_is_aborted,--wrap=segment_abort)
tandem_test(link_test ${CMAKE_SOURCE_DIR}/tests/unit/link_test.c tandem_link)
add_executable(rank_helper ${CMAKE_SOURCE_DIR}/tests/fault/helpers/rank_helper.c)
target_link_libraries(rank_helper PRIVATE tandem_flags tandem_link tandem_comm)
tandem_test(node_test ${CMAKE_SOURCE_DIR}/tests/fault/node_test.c tandem_node)
add_dependencies(node_test rank_helper)
foreach(name attach_test attach_rules_test)
  tandem_test(${name}
    "${CMAKE_SOURCE_DIR}/tests/fault/${name}.c;${CMAKE_SOURCE_DIR}/tests/fault/attach_bench.c"
    tandem_node tandem_server_rpc)
  add_dependencies(${name} tandem-node rank_helper)
  set_tests_properties(${name} PROPERTIES LABELS threads ENVIRONMENT
    "TSAN_OPTIONS=suppressions=${CMAKE_SOURCE_DIR}/tests/tsan.supp")
endforeach()
# By hand: comm_bench [RANKS ...]
add_executable(comm_bench EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/tests/bench/comm_bench.c)
target_link_libraries(comm_bench PRIVATE tandem_flags tandem_comm)
tandem_fuzz(link_fuzz ${CMAKE_SOURCE_DIR}/tests/fuzz/link_fuzz.c tandem_link)
