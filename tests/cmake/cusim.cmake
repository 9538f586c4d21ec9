include(${CMAKE_SOURCE_DIR}/kernels/cusim/cusim.cmake)
if(NOT TANDEM_CUSIM_BUILT)
  return()
endif()

# cusim_program(NAME VARIANT SOURCES...): NAME_VARIANT.
function(cusim_program name variant)
  set(sources "")
  foreach(source ${ARGN})
    list(APPEND sources ${CMAKE_SOURCE_DIR}/tests/cusim/${source})
  endforeach()
  cusim_sources(${sources})
  add_executable(${name}_${variant} ${sources})
  target_link_libraries(${name}_${variant} PRIVATE tandem_cusim_${variant})
endfunction()

# cusim_test(NAME SOURCES...): a cmocka program in every variant.
function(cusim_test name)
  foreach(variant ${cusim_variants})
    cusim_program(${name} ${variant} ${ARGN})
    target_link_libraries(${name}_${variant} PRIVATE test_cmocka tandem_kernels)
    add_test(NAME ${name}_${variant} COMMAND ${name}_${variant})
    set_tests_properties(${name}_${variant} PROPERTIES LABELS "cusim;threads")
  endforeach()
endfunction()

foreach(variant ${cusim_variants})
  cusim_program(cusim_faults ${variant} faults_main.cc faults_threads.cu faults_memory.cu
    faults_streams.cu)
  add_test(NAME cusim_faults_${variant} COMMAND ${Python3_EXECUTABLE}
    ${CMAKE_SOURCE_DIR}/tests/cusim/faults_test.py ${variant} $<TARGET_FILE:cusim_faults_${variant}>)
  set_tests_properties(cusim_faults_${variant} PROPERTIES LABELS "cusim;threads")
endforeach()

cusim_test(cusim_engine_test engine_test.c right.cu)
foreach(kernels norm step pointwise embed loss)
  cusim_test(cusim_${kernels}_test ${kernels}_test.c)
endforeach()
cusim_test(cusim_streams_test streams_test.c right.cu)
if(cusim_has_cublaslt)
  cusim_test(cusim_cublaslt_test cublaslt_test.c)
endif()
if(cusim_has_nccl)
  cusim_test(cusim_nccl_test nccl_test.c)
endif()

# The host must not reach into device memory: here it can't.
if(TARGET cusim_step_test_plain)
  add_test(NAME cusim_step_test_protected COMMAND cusim_step_test_plain)
  set_tests_properties(cusim_step_test_protected PROPERTIES LABELS "cusim;threads"
    ENVIRONMENT CUSIM_PROTECT=1)
endif()

# What the simulator runs must compile for a GPU, too. nvcc needs no GPU for that; where the plug-in is
# built, its objects are looked at.
find_program(TANDEM_NVCC nvcc HINTS ${TANDEM_CUDA_HOME} PATH_SUFFIXES bin)
if(NOT TANDEM_SANITIZE)
  if(TANDEM_NVCC)
    set(built "")
    if(TARGET tandem_cuda_kernels)
      set(built --built ${CMAKE_BINARY_DIR}/CMakeFiles/tandem_cuda_kernels.dir/kernels/cuda)
    endif()
    add_test(NAME cuda_nvcc_test COMMAND ${Python3_EXECUTABLE}
      ${CMAKE_SOURCE_DIR}/tests/cuda/kernels_test.py ${TANDEM_NVCC} ${CMAKE_SOURCE_DIR} ${built})
  else()
    add_test(NAME cuda_nvcc_test COMMAND sh -c
      "echo 'SKIPPED: the CUDA kernels are not compiled for a GPU here: no nvcc'; exit 77")
    set_tests_properties(cuda_nvcc_test PROPERTIES SKIP_RETURN_CODE 77)
  endif()
endif()
