# The table of operations: host streams and devices, ref, cpu.
#
# What computes is compiled once a type, and in cpu once an instruction set: the sources name no
# type but `real` (kernels/host/variant/real.h), and each build of them is a variant of its own
# name.

tandem_box(host kernels/host tandem_base)

# tandem_variant(VARIANT DIR IS_F64 OPTIONS...): the .c files of DIR, and the table, as objects.
function(tandem_variant variant dir is_f64)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${dir}/*.c)
  add_library(tandem_${variant} OBJECT ${sources} kernels/host/variant/table.c)
  target_link_libraries(tandem_${variant} PRIVATE tandem_flags)
  target_compile_definitions(tandem_${variant} PRIVATE VARIANT=${variant} REAL_IS_F64=${is_f64})
  target_compile_options(tandem_${variant} PRIVATE ${ARGN})
endfunction()

# The truth must round as it is written: no contraction into fused multiply-adds.
set(ref_options -O2 -ffp-contract=off)
tandem_variant(ref_f32 kernels/ref 0 ${ref_options})
tandem_variant(ref_f64 kernels/ref 1 ${ref_options})
add_library(tandem_ref STATIC $<TARGET_OBJECTS:tandem_ref_f32> $<TARGET_OBJECTS:tandem_ref_f64>)
target_link_libraries(tandem_ref PUBLIC tandem_host)

# Sums may be reordered only where the source says so (omp simd), so that a NaN shows.
# Clang can't vectorise a maximum that must not assume NaNs away, and says so.
set(cpu_options -O3 -ffp-contract=fast -fno-math-errno -fno-trapping-math -fopenmp-simd
  $<$<C_COMPILER_ID:Clang>:-Wno-pass-failed>)
set(cpu_level_base "")
set(cpu_level_v3 -march=x86-64-v3)
set(cpu_level_v4 -march=x86-64-v4 -mprefer-vector-width=512)
set(cpu_levels base)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  list(APPEND cpu_levels v3 v4)
endif()
set(cpu_objects "")
foreach(level ${cpu_levels})
  foreach(is_f64 0 1)
    set(bits 32)
    if(is_f64)
      set(bits 64)
    endif()
    set(variant cpu_f${bits}_${level})
    tandem_variant(${variant} kernels/cpu/loops ${is_f64} ${cpu_options} ${cpu_level_${level}})
    list(APPEND cpu_objects $<TARGET_OBJECTS:tandem_${variant}>)
  endforeach()
endforeach()
add_library(tandem_cpu STATIC kernels/cpu/cpu.c kernels/cpu/peak.c ${cpu_objects})
target_compile_definitions(tandem_cpu PRIVATE
  TANDEM_CPU_LEVELS=$<IF:$<IN_LIST:v4,${cpu_levels}>,1,0>)
target_link_libraries(tandem_cpu PRIVATE tandem_flags PUBLIC tandem_host m)

tandem_box(kernels kernels tandem_ref tandem_cpu)
