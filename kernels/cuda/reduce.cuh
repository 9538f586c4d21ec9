/* Sums and maxima over a warp and a block, always in the same order. */
#ifndef TANDEM_KERNELS_CUDA_REDUCE_CUH
#define TANDEM_KERNELS_CUDA_REDUCE_CUH

#include "kernels/cuda/cu.h"

template <class T> static __device__ __forceinline__ T warp_sum(T x)
{
#pragma unroll
    for (int bit = CU_WARP / 2; bit > 0; bit /= 2) {
        x += __shfl_xor_sync(CU_ALL_LANES, x, bit);
    }
    return x;
}

/* Every thread gets it. All threads of the block come; blockDim.x is a multiple of 32. */
template <class T> static __device__ __forceinline__ T block_sum(T x)
{
    CU_SHARED(T, part, [CU_WARP]);
    int lane = (int)threadIdx.x % CU_WARP;
    int num_warps = (int)blockDim.x / CU_WARP;
    x = warp_sum(x);
    __syncthreads(); /* part may be read still by the call before */
    if (lane == 0) {
        part[threadIdx.x / CU_WARP] = x;
    }
    __syncthreads();
    return warp_sum(lane < num_warps ? part[lane] : T(0));
}

static __device__ __forceinline__ float warp_max(float x)
{
#pragma unroll
    for (int bit = CU_WARP / 2; bit > 0; bit /= 2) {
        x = fmaxf(x, __shfl_xor_sync(CU_ALL_LANES, x, bit));
    }
    return x;
}

/* As block_sum; NaNs count for nothing. */
static __device__ __forceinline__ float block_max(float x)
{
    CU_SHARED(float, part, [CU_WARP]);
    int lane = (int)threadIdx.x % CU_WARP;
    int num_warps = (int)blockDim.x / CU_WARP;
    x = warp_max(x);
    __syncthreads(); /* part may be read still by the call before */
    if (lane == 0) {
        part[threadIdx.x / CU_WARP] = x;
    }
    __syncthreads();
    return warp_max(lane < num_warps ? part[lane] : -INFINITY);
}

#endif
