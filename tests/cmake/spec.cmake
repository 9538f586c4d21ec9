tandem_test(text_test ${CMAKE_SOURCE_DIR}/tests/unit/text_test.c tandem_proto)
tandem_test(spec_test
  "${CMAKE_SOURCE_DIR}/tests/unit/spec_test.c;${CMAKE_SOURCE_DIR}/tests/unit/spec_case.c" tandem_plan)
tandem_test(spec_docs_test
  "${CMAKE_SOURCE_DIR}/tests/unit/spec_docs_test.c;${CMAKE_SOURCE_DIR}/tests/unit/spec_case.c" tandem_plan)
tandem_test(explain_test ${CMAKE_SOURCE_DIR}/tests/unit/explain_test.c tandem_base)
add_dependencies(explain_test tandem)
tandem_fuzz(spec_text_fuzz ${CMAKE_SOURCE_DIR}/tests/fuzz/spec_text_fuzz.c tandem_plan)
tandem_fuzz(message_fuzz ${CMAKE_SOURCE_DIR}/tests/fuzz/message_fuzz.c tandem_plan)
