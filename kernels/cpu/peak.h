/* How fast this machine multiplies matrices: what a share of the peak refers to. */
#ifndef TANDEM_KERNELS_CPU_PEAK_H
#define TANDEM_KERNELS_CPU_PEAK_H

#include "kernels/tensor.h"

/* The best FLOP/s of one thread for a square matrix product of f32, f64 or bf16, measured now (about
 * 80 ms); 0 = no memory, or another type. */
double peak_flops(enum dtype t);

#endif
