# Our declarations of NVML against its header, where CUDA's package cuda-nvml-dev or another has put
# one (-DTANDEM_NVML_INCLUDE=DIR says where).
find_path(TANDEM_NVML_INCLUDE nvml.h HINTS ${TANDEM_CUDA_HOME}/include
  ${TANDEM_CUDA_HOME}/targets/x86_64-linux/include ${TANDEM_CUDA_HOME}/targets/sbsa-linux/include
  PATHS /usr/local/cuda/include /usr/local/cuda/targets/x86_64-linux/include
  /usr/local/cuda/targets/sbsa-linux/include /usr/include/nvidia/gdk)
mark_as_advanced(TANDEM_NVML_INCLUDE)
if(TANDEM_NVML_INCLUDE)
  tandem_test(nvml_header_test ${CMAKE_SOURCE_DIR}/tests/unit/nvml_header_test.c tandem_base)
  target_include_directories(nvml_header_test SYSTEM PRIVATE ${TANDEM_NVML_INCLUDE})
endif()
