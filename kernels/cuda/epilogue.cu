/* What a product leaves to do: one pass over C. Bytes a number: C's read, written where it changes,
 * and those of what is added and of what is written beside it. */
#include "kernels/cuda/gelu.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/vec.cuh"

#define NUM_THREADS 256
#define MAX_BLOCKS 2112 /* 16 for each multiprocessor of an H100 */

template <class C, class T> struct finish {
    int64_t m, n, ldc;
    C *c;
    float beta;
    const C *c0; /* NULL: not added */
    const T *bias;
    C *gelu;
    const C *gelu_of;
};

/* N numbers of a row that begin at i. */
template <class C, class T, int N>
static __device__ __forceinline__ void finish_at(const struct finish<C, T> &e, int64_t i,
                                                 const float (&bias)[N])
{
    float c[N];
    cu_load<C, N>(c, e.c + i);
    if (e.c0 != NULL) {
        float c0[N];
        cu_load<C, N>(c0, e.c0 + i);
#pragma unroll
        for (int j = 0; j < N; j++) {
            c[j] += e.beta * c0[j];
        }
    }
#pragma unroll
    for (int j = 0; j < N; j++) {
        c[j] += bias[j];
    }
    if (e.gelu_of != NULL) {
        float x[N];
        cu_load<C, N>(x, e.gelu_of + i);
#pragma unroll
        for (int j = 0; j < N; j++) {
            c[j] *= gelu_slope(x[j]);
        }
    }
    if (e.c0 != NULL || e.bias != NULL || e.gelu_of != NULL) {
        cu_store(e.c + i, c);
    }
    if (e.gelu != NULL) {
#pragma unroll
        for (int j = 0; j < N; j++) {
            c[j] = gelu_of(c[j]);
        }
        cu_store(e.gelu + i, c);
    }
}

/* A thread has N columns, whose biases it keeps, and rows in turns. */
template <class C, class T, int N>
static __global__ void __launch_bounds__(NUM_THREADS) epilogue_kernel(struct finish<C, T> e)
{
    int64_t column = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * N;
    if (column < e.n) {
        float bias[N] = {};
        if (e.bias != NULL) {
            cu_load<T, N>(bias, e.bias + column);
        }
        int64_t step = (int64_t)gridDim.y * blockDim.y;
        for (int64_t r = (int64_t)blockIdx.y * blockDim.y + threadIdx.y; r < e.m; r += step) {
            finish_at<C, T, N>(e, r * e.ldc + column, bias);
        }
    }
}

template <class C, class T, int N> static cudaError_t launch(cudaStream_t s, struct finish<C, T> e)
{
    int64_t across = (e.n + N - 1) / N;
    int64_t x = (across + CU_WARP - 1) / CU_WARP * CU_WARP;
    x = x < NUM_THREADS ? x : NUM_THREADS;
    int64_t y = NUM_THREADS / x;
    int64_t grid_x = (across + x - 1) / x;
    int64_t grid_y = (MAX_BLOCKS + grid_x - 1) / grid_x;
    grid_y = grid_y < (e.m + y - 1) / y ? grid_y : (e.m + y - 1) / y;
    CU_LAUNCH((epilogue_kernel<C, T, N>), dim3((unsigned)grid_x, (unsigned)grid_y),
              dim3((unsigned)x, (unsigned)y), 0, s, e);
    return cudaGetLastError();
}

template <class C, class T>
static cudaError_t epilogue(cudaStream_t s, const struct cuda_epilogue_args *a)
{
    constexpr int wide = per_16_bytes<C>::value;
    struct finish<C, T> e = {
        a->m, a->n, a->ldc, (C *)a->c, (float)a->beta, a->beta != 0 ? (const C *)a->c0 : NULL,
            (const T *)a->bias, (C *)a->gelu, (const C *)a->gelu_of
    };
    bool aligned = e.n % wide == 0 && e.ldc % wide == 0 && vec_aligned<C, wide>(e.c) &&
                   vec_aligned<C, wide>(e.c0) && vec_aligned<T, wide>(e.bias) &&
                   vec_aligned<C, wide>(e.gelu) && vec_aligned<C, wide>(e.gelu_of);
    return aligned ? launch<C, T, wide>(s, e) : launch<C, T, 1>(s, e);
}

extern "C" cudaError_t cuda_epilogue(cudaStream_t s, enum dtype t,
                                     const struct cuda_epilogue_args *a)
{
    bool both = a->gelu != NULL && a->gelu_of != NULL;
    if (a->m < 0 || a->n < 0 || a->n > INT32_MAX || a->ldc < a->n || both) {
        return cudaErrorInvalidValue;
    }
    if (a->m == 0 || a->n == 0) {
        return cudaSuccess;
    }
    if (t == DTYPE_F32 && a->c_type == DTYPE_F32) {
        return epilogue<float, float>(s, a);
    }
    if (t == DTYPE_BF16 && a->c_type == DTYPE_F32) {
        return epilogue<float, __nv_bfloat16>(s, a);
    }
    if (t == DTYPE_BF16 && a->c_type == DTYPE_BF16) {
        return epilogue<__nv_bfloat16, __nv_bfloat16>(s, a);
    }
    return cudaErrorInvalidValue;
}

extern "C" cudaError_t cuda_add_bias(cudaStream_t s, enum dtype t, void *y, const void *b,
                                     int64_t r, int64_t n)
{
    struct cuda_epilogue_args a = {r, n, n, y, t, 0, NULL, b, NULL, NULL};
    return cuda_epilogue(s, t, &a);
}
