# The communicators of a layout.
tandem_test(axes_test ${CMAKE_SOURCE_DIR}/tests/parallel/axes_test.c tandem_parallel test_comm_gang)
set_tests_properties(axes_test PROPERTIES LABELS threads)
# Messages between two members.
tandem_test(message_test ${CMAKE_SOURCE_DIR}/tests/parallel/message_test.c tandem_comm test_comm_gang)
set_tests_properties(message_test PROPERTIES LABELS threads)
