# NCCL's communicators on the simulator (after cusim_plugin.cmake).
if(TARGET tandem_cuda_sim AND cusim_has_nccl)
  foreach(variant ${cusim_variants})
    foreach(name comm_nccl_test comm_nccl_faults_test)
      cusim_program(${name} ${variant} ${name}.c nccl_ranks.c)
      target_link_libraries(${name}_${variant} PRIVATE tandem_cuda_${variant} tandem_comm
        test_cmocka)
      target_link_options(${name}_${variant} PRIVATE LINKER:--wrap=clock_mono_ns)
      add_test(NAME ${name}_${variant} COMMAND ${name}_${variant})
      set_tests_properties(${name}_${variant} PROPERTIES LABELS "cusim;threads")
    endforeach()
  endforeach()
endif()
