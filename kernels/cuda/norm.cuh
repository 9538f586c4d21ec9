/* What RMS norm and layer norm share: a block a row, and how large it is. Backward passes: blocks
 * take rows in turns and keep their part of the parameters' gradients in shared memory, so that x
 * and dy are read once from memory and once from L1. */
#ifndef TANDEM_KERNELS_CUDA_NORM_CUH
#define TANDEM_KERNELS_CUDA_NORM_CUH

#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/cu.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/vec.cuh"

#define NORM_THREADS 256
/* Of a block's part; longer parts are collected in the workspace, where they end up anyway. */
#define NORM_SHARED_BYTES (96 * 1024)

/* Threads of a block for rows of d numbers, n at a time. */
static inline unsigned norm_threads(int64_t d, int n)
{
    int64_t threads = (d + n - 1) / n;
    threads = (threads + CU_WARP - 1) / CU_WARP * CU_WARP;
    return (unsigned)(threads < NORM_THREADS ? threads : NORM_THREADS);
}

static inline bool norm_sizes_fit(enum dtype t, int64_t r, int64_t d)
{
    return r >= 0 && r <= INT32_MAX && d >= 0 && d <= INT32_MAX - NORM_THREADS * 16 &&
           (t == DTYPE_F32 || t == DTYPE_BF16);
}

#endif
