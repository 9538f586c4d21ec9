/* The table of operations on a CUDA device: each entry checks what the caller passes and makes the
 * launches. */
#ifndef TANDEM_KERNELS_CUDA_FRONT_H
#define TANDEM_KERNELS_CUDA_FRONT_H

#include "kernels/kernels.h"

extern const struct kernels cuda_kernels;

#endif
