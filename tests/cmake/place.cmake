set(place_sources ${CMAKE_SOURCE_DIR}/tests/place/place_check.c
  ${CMAKE_SOURCE_DIR}/tests/unit/fabric_case.c)
tandem_test(place_brute_test "${CMAKE_SOURCE_DIR}/tests/place/place_brute_test.c;${place_sources}"
  tandem_plan)
add_executable(place_bench ${CMAKE_SOURCE_DIR}/tests/bench/place_bench.c)
target_link_libraries(place_bench PRIVATE tandem_flags tandem_plan)
tandem_test(place_golden_test "${CMAKE_SOURCE_DIR}/tests/place/place_golden_test.c;${place_sources}"
  tandem_plan)
