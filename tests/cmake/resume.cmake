tandem_test(resume_test ${CMAKE_SOURCE_DIR}/tests/parallel/resume_test.c test_gang)
set_tests_properties(resume_test PROPERTIES TIMEOUT 900 LABELS threads)
target_link_options(resume_test PRIVATE -Wl,--wrap=fsync)
