if(NOT TANDEM_CUSIM_BUILT)
  return()
endif()
cusim_test(cusim_attention_test attention_test.c attention_banks.cu)

# cuDNN: its header and, for one test, the library itself.
find_path(TANDEM_CUDA_INCLUDE_cudnn cudnn.h HINTS ${TANDEM_CUDA_INCLUDE})
find_library(TANDEM_CUDA_LIBRARY_cudnn NAMES libcudnn.so.9
  HINTS ENV CUDA_HOME /usr/local/cuda ${TANDEM_CUDA_INCLUDE}/.. PATH_SUFFIXES lib64 lib)
if(NOT TARGET tandem_cuda_sim OR NOT TANDEM_CUDA_INCLUDE_cudnn)
  cusim_absent(cuda_cudnn_test 77 "SKIPPED: cuDNN's attention is not tested here: no cudnn.h found")
  return()
endif()
add_library(tandem_fake_cudnn MODULE cusim/fake_cudnn.c)
target_include_directories(tandem_fake_cudnn PRIVATE ${CMAKE_SOURCE_DIR})
target_include_directories(tandem_fake_cudnn SYSTEM PRIVATE ${TANDEM_CUDA_INCLUDE}
  ${TANDEM_CUDA_INCLUDE_cudnn})
foreach(variant ${cusim_variants})
  cusim_program(cuda_cudnn_test ${variant} cudnn_test.c)
  add_dependencies(cuda_cudnn_test_${variant} tandem_fake_cudnn)
  target_link_libraries(cuda_cudnn_test_${variant} PRIVATE tandem_cuda_${variant} tandem_base
    test_cmocka ${CMAKE_DL_LIBS})
  add_test(NAME cuda_cudnn_test_${variant} COMMAND cuda_cudnn_test_${variant})
  set_tests_properties(cuda_cudnn_test_${variant} PROPERTIES LABELS "cusim;threads"
    ENVIRONMENT TANDEM_CUDNN=$<TARGET_FILE:tandem_fake_cudnn>)
endforeach()

if(TARGET tandem_cuda_plain AND TANDEM_CUDA_LIBRARY_cudnn)
  cusim_program(cuda_cudnn_graph_test plain cudnn_graph_test.c)
  target_link_libraries(cuda_cudnn_graph_test_plain PRIVATE tandem_cuda_plain tandem_base
    ${CMAKE_DL_LIBS})
  add_test(NAME cuda_cudnn_graph_test
    COMMAND cuda_cudnn_graph_test_plain ${TANDEM_CUDA_LIBRARY_cudnn})
elseif(NOT TANDEM_CUDA_LIBRARY_cudnn)
  cusim_absent(cuda_cudnn_graph_test 77
    "SKIPPED: cuDNN isn't asked about attention's graphs here: no libcudnn.so.9 found")
endif()
