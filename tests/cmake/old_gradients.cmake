# Gradients that begin anew, over whatever lies in their memory.
set(old_gradients ${CMAKE_SOURCE_DIR}/tests/parallel/old_gradients.c)
set(old_gradients_wraps
  LINKER:--wrap=store_begin_step,--wrap=store_open_grads,--wrap=store_grads_are_new)
tandem_test(old_gradients_test
  "${CMAKE_SOURCE_DIR}/tests/parallel/old_gradients_test.c;${old_gradients}" test_gang)
target_link_options(old_gradients_test PRIVATE ${old_gradients_wraps})
set_tests_properties(old_gradients_test PROPERTIES TIMEOUT 600)

# On simulated GPUs (after cusim.cmake): a tandem-rank of its own.
if(TARGET tandem_cuda_sim AND cusim_has_nccl)
  set(old_gradients_bin ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/old_gradients)
  add_executable(old_gradients_rank EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/runtime/rank/main.c
    ${old_gradients})
  target_link_libraries(old_gradients_rank PRIVATE tandem_flags tandem_rank)
  target_link_options(old_gradients_rank PRIVATE ${old_gradients_wraps})
  set_target_properties(old_gradients_rank PROPERTIES OUTPUT_NAME tandem-rank
    RUNTIME_OUTPUT_DIRECTORY ${old_gradients_bin})
  tandem_test(old_gradients_gpu_test ${CMAKE_SOURCE_DIR}/tests/parallel/old_gradients_gpu_test.c
    test_process_gang)
  target_compile_definitions(old_gradients_gpu_test PRIVATE
    OLD_GRADIENTS_BIN_DIR="${old_gradients_bin}")
  add_dependencies(old_gradients_gpu_test old_gradients_rank tandem_cuda_sim)
  set_tests_properties(old_gradients_gpu_test PROPERTIES TIMEOUT 900 LABELS cusim
    ENVIRONMENT "${TANDEM_SIM_ENVIRONMENT};CUSIM_DEVICES=2")
endif()
