# The CUDA plug-in, libtandem_cuda.so beside the programs. TANDEM_CUDA: AUTO builds it where nvcc,
# the headers and the libraries are; ON makes it an error where they aren't; OFF never does.
#
# It is linked to the CUDA runtime, cuBLASLt and NCCL, and never to the driver's library: who loads it
# has looked for that. Not with sanitizers: for these there is the simulated one (kernels/cusim).

set(TANDEM_CUDA_BUILT OFF)
if(TANDEM_CUDA STREQUAL "OFF")
  return()
endif()

find_program(TANDEM_NVCC nvcc HINTS ${TANDEM_CUDA_HOME} PATH_SUFFIXES bin)
find_path(TANDEM_CUDA_INCLUDE cuda_runtime_api.h HINTS ${TANDEM_CUDA_HOME} PATH_SUFFIXES include)
set(cuda_missing "")
if(TANDEM_SANITIZE OR TANDEM_FUZZ)
  list(APPEND cuda_missing "a build without sanitizers")
endif()
if(NOT TANDEM_NVCC)
  list(APPEND cuda_missing "nvcc")
endif()
if(NOT TANDEM_CUDA_INCLUDE)
  list(APPEND cuda_missing "cuda_runtime_api.h")
endif()
foreach(part cublaslt nccl)
  set(header ${part}.h)
  if(part STREQUAL cublaslt)
    set(header cublasLt.h)
  endif()
  find_path(TANDEM_CUDA_INCLUDE_${part} ${header} HINTS ${TANDEM_CUDA_INCLUDE})
  if(NOT TANDEM_CUDA_INCLUDE_${part})
    list(APPEND cuda_missing ${header})
  endif()
endforeach()
foreach(library cudart cublasLt nccl)
  find_library(TANDEM_CUDA_LIBRARY_${library} ${library}
    HINTS ${TANDEM_CUDA_HOME} ${TANDEM_CUDA_INCLUDE}/.. PATH_SUFFIXES lib64 lib)
  if(NOT TANDEM_CUDA_LIBRARY_${library})
    list(APPEND cuda_missing lib${library})
  endif()
endforeach()

# A compiler that is there but doesn't work is found out here; named in CMAKE_CUDA_COMPILER it would
# end the configuration.
if(NOT cuda_missing)
  set(ENV{CUDACXX} ${TANDEM_NVCC})
  set(CMAKE_CUDA_ARCHITECTURES 80-real 90)
  include(CheckLanguage)
  check_language(CUDA)
  if(NOT CMAKE_CUDA_COMPILER)
    list(APPEND cuda_missing "an nvcc that works")
  endif()
endif()
if(cuda_missing)
  list(JOIN cuda_missing ", " cuda_missing)
  if(TANDEM_CUDA STREQUAL "ON")
    message(FATAL_ERROR "TANDEM_CUDA=ON, but the CUDA plug-in lacks: ${cuda_missing}. "
      "Looked for in ${TANDEM_CUDA_HOME} (-DTANDEM_CUDA_HOME=DIR names another folder) and where the "
      "system has its libraries; what to install: docs/operations.md, GPUs")
  endif()
  message(STATUS "CUDA plug-in: not built: it lacks ${cuda_missing} (docs/operations.md, GPUs)")
  return()
endif()
enable_language(CUDA)
message(STATUS "CUDA plug-in: built by nvcc ${CMAKE_CUDA_COMPILER_VERSION}")
if(CCACHE)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
endif()

include(kernels/cuda/sources.cmake)
file(GLOB cuda_kernels CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/kernels/cuda/*.cu)
add_library(tandem_cuda_kernels OBJECT ${cuda_kernels})
target_include_directories(tandem_cuda_kernels PRIVATE ${CMAKE_SOURCE_DIR})
target_compile_features(tandem_cuda_kernels PRIVATE cuda_std_17)
# Not compressed, so that tests/cuda reads what GPUs get; 5 MB more.
target_compile_options(tandem_cuda_kernels PRIVATE -O3 -lineinfo --no-compress
  $<$<BOOL:${TANDEM_WERROR}>:-Werror=all-warnings>)
set_target_properties(tandem_cuda_kernels PROPERTIES POSITION_INDEPENDENT_CODE ON
  CUDA_RUNTIME_LIBRARY None)

add_library(tandem_cuda MODULE ${cuda_c_sources} ${cuda_nccl_sources} ${cuda_base_sources}
  $<TARGET_OBJECTS:tandem_cuda_kernels>)
target_compile_definitions(tandem_cuda PRIVATE TANDEM_HAS_NCCL)
target_include_directories(tandem_cuda SYSTEM PRIVATE ${TANDEM_CUDA_INCLUDE}
  ${TANDEM_CUDA_INCLUDE_nccl})
target_link_libraries(tandem_cuda PRIVATE tandem_flags ${TANDEM_CUDA_LIBRARY_cudart}
  ${TANDEM_CUDA_LIBRARY_cublasLt} ${TANDEM_CUDA_LIBRARY_nccl} Threads::Threads ${CMAKE_DL_LIBS} m
  -Wl,--version-script=${CMAKE_SOURCE_DIR}/kernels/cuda/plugin.map -Wl,-z,defs)
foreach(library cudart cublasLt nccl)
  get_filename_component(folder ${TANDEM_CUDA_LIBRARY_${library}} DIRECTORY)
  list(APPEND cuda_folders ${folder})
endforeach()
list(REMOVE_DUPLICATES cuda_folders)
set_target_properties(tandem_cuda PROPERTIES LINKER_LANGUAGE CUDA CUDA_RUNTIME_LIBRARY None
  BUILD_RPATH "${cuda_folders}"
  LIBRARY_OUTPUT_DIRECTORY ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}
  LINK_DEPENDS ${CMAKE_SOURCE_DIR}/kernels/cuda/plugin.map)
set(TANDEM_CUDA_BUILT ON)
