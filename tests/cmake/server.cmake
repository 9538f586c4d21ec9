# The controller: its pure parts and its database alone, then the real programs together.
add_library(test_store_fixture STATIC ${CMAKE_SOURCE_DIR}/tests/unit/store_fixture.c)
target_link_libraries(test_store_fixture PRIVATE tandem_flags PUBLIC tandem_store PkgConfig::CMOCKA)
tandem_test(job_test ${CMAKE_SOURCE_DIR}/tests/unit/job_test.c tandem_server)
tandem_test(scheduler_test ${CMAKE_SOURCE_DIR}/tests/unit/scheduler_test.c tandem_server)
tandem_test(supervisor_test ${CMAKE_SOURCE_DIR}/tests/unit/supervisor_test.c tandem_server)
tandem_test(store_test ${CMAKE_SOURCE_DIR}/tests/unit/store_test.c test_store_fixture)
tandem_test(curve_test ${CMAKE_SOURCE_DIR}/tests/unit/curve_test.c tandem_server test_store_fixture)
