/* Sums over the rows of a matrix, in two stages, always in the same order: blocks sum rows in turns
 * into a part each, then out [N] += the sum of parts [num_parts, N]. */
#ifndef TANDEM_KERNELS_CUDA_COLUMNS_CUH
#define TANDEM_KERNELS_CUDA_COLUMNS_CUH

#include "kernels/cuda/cu.h"
#include "kernels/cuda/vec.cuh"

#define COLUMNS_X 32
#define COLUMNS_Y 8

/* Where sums of columns go: the first `half` to out, those behind to more. */
struct columns_out {
    float *out, *more;
    int64_t half;
};

/* A thread has N columns and every num_parts * COLUMNS_Y-th row. Block (x, p) writes part p; with
 * add, the only part is added to what is there. Grid: columns / (COLUMNS_X * N), parts. */
template <class T, int N>
static __global__ void __launch_bounds__(COLUMNS_X *COLUMNS_Y)
    columns_kernel(struct columns_out o, const T *__restrict__ x, int64_t r, int64_t n, bool add)
{
    CU_SHARED(float, sums, [COLUMNS_Y][COLUMNS_X * N]);
    int lane = (int)threadIdx.x;
    int64_t first = ((int64_t)blockIdx.x * COLUMNS_X + lane) * N;
    float sum[N] = {};
    int64_t step = (int64_t)gridDim.y * COLUMNS_Y;
    if (first < n) {
#pragma unroll 4
        for (int64_t i = (int64_t)blockIdx.y * COLUMNS_Y + threadIdx.y; i < r; i += step) {
            float f[N];
            cu_load<T, N>(f, x + i * n + first);
#pragma unroll
            for (int j = 0; j < N; j++) {
                sum[j] += f[j];
            }
        }
    }
#pragma unroll
    for (int j = 0; j < N; j++) {
        sums[threadIdx.y][j * COLUMNS_X + lane] = sum[j];
    }
    __syncthreads();
    if (threadIdx.y == 0 && first < n) {
        float *to = first < o.half ? o.out + first : o.more + (first - o.half);
        to += add ? 0 : (int64_t)blockIdx.y * n;
#pragma unroll
        for (int j = 0; j < N; j++) {
#pragma unroll
            for (int i = 1; i < COLUMNS_Y; i++) {
                sum[j] += sums[i][j * COLUMNS_X + lane];
            }
            to[j] = add ? to[j] + sum[j] : sum[j];
        }
    }
}

/* += the sum of the rows of x [R,N], in one launch. */
static void columns_add(cudaStream_t s, struct columns_out o, const float *x, int64_t r, int64_t n)
{
    dim3 grid((unsigned)((n + COLUMNS_X - 1) / COLUMNS_X));
    CU_LAUNCH((columns_kernel<float, 1>), grid, dim3(COLUMNS_X, COLUMNS_Y), 0, s, o, x, r, n, true);
}

#endif
