# The table of operations: host streams and devices, ref, cpu.
#
# What computes is compiled once a type and instruction set: the sources name no type but `real`
# (kernels/host/variant/real.h), and each build of them is a variant of its own name.

tandem_box(host kernels/host tandem_base)

set(host_level_base "")
set(host_level_v3 -march=x86-64-v3)
set(host_level_v4 -march=x86-64-v4 -mprefer-vector-width=512)
set(host_levels base)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  list(APPEND host_levels v3 v4)
endif()

# tandem_variants(BACKEND DIR OPTIONS...): the .c files of DIR, and the table, as objects, once a
# type and level; BACKEND_objects lists them.
function(tandem_variants backend dir types)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${dir}/*.c)
  set(objects "")
  foreach(level ${host_levels})
    foreach(type ${types})
      set(variant ${backend}_${type}_${level})
      add_library(tandem_${variant} OBJECT ${sources} kernels/host/variant/table.c)
      target_link_libraries(tandem_${variant} PRIVATE tandem_flags)
      target_compile_definitions(tandem_${variant} PRIVATE VARIANT=${variant}
        REAL_IS_F64=$<STREQUAL:${type},f64> ELEM_IS_BF16=$<STREQUAL:${type},bf16>)
      # No fuzzer computes, and clang takes minutes for unrolled loops with its instrumentation.
      target_compile_options(tandem_${variant} PRIVATE ${ARGN} ${host_level_${level}}
        $<$<BOOL:${TANDEM_FUZZ}>:-fno-sanitize=all>)
      list(APPEND objects $<TARGET_OBJECTS:tandem_${variant}>)
    endforeach()
  endforeach()
  set(${backend}_objects ${objects} PARENT_SCOPE)
endfunction()

# The products' loops tell ThreadSanitizer of their operands themselves.
if(TANDEM_SANITIZE MATCHES "thread")
  set_source_files_properties(kernels/ref/gemm.c kernels/cpu/loops/multiply.c PROPERTIES
    COMPILE_OPTIONS "-fno-sanitize=thread;-DWATCH_BY_HAND")
elseif(TANDEM_SANITIZE MATCHES "address")
  # With -O3 gcc thinks about its checks for half a minute, for each type.
  set_source_files_properties(kernels/cpu/loops/multiply.c PROPERTIES COMPILE_OPTIONS -O1)
endif()

# The truth must round as it is written: no contraction into fused multiply-adds.
tandem_variants(ref kernels/ref "f32;f64;bf16" -O3 -ffp-contract=off)
add_library(tandem_ref STATIC ${ref_objects})
target_link_libraries(tandem_ref PUBLIC tandem_host m)

# Sums may be reordered only where the source says so (omp simd), so that a NaN shows. Clang can't
# vectorise a maximum that must not assume NaNs away, and says so.
tandem_variants(cpu kernels/cpu/loops "f32;f64;bf16"
  -O3 -ffp-contract=fast -fno-math-errno -fno-trapping-math -fopenmp-simd
  $<$<C_COMPILER_ID:Clang>:-Wno-pass-failed>)
add_library(tandem_cpu STATIC kernels/cpu/cpu.c kernels/cpu/peak.c ${cpu_objects})
target_link_libraries(tandem_cpu PRIVATE tandem_flags PUBLIC tandem_host m)

# dlopen finds the CUDA plug-in (kernels/plugin.h).
tandem_box(kernels kernels tandem_ref tandem_cpu ${CMAKE_DL_LIBS})
