# The plan's list of launches against what ranks call (after parallel.cmake).
tandem_test(launches_test ${CMAKE_SOURCE_DIR}/tests/parallel/launches_test.c test_gang)
target_link_options(launches_test PRIVATE
  LINKER:--wrap=rank_run,--wrap=kernels_open,--wrap=axes_open,--wrap=store_begin_step)
set_tests_properties(launches_test PROPERTIES TIMEOUT 600)
tandem_test(plan_kernels_test "${CMAKE_SOURCE_DIR}/tests/unit/plan_kernels_test.c;\
${CMAKE_SOURCE_DIR}/tests/unit/plan_case.c" tandem_plan)
target_link_options(plan_kernels_test PRIVATE LINKER:--wrap=kernel_time)
# How many kernels each call is, on the simulator (after cusim.cmake). As many with sanitizers.
if(TARGET tandem_cuda_plain)
  tandem_test(launch_kernels_test "${CMAKE_SOURCE_DIR}/tests/unit/launch_kernels_test.c;\
${CMAKE_SOURCE_DIR}/tests/unit/plan_case.c" tandem_plan)
  target_link_libraries(launch_kernels_test PRIVATE tandem_cuda_plain)
  set_tests_properties(launch_kernels_test PROPERTIES LABELS cusim)
endif()
