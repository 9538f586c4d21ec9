/* What is done to each number by itself: f.at<N>(i) reads numbers i..i+N-1 of its operands and then
 * writes them, so outputs may be inputs. N make 16 bytes of the smallest type; 1 where an operand
 * isn't aligned, and for what is left over at the end. */
#ifndef TANDEM_KERNELS_CUDA_EACH_CUH
#define TANDEM_KERNELS_CUDA_EACH_CUH

#include "kernels/cuda/cu.h"

#define EACH_THREADS 256
#define EACH_MAX_BLOCKS 2112 /* 16 for each multiprocessor of an H100 */

template <int N, class F>
static __global__ void __launch_bounds__(EACH_THREADS) each_kernel(F f, int64_t n)
{
    int64_t me = (int64_t)blockIdx.x * EACH_THREADS + threadIdx.x;
    int64_t step = (int64_t)gridDim.x * EACH_THREADS;
    int64_t num = n / N;
    for (int64_t i = me; i < num; i += step) {
        f.template at<N>(i * N);
    }
    if (N > 1 && me < n - num * N) {
        f.template at<1>(num * N + me);
    }
}

template <int N, class F> static cudaError_t each(cudaStream_t s, F f, int64_t n, bool aligned)
{
    if (n <= 0) {
        return n == 0 ? cudaSuccess : cudaErrorInvalidValue;
    }
    int64_t per_block = (int64_t)EACH_THREADS * (aligned ? N : 1);
    int64_t num_blocks = (n + per_block - 1) / per_block;
    dim3 grid((unsigned)(num_blocks < EACH_MAX_BLOCKS ? num_blocks : EACH_MAX_BLOCKS));
    if (N > 1 && aligned) {
        CU_LAUNCH((each_kernel<N, F>), grid, dim3(EACH_THREADS), 0, s, f, n);
    } else {
        CU_LAUNCH((each_kernel<1, F>), grid, dim3(EACH_THREADS), 0, s, f, n);
    }
    return cudaGetLastError();
}

#endif
