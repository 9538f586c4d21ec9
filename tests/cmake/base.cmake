tandem_test(base_test ${CMAKE_SOURCE_DIR}/tests/unit/base_test.c tandem_base)
tandem_test(told_end_test ${CMAKE_SOURCE_DIR}/tests/unit/told_end_test.c)
set_tests_properties(told_end_test PROPERTIES LABELS threads)
