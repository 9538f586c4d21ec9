tandem_test(stream_test ${CMAKE_SOURCE_DIR}/tests/unit/stream_test.c tandem_kernels)

foreach(test ops_test ops_gradient_test ops_faults_test)
  tandem_test(${test} ${CMAKE_SOURCE_DIR}/tests/parity/${test}.c tandem_kernels)
  target_sources(${test} PRIVATE ${CMAKE_SOURCE_DIR}/tests/parity/ops_case.c
    ${CMAKE_SOURCE_DIR}/tests/parity/ops_run.c)
endforeach()
