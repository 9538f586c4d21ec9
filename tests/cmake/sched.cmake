# Who starts next: rules one by one, a table of victims, and memory that changes nothing.
add_library(sched_case STATIC ${CMAKE_SOURCE_DIR}/tests/unit/sched_case.c
  ${CMAKE_SOURCE_DIR}/tests/unit/fabric_case.c)
target_link_libraries(sched_case PRIVATE tandem_flags PUBLIC tandem_sched PkgConfig::CMOCKA)
foreach(name order quota backfill preempt victims claims why memory)
  tandem_test(sched_${name}_test ${CMAKE_SOURCE_DIR}/tests/unit/sched_${name}_test.c sched_case)
endforeach()
add_executable(sched_bench ${CMAKE_SOURCE_DIR}/tests/bench/sched_bench.c)
target_link_libraries(sched_bench PRIVATE tandem_flags tandem_sched)
