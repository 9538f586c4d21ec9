tandem_test(stream_test ${CMAKE_SOURCE_DIR}/tests/unit/stream_test.c tandem_kernels)

foreach(test ops_test ops_gradient_test loss_gradient_test ops_faults_test ops_beside_test)
  tandem_test(${test} ${CMAKE_SOURCE_DIR}/tests/parity/${test}.c tandem_kernels)
  target_sources(${test} PRIVATE ${CMAKE_SOURCE_DIR}/tests/parity/ops_case.c
    ${CMAKE_SOURCE_DIR}/tests/parity/ops_side.c ${CMAKE_SOURCE_DIR}/tests/parity/ops_run.c
    ${CMAKE_SOURCE_DIR}/tests/parity/ops_run_step.c)
endforeach()
foreach(test ops_gradient_test loss_gradient_test)
  target_sources(${test} PRIVATE ${CMAKE_SOURCE_DIR}/tests/parity/problem.c)
endforeach()

# The loops for lesser processors, too.
foreach(level avx2 baseline)
  foreach(test ops_test ops_faults_test)
    add_test(NAME ${test}_${level} COMMAND ${test})
    set_tests_properties(${test}_${level} PROPERTIES ENVIRONMENT
      "TANDEM_CPU_LEVEL=${level};TANDEM_PARITY_STRIDE=3")
  endforeach()
endforeach()

set_tests_properties(ops_beside_test PROPERTIES LABELS threads)

if(TANDEM_SANITIZE MATCHES "thread")
  # A race doesn't hang on sizes.
  set_tests_properties(ops_test PROPERTIES ENVIRONMENT TANDEM_PARITY_STRIDE=3)
  tandem_test(product_race_test ${CMAKE_SOURCE_DIR}/tests/parity/product_race_test.c tandem_kernels)
  target_sources(product_race_test PRIVATE ${CMAKE_SOURCE_DIR}/tests/parity/ops_case.c
    ${CMAKE_SOURCE_DIR}/tests/parity/ops_side.c)
  set_tests_properties(product_race_test PROPERTIES LABELS threads)
endif()

# Not a test: prints ratios (docs/performance.md).
add_executable(kernels_bench ${CMAKE_SOURCE_DIR}/tests/bench/kernels_bench.c)
target_link_libraries(kernels_bench PRIVATE tandem_flags tandem_kernels)
