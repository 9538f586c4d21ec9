# The CUDA plug-in: its own files on the simulator (after cusim.cmake), and the loader.
if(TARGET tandem_cuda_sim)
  foreach(variant ${cusim_variants})
    foreach(test device_test gemm_test replay_test times_test)
      cusim_program(cuda_${test} ${variant} ${test}.c right.cu)
      target_link_libraries(cuda_${test}_${variant} PRIVATE tandem_cuda_${variant} tandem_base
        test_cmocka)
      add_test(NAME cuda_${test}_${variant} COMMAND cuda_${test}_${variant})
      set_tests_properties(cuda_${test}_${variant} PROPERTIES LABELS "cusim;threads")
    endforeach()
    target_sources(cuda_replay_test_${variant} PRIVATE ${CMAKE_SOURCE_DIR}/runtime/rank/replay.c)
  endforeach()
endif()

# The plug-in for GPUs, and builds without it: once, not under each sanitizer.
if(TARGET tandem_cuda)
  add_test(NAME cuda_plugin_real_test COMMAND ${Python3_EXECUTABLE}
    ${CMAKE_SOURCE_DIR}/tests/cusim/plugin_real_test.py $<TARGET_FILE:tandem_cuda>)
endif()
if(NOT TANDEM_SANITIZE AND NOT TANDEM_FUZZ)
  add_test(NAME cuda_configure_test COMMAND ${Python3_EXECUTABLE}
    ${CMAKE_SOURCE_DIR}/tests/cusim/configure_test.py ${CMAKE_COMMAND} ${CMAKE_SOURCE_DIR})
  set_tests_properties(cuda_configure_test PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 900)
endif()
