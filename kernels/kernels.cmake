# The table of operations: host streams and devices, ref, cpu.
#
# What computes is compiled once a type, and in cpu once an instruction set: the sources name no
# type but `real` (kernels/host/real.h), and each build of them is a variant of its own name.

tandem_box(host kernels/host tandem_base)

# tandem_variant(VARIANT IS_F64 OPTIONS... ): the .c files of DIR as objects.
function(tandem_variant variant dir is_f64)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${dir}/*.c)
  add_library(tandem_${variant} OBJECT ${sources})
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

tandem_box(kernels kernels tandem_ref)
