# Quotas and what is counted of the devices.
tandem_test(tenants_test ${CMAKE_SOURCE_DIR}/tests/unit/tenants_test.c tandem_server)
