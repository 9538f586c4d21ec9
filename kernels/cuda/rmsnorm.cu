/* RMS norm: a block a row forward; backward blocks take rows in turns and keep their part of the
 * weight's gradient in shared memory, so that x and dy are read once from memory and once from L1.
 * Source: Zhang & Sennrich 2019, eq. 4. */
#include "kernels/cuda/cu.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/vec.cuh"

#define NUM_THREADS 256
/* Blocks of the backward pass: two for each multiprocessor of an H100. */
#define MAX_PARTS 264
/* Longer parts lie in the workspace; see cuda_rmsnorm_bwd. */
#define MAX_SHARED_COLUMNS (96 * 1024 / (int)sizeof(float))
/* column_sum_kernel's block. */
#define SUM_COLUMNS 32
#define SUM_ROWS 8

/* y may alias x: each thread writes what it alone has read. */
template <class T, int N>
static __global__ void __launch_bounds__(NUM_THREADS)
    rmsnorm_fwd_kernel(T *y, float *__restrict__ rstd, const T *x, const T *__restrict__ w, int d,
                       float eps)
{
    const T *row = x + (int64_t)blockIdx.x * d;
    T *out = y + (int64_t)blockIdx.x * d;
    float squares = 0;
    for (int i = (int)threadIdx.x * N; i < d; i += NUM_THREADS * N) {
        vec<T, N> v = vec_load<T, N>(row + i);
#pragma unroll
        for (int j = 0; j < N; j++) {
            float f = cu_float(v.v[j]);
            squares += f * f;
        }
    }
    float inv = rsqrtf(block_sum(squares) / (float)d + eps);
    if (threadIdx.x == 0) {
        rstd[blockIdx.x] = inv;
    }
    for (int i = (int)threadIdx.x * N; i < d; i += NUM_THREADS * N) {
        vec<T, N> v = vec_load<T, N>(row + i);
        vec<T, N> scale = vec_load<T, N>(w + i);
#pragma unroll
        for (int j = 0; j < N; j++) {
            cu_set(&v.v[j], cu_float(v.v[j]) * inv * cu_float(scale.v[j]));
        }
        vec_store<T, N>(out + i, v);
    }
}

/* One row: dot of dy * w with x, and this row's share of dw. */
template <class T, int N>
static __device__ __forceinline__ float row_dot(float *part, const T *x, const T *dy,
                                                const T *__restrict__ w, float inv, int d)
{
    float dot = 0;
    for (int i = (int)threadIdx.x * N; i < d; i += NUM_THREADS * N) {
        vec<T, N> vx = vec_load<T, N>(x + i);
        vec<T, N> vg = vec_load<T, N>(dy + i);
        vec<T, N> vw = vec_load<T, N>(w + i);
#pragma unroll
        for (int j = 0; j < N; j++) {
            float gx = cu_float(vg.v[j]) * cu_float(vx.v[j]);
            part[i + j] += gx * inv;
            dot += gx * cu_float(vw.v[j]);
        }
    }
    return dot;
}

/* dx may alias dy: each thread writes what it alone has read, in row_dot and here. */
template <class T, int N>
static __device__ __forceinline__ void row_gradient(T *dx, const T *x, const T *dy,
                                                    const T *__restrict__ w, float inv, float pull,
                                                    int d, bool accumulate)
{
    for (int i = (int)threadIdx.x * N; i < d; i += NUM_THREADS * N) {
        vec<T, N> vx = vec_load<T, N>(x + i);
        vec<T, N> vg = vec_load<T, N>(dy + i);
        vec<T, N> vw = vec_load<T, N>(w + i);
        vec<T, N> out = accumulate ? vec_load<T, N>(dx + i) : vec<T, N>{};
#pragma unroll
        for (int j = 0; j < N; j++) {
            float g = inv * cu_float(vg.v[j]) * cu_float(vw.v[j]) - pull * cu_float(vx.v[j]);
            cu_set(&out.v[j], accumulate ? cu_float(out.v[j]) + g : g);
        }
        vec_store<T, N>(dx + i, out);
    }
}

/* parts [gridDim.x, D]: of each block, dw over its rows. in_shared: they are collected in dynamic
 * shared memory of D floats. Thread i alone adds to its columns, so no barrier is needed there. */
template <class T, int N>
static __global__ void __launch_bounds__(NUM_THREADS)
    rmsnorm_bwd_kernel(T *dx, float *__restrict__ parts, const T *dy, const T *__restrict__ x,
                       const T *__restrict__ w, const float *__restrict__ rstd, int64_t r, int d,
                       bool accumulate, bool in_shared)
{
    float *mine = parts + (int64_t)blockIdx.x * d;
    float *part = mine;
    if (in_shared) {
        CU_DYN_SHARED(float, shared);
        part = shared;
    }
    for (int i = (int)threadIdx.x * N; i < d; i += NUM_THREADS * N) {
#pragma unroll
        for (int j = 0; j < N; j++) {
            part[i + j] = 0;
        }
    }
    for (int64_t row = blockIdx.x; row < r; row += gridDim.x) {
        float inv = rstd[row];
        float dot = block_sum(row_dot<T, N>(part, x + row * d, dy + row * d, w, inv, d));
        float pull = inv * inv * inv * dot / (float)d;
        row_gradient<T, N>(dx + row * d, x + row * d, dy + row * d, w, inv, pull, d, accumulate);
    }
    for (int i = (int)threadIdx.x * N; in_shared && i < d; i += NUM_THREADS * N) {
#pragma unroll
        for (int j = 0; j < N; j++) {
            mine[i + j] = part[i + j];
        }
    }
}

