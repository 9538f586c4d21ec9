# Drawn shapes and layouts on simulated GPUs (after cusim_train.cmake).
if(TARGET tandem_cuda_sim AND cusim_has_nccl)
  tandem_test(gpu_sweep_test ${CMAKE_SOURCE_DIR}/tests/parallel/gpu_sweep_test.c test_process_gang
    test_record)
  add_dependencies(gpu_sweep_test tandem-rank tandem_cuda_sim)
  set_tests_properties(gpu_sweep_test PROPERTIES TIMEOUT 7200 LABELS cusim
    ENVIRONMENT "${TANDEM_SIM_ENVIRONMENT}")
endif()
