# The CUDA kernels and what they stand on, for a CPU: for tests alone. Needs CUDA's headers (Debian's
# nvidia-cuda-toolkit, or /usr/local/cuda) and a C++ compiler; no nvcc, no GPU, no CUDA library.
#
# Sets TANDEM_CUSIM_BUILT, cusim_variants and a library tandem_cusim_VARIANT each, and what stands
# below about the plug-in. What is missing
# leaves a test that says so: skipped without headers, failed where they are there. cusim_has_cublaslt
# and cusim_has_nccl: these come in packages of their own.

set(TANDEM_CUSIM "AUTO" CACHE STRING "CUDA kernels on the CPU, for tests: AUTO, OFF")
set(TANDEM_CUSIM_BUILT OFF)

# cusim_absent(NAME CODE WORDS): a test that ends with this code; 77 is skipped.
function(cusim_absent name code words)
  message(STATUS "cusim: ${words}")
  add_test(NAME ${name} COMMAND sh -c "echo \"${words}\"; exit ${code}")
  set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77 LABELS "cusim;threads")
endfunction()

find_path(TANDEM_CUDA_INCLUDE cuda_runtime_api.h HINTS ${TANDEM_CUDA_HOME} PATH_SUFFIXES include)
if(TANDEM_FUZZ)
  return()
elseif(TANDEM_CUSIM STREQUAL "OFF")
  cusim_absent(cusim_test 77 "SKIPPED: the CUDA kernels are not tested here: TANDEM_CUSIM=OFF")
  return()
