# NCCL's communicators on the simulator (after cusim_plugin.cmake).
if(TARGET tandem_cuda_sim AND cusim_has_nccl)
  foreach(variant ${cusim_variants})
    cusim_program(comm_nccl_test ${variant} comm_nccl_test.c)
    target_link_libraries(comm_nccl_test_${variant} PRIVATE tandem_cuda_${variant} tandem_comm
      test_cmocka)
    add_test(NAME comm_nccl_test_${variant} COMMAND comm_nccl_test_${variant})
    set_tests_properties(comm_nccl_test_${variant} PROPERTIES LABELS "cusim;threads")
  endforeach()
endif()
