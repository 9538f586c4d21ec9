# The parity suite on a simulated GPU, through the plug-in (after cusim.cmake and kernels.cmake): in
# every order of a block's threads and of streams. Each order has another ninth of the cases, with
# TANDEM_FULL=1 all of them; with sanitizers, which tests/cusim runs every kernel under, a third of
# that, and no side is longer than two blocks' tiles and a rest.
set(parity_cusim_tests "")
if(TARGET tandem_cuda_sim)
  add_dependencies(ops_test tandem_cuda_sim)
  set(seed 0)
  set(stride 9)
  set(sanitized "")
  if(TANDEM_SANITIZE)
    set(stride 27)
    set(sanitized TANDEM_PARITY_LARGEST=150)
  endif()
  foreach(threads forward reverse random)
    foreach(streams eager lazy random)
      set(test ops_cuda_${threads}_${streams})
      set(environment ${TANDEM_SIM_ENVIRONMENT} TANDEM_PARITY_BACKEND=cuda
        CUSIM_SCHEDULE=${threads},${streams},7 TANDEM_PARITY_STRIDE=${stride}
        TANDEM_PARITY_SEED=${seed} ${sanitized})
      # The host must not reach into device memory: here it can't.
      if(test STREQUAL ops_cuda_random_lazy)
        list(APPEND environment CUSIM_PROTECT=1)
      endif()
      add_test(NAME ${test} COMMAND ops_test)
      set_tests_properties(${test} PROPERTIES LABELS "cusim;threads"
        ENVIRONMENT "${environment}")
      list(APPEND parity_cusim_tests ${test})
      # Another remainder of 9, and far from its neighbours where the stride is longer.
      math(EXPR seed "${seed} + 13")
    endforeach()
  endforeach()
endif()

# Where CUDA's headers are, all of this runs: what is silently left out has not passed.
if(TANDEM_CUSIM_BUILT)
  set(cusim_missing "")
  foreach(part cublaslt nccl)
    if(NOT cusim_has_${part})
      list(APPEND cusim_missing --without ${part})
    endif()
  endforeach()
  if(NOT TANDEM_CUDA_INCLUDE_cudnn)
    list(APPEND cusim_missing --without cudnn)
  endif()
  if(NOT TANDEM_CUDA_LIBRARY_cudnn)
    list(APPEND cusim_missing --without cudnn_library)
  endif()
  if(TANDEM_SANITIZE OR CMAKE_C_COMPILER_ID MATCHES "Clang")
    list(APPEND cusim_missing --but once) # as script/test builds it
  endif()
  add_test(NAME cusim_registered_test COMMAND ${Python3_EXECUTABLE}
    ${CMAKE_SOURCE_DIR}/tests/cusim/registered_test.py --ctest ${CMAKE_CTEST_COMMAND}
    --build ${CMAKE_BINARY_DIR} --variants ${cusim_variants} ${cusim_missing})
  set_tests_properties(cusim_registered_test PROPERTIES LABELS cusim)
endif()
