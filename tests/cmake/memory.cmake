# What ranks take against what the plan said. Calls of the heap are counted.
tandem_test(memory_truth_test ${CMAKE_SOURCE_DIR}/tests/parallel/memory_truth_test.c test_gang)
target_link_options(memory_truth_test PRIVATE
  LINKER:--wrap=malloc,--wrap=calloc,--wrap=aligned_alloc)
set_tests_properties(memory_truth_test PROPERTIES TIMEOUT 900)

# The same of programs. A sanitizer's own memory is none of theirs.
if(NOT TANDEM_SANITIZE)
  add_test(NAME memory_process_test
    COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/parallel/memory_process_test.py)
  set_tests_properties(memory_process_test PROPERTIES TIMEOUT 900
    ENVIRONMENT "TANDEM_BIN=${CMAKE_RUNTIME_OUTPUT_DIRECTORY}")
endif()

# The same of simulated GPUs.
if(TARGET tandem_cuda_sim AND cusim_has_nccl)
  tandem_test(memory_gpu_test ${CMAKE_SOURCE_DIR}/tests/parallel/memory_gpu_test.c test_process_gang)
  add_dependencies(memory_gpu_test tandem-rank tandem_cuda_sim)
  set_tests_properties(memory_gpu_test PROPERTIES TIMEOUT 1200 LABELS cusim
    ENVIRONMENT "${TANDEM_SIM_ENVIRONMENT}")
endif()
