tandem_test(pieces_test ${CMAKE_SOURCE_DIR}/tests/unit/pieces_test.c tandem_plan)
