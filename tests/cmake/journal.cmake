# The journal of reports: its format, tandem-node's outbox on it, and what follows a killed node.
tandem_test(journal_test ${CMAKE_SOURCE_DIR}/tests/unit/journal_test.c tandem_proto)
tandem_fuzz(journal_fuzz ${CMAKE_SOURCE_DIR}/tests/fuzz/journal_fuzz.c tandem_proto)
tandem_test(outbox_test ${CMAKE_SOURCE_DIR}/tests/unit/outbox_test.c tandem_node)
set_tests_properties(outbox_test PROPERTIES LABELS threads)
