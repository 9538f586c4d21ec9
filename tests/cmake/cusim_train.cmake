# Training on simulated GPUs (after cusim.cmake): ranks as processes, then all the programs. More
# than one rank needs NCCL's header.
if(TARGET tandem_cuda_sim AND cusim_has_nccl)
  tandem_test(cusim_train_test ${CMAKE_SOURCE_DIR}/tests/cusim/train_test.c test_process_gang
    test_bad_model)
  add_dependencies(cusim_train_test tandem-rank tandem_cuda_sim)
  set_tests_properties(cusim_train_test PROPERTIES TIMEOUT 7200 LABELS cusim
    ENVIRONMENT "${TANDEM_SIM_ENVIRONMENT}")
  add_test(NAME gpu_train_test COMMAND ${Python3_EXECUTABLE}
    ${CMAKE_SOURCE_DIR}/tests/e2e/gpu_train_test.py)
  set_tests_properties(gpu_train_test PROPERTIES TIMEOUT 900 LABELS cusim
    ENVIRONMENT TANDEM_BIN=${CMAKE_RUNTIME_OUTPUT_DIRECTORY})
endif()
