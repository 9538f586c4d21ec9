# The CUDA plug-in: its own files on the simulator (after cusim.cmake), and the loader.
if(TARGET tandem_cuda_sim)
  foreach(variant ${cusim_variants})
    foreach(test device_test gemm_test replay_test)
      cusim_program(cuda_${test} ${variant} ${test}.c right.cu)
      target_link_libraries(cuda_${test}_${variant} PRIVATE tandem_cuda_${variant} tandem_base
        PkgConfig::CMOCKA)
      add_test(NAME cuda_${test}_${variant} COMMAND cuda_${test}_${variant})
      set_tests_properties(cuda_${test}_${variant} PROPERTIES LABELS "cusim;threads")
    endforeach()
    target_sources(cuda_replay_test_${variant} PRIVATE ${CMAKE_SOURCE_DIR}/runtime/rank/replay.c)
  endforeach()
endif()
