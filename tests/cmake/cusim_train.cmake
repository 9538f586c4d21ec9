# Training on simulated GPUs (after cusim.cmake).
if(TARGET tandem_cuda_sim)
  tandem_test(cusim_train_test ${CMAKE_SOURCE_DIR}/tests/cusim/train_test.c test_process_gang)
  add_dependencies(cusim_train_test tandem-rank tandem_cuda_sim)
  set_tests_properties(cusim_train_test PROPERTIES TIMEOUT 3600 LABELS "cusim"
    ENVIRONMENT "${TANDEM_SIM_ENVIRONMENT}")
endif()
