set(place_sources ${CMAKE_SOURCE_DIR}/tests/place/place_check.c
  ${CMAKE_SOURCE_DIR}/tests/unit/fabric_case.c)
tandem_test(place_brute_test "${CMAKE_SOURCE_DIR}/tests/place/place_brute_test.c;${place_sources}"
  tandem_plan)
