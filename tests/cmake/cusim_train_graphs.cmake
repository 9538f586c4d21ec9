# Captured passes on simulated GPUs (after cusim_train.cmake).
if(TARGET tandem_cuda_sim AND cusim_has_nccl)
  tandem_test(graphs_test ${CMAKE_SOURCE_DIR}/tests/parallel/graphs_test.c test_process_gang)
  add_dependencies(graphs_test tandem-rank tandem_cuda_sim)
  set_tests_properties(graphs_test PROPERTIES TIMEOUT 900 LABELS cusim
    ENVIRONMENT "${TANDEM_SIM_ENVIRONMENT};CUSIM_DEVICES=2")
endif()