elseif(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  cusim_absent(cusim_test 77 "SKIPPED: the CUDA kernels are not tested here: their simulator needs x86-64")
  return()
elseif(NOT TANDEM_CUDA_INCLUDE)
  cusim_absent(cusim_test 77 "SKIPPED: the CUDA kernels are not tested here: no cuda_runtime_api.h found")
  return()
endif()

# The C++ compiler that goes with the C compiler: their sanitizers must be the same.
if(NOT CMAKE_CXX_COMPILER AND CMAKE_C_COMPILER_ID MATCHES "Clang")
  string(REGEX REPLACE "clang([-0-9]*)$" "clang++\\1" cusim_cxx ${CMAKE_C_COMPILER})
  if(EXISTS ${cusim_cxx})
    set(CMAKE_CXX_COMPILER ${cusim_cxx})
  endif()
endif()
include(CheckLanguage)
check_language(CXX)
if(NOT CMAKE_CXX_COMPILER)
  cusim_absent(cusim_test 1 "FAILED: CUDA's headers are here, but no C++ compiler to test the CUDA kernels")
  return()
endif()
enable_language(CXX)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()

# Under a sanitizer's preset that one; else all, or those that are named: script/test runs each once.
set(TANDEM_CUSIM_VARIANTS "plain;asan;tsan" CACHE STRING "How the CUDA kernels are built for the CPU")
set(cusim_plain "")
set(cusim_asan -fsanitize=address,undefined -fno-sanitize-recover=undefined)
set(cusim_tsan -fsanitize=thread)
if(TANDEM_SANITIZE MATCHES "address")
  set(cusim_variants asan)
elseif(TANDEM_SANITIZE MATCHES "thread")
  set(cusim_variants tsan)
elseif(TANDEM_SANITIZE)
  set(cusim_variants plain)
else()
  set(cusim_variants ${TANDEM_CUSIM_VARIANTS})
endif()

# cusim_sources(FILES...): .cu files are C++ to a host compiler. gcc leaves CUDA's `#pragma unroll`
# alone; clang would follow it, for 17 s in one file.
function(cusim_sources)
  set(cu ${ARGN})
  list(FILTER cu INCLUDE REGEX "\\.cu$")
  set_source_files_properties(${cu} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS
    "-xc++;-Wno-unknown-pragmas;$<$<CXX_COMPILER_ID:Clang>:-Wno-pass-failed;-mllvm;-pragma-unroll-threshold=100>")
endfunction()

file(GLOB cusim_engine CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/kernels/cusim/*.cc)
foreach(part cublaslt nccl)
  set(header ${part}.h)
  if(part STREQUAL cublaslt)
    set(header cublasLt.h)
  endif()
  find_path(TANDEM_CUDA_INCLUDE_${part} ${header} HINTS ${TANDEM_CUDA_INCLUDE})
  set(cusim_has_${part} ON)
  if(NOT TANDEM_CUDA_INCLUDE_${part})
    set(cusim_has_${part} OFF)
    cusim_absent(cusim_${part}_test 77 "SKIPPED: its fake is not tested here: no ${header} found")
  endif()
endforeach()
if(NOT cusim_has_cublaslt)
  list(FILTER cusim_engine EXCLUDE REGEX "/(cublaslt|touch_matmul)\\.cc$")
endif()
if(NOT cusim_has_nccl)
  list(FILTER cusim_engine EXCLUDE REGEX "/(nccl|collective|peers|touch_reduced)\\.cc$")
endif()
file(GLOB cusim_kernels CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/kernels/cuda/*.cu)
cusim_sources(${cusim_kernels})
# What the simulator does for itself is hidden from ThreadSanitizer; touch*.cc is what it does in the
# kernels' name.
set(cusim_hidden ${cusim_engine})
list(FILTER cusim_hidden EXCLUDE REGEX "/touch[^/]*\\.cc$")
set_source_files_properties(${cusim_hidden} PROPERTIES COMPILE_OPTIONS -fno-sanitize=thread)

# A sanitizer's report needs lines and inlined functions: -g1 has them, in half the time.
set(cusim_debug -g)
if(TANDEM_SANITIZE)
  set(cusim_debug -g1)
endif()
foreach(variant ${cusim_variants})
  add_library(tandem_cusim_${variant} STATIC ${cusim_engine} ${cusim_kernels})
  target_compile_features(tandem_cusim_${variant} PUBLIC cxx_std_17)
  target_include_directories(tandem_cusim_${variant} PUBLIC ${CMAKE_SOURCE_DIR})
  target_include_directories(tandem_cusim_${variant} SYSTEM PUBLIC ${TANDEM_CUDA_INCLUDE})
  string(TOUPPER ${variant} upper)
  target_compile_definitions(tandem_cusim_${variant} PUBLIC _GNU_SOURCE CUSIM_${upper})
  target_compile_options(tandem_cusim_${variant} PUBLIC -O1 ${cusim_debug} ${cusim_${variant}}
    -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wformat=2 -Wundef
    $<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes> $<$<COMPILE_LANGUAGE:CXX>:-fno-exceptions>
    $<$<BOOL:${TANDEM_WERROR}>:-Werror>)
  target_link_options(tandem_cusim_${variant} PUBLIC ${cusim_${variant}})
  target_link_libraries(tandem_cusim_${variant} PUBLIC Threads::Threads m)
  set_target_properties(tandem_cusim_${variant} PROPERTIES POSITION_INDEPENDENT_CODE ON)
endforeach()
set(TANDEM_CUSIM_BUILT ON)

# The plug-in's C sources on the simulator: as libraries for its own tests, tandem_cuda_VARIANT, and
# as a plug-in beside the programs, with a driver for it: both of the variant that the preset is.
if(NOT cusim_has_cublaslt)
  return()
endif()
include(${CMAKE_SOURCE_DIR}/kernels/cuda/sources.cmake)
if(cusim_has_nccl)
  list(APPEND cuda_c_sources ${cuda_nccl_sources})
endif()
foreach(variant ${cusim_variants})
  add_library(tandem_cuda_${variant} STATIC ${cuda_c_sources})
  target_compile_definitions(tandem_cuda_${variant} PRIVATE
    $<$<BOOL:${cusim_has_nccl}>:TANDEM_HAS_NCCL>)
  target_link_libraries(tandem_cuda_${variant} PUBLIC tandem_cusim_${variant})
  target_compile_options(tandem_cuda_${variant} PRIVATE -Wmissing-prototypes -Wvla)
  set_target_properties(tandem_cuda_${variant} PROPERTIES POSITION_INDEPENDENT_CODE ON)
endforeach()

list(GET cusim_variants 0 variant)
add_library(tandem_cuda_sim MODULE ${cuda_base_sources})
target_link_libraries(tandem_cuda_sim PRIVATE tandem_flags
  -Wl,--whole-archive tandem_cuda_${variant} tandem_cusim_${variant} -Wl,--no-whole-archive
  -Wl,--version-script=${CMAKE_SOURCE_DIR}/kernels/cusim/plugin.map)
set_target_properties(tandem_cuda_sim PROPERTIES LINKER_LANGUAGE CXX
  LIBRARY_OUTPUT_DIRECTORY ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}
  LINK_DEPENDS ${CMAKE_SOURCE_DIR}/kernels/cusim/plugin.map)
add_library(tandem_driver_sim MODULE ${CMAKE_SOURCE_DIR}/kernels/cusim/driver.c)
set_target_properties(tandem_driver_sim PROPERTIES
  LIBRARY_OUTPUT_DIRECTORY ${CMAKE_RUNTIME_OUTPUT_DIRECTORY})
add_dependencies(tandem_cuda_sim tandem_driver_sim)

# With this in its environment a program has simulated GPUs (CUSIM_DEVICES of them).
set(TANDEM_SIM_ENVIRONMENT
  TANDEM_CUDA_PLUGIN=${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/libtandem_cuda_sim.so
  TANDEM_CUDA_DRIVER=${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/libtandem_driver_sim.so)
