/* The sum of squares in double: each block sums a fixed set of groups of four numbers, one block
 * sums the blocks. The groups count from x[0], wherever that lies, so the order is always the same.
 */
#include "kernels/cuda/cu.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/vec.cuh"

#define NUM_THREADS 256
#define GROUP 4
#define MAX_PARTS CUDA_SUM_SQUARES_PARTS

/* wide: groups can be loaded at once. */
template <class T>
static __global__ void __launch_bounds__(NUM_THREADS)
    sum_squares_kernel(double *__restrict__ parts, const T *__restrict__ x, int64_t n, bool wide)
{
    double sum = 0;
    int64_t num_groups = (n + GROUP - 1) / GROUP;
    int64_t step = (int64_t)gridDim.x * NUM_THREADS;
    for (int64_t g = (int64_t)blockIdx.x * NUM_THREADS + threadIdx.x; g < num_groups; g += step) {
        const T *p = x + g * GROUP;
        vec<T, GROUP> v;
        if (wide && g * GROUP + GROUP <= n) {
            v = vec_load<T, GROUP>(p);
        } else {
#pragma unroll
            for (int j = 0; j < GROUP; j++) {
                cu_set(&v.v[j], g * GROUP + j < n ? cu_float(p[j]) : 0.0f);
            }
        }
#pragma unroll
        for (int j = 0; j < GROUP; j++) {
            double f = (double)cu_float(v.v[j]);
            sum += f * f;
        }
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) {
        parts[blockIdx.x] = sum;
    }
}

static __global__ void __launch_bounds__(NUM_THREADS)
    sum_parts_kernel(double *__restrict__ out, const double *__restrict__ parts, int num_parts)
{
    double sum = 0;
    for (int i = (int)threadIdx.x; i < num_parts; i += NUM_THREADS) {
        sum += parts[i];
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) {
        *out = sum;
    }
}

template <class T>
static cudaError_t launch(cudaStream_t s, double *out, const T *x, int64_t n, double *parts)
{
    int64_t per_block = (int64_t)NUM_THREADS * GROUP;
    int64_t num_blocks = (n + per_block - 1) / per_block;
    int num_parts = (int)(num_blocks < MAX_PARTS ? num_blocks : MAX_PARTS);
    bool wide = (uintptr_t)x % sizeof(vec<T, GROUP>) == 0;
    if (num_parts > 0) {
        CU_LAUNCH(sum_squares_kernel<T>, dim3((unsigned)num_parts), dim3(NUM_THREADS), 0, s, parts,
                  x, n, wide);
    }
    CU_LAUNCH(sum_parts_kernel, dim3(1), dim3(NUM_THREADS), 0, s, out, parts, num_parts);
    return cudaGetLastError();
}

extern "C" cudaError_t cuda_sum_squares(cudaStream_t s, enum dtype t, double *out, const void *x,
                                        int64_t n, void *workspace)
{
    double *parts = (double *)workspace;
    if (n < 0 || (t != DTYPE_F32 && t != DTYPE_BF16)) {
        return cudaErrorInvalidValue;
    }
    return t == DTYPE_F32 ? launch(s, out, (const float *)x, n, parts)
                          : launch(s, out, (const __nv_bfloat16 *)x, n, parts);
}
