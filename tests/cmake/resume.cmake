set(gang ${CMAKE_SOURCE_DIR}/tests/parallel/gang.c ${CMAKE_SOURCE_DIR}/tests/parallel/gang_job.c
  ${CMAKE_SOURCE_DIR}/tests/parallel/golden.c)
tandem_test(resume_test "${CMAKE_SOURCE_DIR}/tests/parallel/resume_test.c;${gang}" tandem_rank)
set_tests_properties(resume_test PROPERTIES TIMEOUT 900 LABELS threads)
target_link_options(resume_test PRIVATE -Wl,--wrap=fsync)
