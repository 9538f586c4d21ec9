# What both plug-ins are made of, the real one and its simulated twin, besides the kernels (*.cu).
# Beside what is its own: what it uses of ours, built for a shared library.

file(GLOB cuda_c_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/kernels/cuda/*.c)
# With nccl.h only, and with TANDEM_HAS_NCCL defined for plugin.c.
file(GLOB cuda_nccl_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/runtime/comm/comm_nccl*.c)
file(GLOB cuda_base_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/base/*.c)
