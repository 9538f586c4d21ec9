set(place_sources ${CMAKE_SOURCE_DIR}/tests/place/place_check.c
  ${CMAKE_SOURCE_DIR}/tests/unit/fabric_case.c)
tandem_test(place_brute_test "${CMAKE_SOURCE_DIR}/tests/place/place_brute_test.c;${place_sources}"
  tandem_plan)
add_executable(place_bench ${CMAKE_SOURCE_DIR}/tests/bench/place_bench.c)
target_link_libraries(place_bench PRIVATE tandem_flags tandem_plan)
tandem_test(place_golden_test "${CMAKE_SOURCE_DIR}/tests/place/place_golden_test.c;${place_sources}"
  tandem_plan)
tandem_test(place_test
  "${CMAKE_SOURCE_DIR}/tests/unit/place_test.c;${CMAKE_SOURCE_DIR}/tests/unit/fabric_case.c"
  tandem_plan)
# Faults planted in the placement must be found by the tests above. What finds them is the same with
# sanitizers, and slower.
if(NOT TANDEM_SANITIZE)
  add_test(NAME place_plant_test
    COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/place/plant.py ${CMAKE_BINARY_DIR})
  set_tests_properties(place_plant_test PROPERTIES TIMEOUT 600)
endif()
set_tests_properties(place_brute_test PROPERTIES TIMEOUT 3600)
tandem_test(placement_test "${CMAKE_SOURCE_DIR}/tests/unit/placement_test.c;\
${CMAKE_SOURCE_DIR}/tests/unit/plan_case.c;${CMAKE_SOURCE_DIR}/tests/unit/fabric_case.c" tandem_plan)
tandem_test(place_large_test "${CMAKE_SOURCE_DIR}/tests/place/place_large_test.c;${place_sources}"
  tandem_plan)
