# What a step asks of CUDA (after cusim.cmake): a tandem-rank of its own says it.
if(TARGET tandem_cuda_sim AND cusim_has_nccl)
  set(quiet_steps_bin ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/quiet_steps)
  add_executable(quiet_steps_rank EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/runtime/rank/main.c
    ${CMAKE_SOURCE_DIR}/tests/parallel/quiet_steps.c)
  target_link_libraries(quiet_steps_rank PRIVATE tandem_flags tandem_rank ${CMAKE_DL_LIBS})
  target_link_options(quiet_steps_rank PRIVATE LINKER:--wrap=store_begin_step)
  set_target_properties(quiet_steps_rank PROPERTIES OUTPUT_NAME tandem-rank
    RUNTIME_OUTPUT_DIRECTORY ${quiet_steps_bin})
  tandem_test(quiet_steps_test ${CMAKE_SOURCE_DIR}/tests/parallel/quiet_steps_test.c
    test_process_gang)
  target_compile_definitions(quiet_steps_test PRIVATE QUIET_STEPS_BIN_DIR="${quiet_steps_bin}")
  add_dependencies(quiet_steps_test quiet_steps_rank tandem_cuda_sim)
  set_tests_properties(quiet_steps_test PROPERTIES TIMEOUT 900 LABELS cusim
    ENVIRONMENT "${TANDEM_SIM_ENVIRONMENT}")
endif()