/* out [D] += the sum of the rows of parts [num_parts, D]. */
static __global__ void __launch_bounds__(SUM_COLUMNS *SUM_ROWS)
    column_sum_kernel(float *__restrict__ out, const float *__restrict__ parts, int num_parts,
                      int d)
{
    CU_SHARED(float, sums, [SUM_ROWS][SUM_COLUMNS]);
    int column = (int)(blockIdx.x * SUM_COLUMNS + threadIdx.x);
    float sum = 0;
    for (int p = (int)threadIdx.y; p < num_parts && column < d; p += SUM_ROWS) {
        sum += parts[(int64_t)p * d + column];
    }
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y == 0 && column < d) {
        for (int i = 1; i < SUM_ROWS; i++) {
            sum += sums[i][threadIdx.x];
        }
        out[column] += sum;
    }
}

template <class T>
static cudaError_t forward(cudaStream_t s, T *y, float *rstd, const T *x, const T *w, int64_t r,
                           int64_t d, double eps)
{
    constexpr int wide = per_16_bytes<T>::value;
    bool fits = vec_fits(y, d) && vec_fits(x, d) && vec_fits(w, d);
    auto kernel = fits ? rmsnorm_fwd_kernel<T, wide> : rmsnorm_fwd_kernel<T, 1>;
    CU_LAUNCH(kernel, dim3((unsigned)r), dim3(NUM_THREADS), 0, s, y, rstd, x, w, (int)d,
              (float)eps);
    return cudaGetLastError();
}

static int num_parts(int64_t r)
{
    return r < MAX_PARTS ? (int)r : MAX_PARTS;
}

template <class T>
static cudaError_t backward(cudaStream_t s, T *dx, float *dw, const T *dy, const T *x, const T *w,
                            const float *rstd, int64_t r, int64_t d, bool accumulate, float *parts)
{
    constexpr int wide = per_16_bytes<T>::value;
    bool fits = vec_fits(dx, d) && vec_fits(dy, d) && vec_fits(x, d) && vec_fits(w, d);
    auto kernel = fits ? rmsnorm_bwd_kernel<T, wide> : rmsnorm_bwd_kernel<T, 1>;
    bool in_shared = d <= MAX_SHARED_COLUMNS;
    size_t bytes = in_shared ? (size_t)d * sizeof(float) : 0;
    cudaError_t e =
        cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             MAX_SHARED_COLUMNS * (int)sizeof(float));
    if (e != cudaSuccess) {
        return e;
    }
    CU_LAUNCH(kernel, dim3((unsigned)num_parts(r)), dim3(NUM_THREADS), bytes, s, dx, parts, dy, x,
              w, rstd, r, (int)d, accumulate, in_shared);
    CU_LAUNCH(column_sum_kernel, dim3((unsigned)((d + SUM_COLUMNS - 1) / SUM_COLUMNS)),
              dim3(SUM_COLUMNS, SUM_ROWS), 0, s, dw, parts, num_parts(r), (int)d);
    return cudaGetLastError();
}

static bool sizes_fit(int64_t r, int64_t d)
{
    return r >= 0 && r <= INT32_MAX && d >= 0 && d <= INT32_MAX - NUM_THREADS * 16;
}

extern "C" cudaError_t cuda_rmsnorm_fwd(cudaStream_t s, enum dtype t, void *y, float *rstd,
                                        const void *x, const void *w, int64_t r, int64_t d,
                                        double eps)
{
    if (!sizes_fit(r, d) || (t != DTYPE_F32 && t != DTYPE_BF16)) {
        return cudaErrorInvalidValue;
    }
    if (r == 0 || d == 0) {
        return cudaSuccess;
    }
    if (t == DTYPE_F32) {
        return forward(s, (float *)y, rstd, (const float *)x, (const float *)w, r, d, eps);
    }
    return forward(s, (__nv_bfloat16 *)y, rstd, (const __nv_bfloat16 *)x, (const __nv_bfloat16 *)w,
                   r, d, eps);
}

extern "C" cudaError_t cuda_rmsnorm_bwd(cudaStream_t s, enum dtype t, void *dx, float *dw,
                                        const void *dy, const void *x, const void *w,
                                        const float *rstd, int64_t r, int64_t d, bool accumulate,
                                        void *workspace)
{
    if (!sizes_fit(r, d) || (t != DTYPE_F32 && t != DTYPE_BF16)) {
        return cudaErrorInvalidValue;
    }
    if (r == 0 || d == 0) {
        return cudaSuccess;
    }
    float *parts = (float *)workspace;
    if (t == DTYPE_F32) {
        return backward(s, (float *)dx, dw, (const float *)dy, (const float *)x, (const float *)w,
                        rstd, r, d, accumulate, parts);
    }
    return backward(s, (__nv_bfloat16 *)dx, dw, (const __nv_bfloat16 *)dy, (const __nv_bfloat16 *)x,
                    (const __nv_bfloat16 *)w, rstd, r, d, accumulate, parts);
}

extern "C" size_t cuda_rmsnorm_bwd_workspace(int64_t r, int64_t d)
{
    return (size_t)num_parts(r) * (size_t)d * sizeof(float);
}
