# What tests/gpu/run needs (after cusim_plugin.cmake and parallel.cmake): on a GPU, where nvcc is, with
# the plug-in; else on simulated GPUs, where the script itself is tested.
add_executable(gpu_train ${CMAKE_SOURCE_DIR}/tests/gpu/train.c)
target_link_libraries(gpu_train PRIVATE tandem_flags test_process_gang)
add_dependencies(gpu_train tandem-rank)
file(GLOB gpu_bench_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/gpu/bench*.c)
add_executable(gpu_bench ${gpu_bench_sources})
target_link_libraries(gpu_bench PRIVATE tandem_flags tandem_comm tandem_plan)

if(TARGET tandem_cuda)
  add_executable(gpu_layout ${CMAKE_SOURCE_DIR}/tests/gpu/layout.cu)
  target_include_directories(gpu_layout PRIVATE ${CMAKE_SOURCE_DIR})
  target_compile_features(gpu_layout PRIVATE cuda_std_17)
  target_compile_options(gpu_layout PRIVATE -O3
    $<$<BOOL:${TANDEM_WERROR}>:-Werror=all-warnings>)
  target_link_libraries(gpu_layout PRIVATE ${TANDEM_CUDA_LIBRARY_cudart})
  set_target_properties(gpu_layout PROPERTIES CUDA_RUNTIME_LIBRARY None
    BUILD_RPATH "${cuda_folders}")
  # All that is taken to a machine with a GPU: tests/gpu/prebuild.
  add_custom_target(gpu_programs DEPENDS tandem_cuda tandem-rank ops_test gpu_train gpu_bench
    gpu_layout)
endif()

if(TARGET tandem_cuda_sim AND cusim_has_nccl)
  list(GET cusim_variants 0 gpu_variant)
  set(gpu_layout_source ${CMAKE_SOURCE_DIR}/tests/gpu/layout.cu)
  add_custom_command(OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/layout_sim.cc
    COMMAND ${CMAKE_COMMAND} -E copy ${gpu_layout_source} ${CMAKE_CURRENT_BINARY_DIR}/layout_sim.cc
    DEPENDS ${gpu_layout_source})
  add_executable(gpu_layout_sim ${CMAKE_CURRENT_BINARY_DIR}/layout_sim.cc)
  target_link_libraries(gpu_layout_sim PRIVATE tandem_cusim_${gpu_variant})
  add_test(NAME gpu_script_test COMMAND ${Python3_EXECUTABLE}
    ${CMAKE_SOURCE_DIR}/tests/gpu/script_test.py ${CMAKE_RUNTIME_OUTPUT_DIRECTORY})
  set_tests_properties(gpu_script_test PROPERTIES TIMEOUT 900 LABELS cusim)
endif()
