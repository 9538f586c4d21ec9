tandem_test(places_test ${CMAKE_SOURCE_DIR}/tests/parallel/places_test.c test_gang)
