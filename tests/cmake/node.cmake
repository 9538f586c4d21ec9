# Communicators, the link, tandem-node.
add_library(test_comm_gang STATIC ${CMAKE_SOURCE_DIR}/tests/parallel/comm_gang.c)
target_link_libraries(test_comm_gang PRIVATE tandem_flags PUBLIC tandem_comm PkgConfig::CMOCKA)
tandem_test(comm_test ${CMAKE_SOURCE_DIR}/tests/parallel/comm_test.c test_comm_gang)
tandem_test(link_test ${CMAKE_SOURCE_DIR}/tests/unit/link_test.c tandem_link)
