/* Rows of logits for cross entropy: a block a row. A row may begin anywhere: the numbers in front
 * of its first 16 bytes, and those behind its last, are done one by one.
 *
 * Powers are of two and in float; what they sum up to in a thread is float, too, and the threads'
 * sums are added in double. */
#ifndef TANDEM_KERNELS_CUDA_LOGITS_CUH
#define TANDEM_KERNELS_CUDA_LOGITS_CUH

#include "kernels/cuda/cu.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/vec.cuh"

#define LOGITS_THREADS 512
#define LOGITS_LOG2E 1.44269504088896340736f
#define LOGITS_IGNORED (-100)

/* Of n numbers at p, read N at a time: how many come before the first such N. */
template <class T, int N>
static __device__ __forceinline__ int64_t logits_head(const T *p, int64_t n)
{
    int64_t head = N == 1 ? 0 : (int64_t)((0 - (uintptr_t)p) % 16 / sizeof(T));
    return head < n ? head : n;
}

/* f.at<N>(i) for groups of N numbers and f.at<1>(i) for what is left, by all threads. */
template <class T, int N, class F>
static __device__ __forceinline__ void logits_each(F &f, const T *x, int64_t n)
{
    int64_t head = logits_head<T, N>(x, n);
    int64_t end = head + (n - head) / N * N;
    if (N > 1 && threadIdx.x < head) {
        f.template at<1>(threadIdx.x);
    }
#pragma unroll 4
    for (int64_t i = head + (int64_t)threadIdx.x * N; i < end; i += LOGITS_THREADS * N) {
        f.template at<N>(i);
    }
    if (N > 1 && end + threadIdx.x < n) {
        f.template at<1>(end + threadIdx.x);
    }
}

/* What powers are taken of x minus: where there is no largest, nothing may become a NaN. */
static __device__ __forceinline__ float logits_base(float max)
{
    return max == -INFINITY ? 0.0f : max;
}

static __device__ __forceinline__ float logits_exp(float x)
{
    return exp2f(x * LOGITS_LOG2E);
}

/* The largest. */
template <class T> struct logits_max {
    const T *x;
    float max;
    template <int N> __device__ __forceinline__ void at(int64_t i)
    {
        float f[N];
        cu_load<T, N>(f, x + i);
#pragma unroll
        for (int j = 0; j < N; j++) {
            max = fmaxf(max, f[j]);
        }
    }
};

/* The sum of e^(x - base). */
template <class T> struct logits_sum {
    const T *x;
    float base, sum;
    template <int N> __device__ __forceinline__ void at(int64_t i)
    {
        float f[N];
        cu_load<T, N>(f, x + i);
#pragma unroll
        for (int j = 0; j < N; j++) {
            sum += logits_exp(f[j] - base);
        }
    }
};

/* Both in one pass: the sum is that of e^(x - max so far).
 * Source: Milakov & Gimelshein 2018, algorithm 3. */
template <class T> struct logits_online {
    const T *x;
    float max, sum;
    template <int N> __device__ __forceinline__ void at(int64_t i)
    {
        float f[N];
        cu_load<T, N>(f, x + i);
        float largest = f[0];
#pragma unroll
        for (int j = 1; j < N; j++) {
            largest = fmaxf(largest, f[j]);
        }
        if (largest > max) {
            sum *= logits_exp(max - largest);
            max = largest;
        }
        float base = logits_base(max);
#pragma unroll
        for (int j = 0; j < N; j++) {
            sum += logits_exp(f[j] - base);
        }
    }
};

/* dx = e^(x - base) * factor, less dloss at the target. */
template <class T> struct logits_gradient {
    T *dx;
    const T *x;
    int64_t target;
    float base, factor, dloss;
    template <int N> __device__ __forceinline__ void at(int64_t i) const
    {
        float f[N];
        cu_load<T, N>(f, x + i);
#pragma unroll
        for (int j = 0; j < N; j++) {
            f[j] = logits_exp(f[j] - base) * factor;
        }
        if (target >= i && target < i + N) {
#pragma unroll
            for (int j = 0; j < N; j++) {
                f[j] -= i + j == target ? dloss : 0.0f;
            }
        }
        cu_store(dx + i, f);
    }
};

template <class T> struct logits_zero {
    T *dx;
    template <int N> __device__ __forceinline__ void at(int64_t i) const
    {
        float zero[N] = {};
        cu_store(dx + i, zero);
    }
};

/* Host: do rows of both begin at the same place of 16 bytes? */
template <class T> static inline bool logits_fit(const T *dlogits, const T *logits)
{
    return dlogits == NULL || ((uintptr_t)dlogits - (uintptr_t)logits) % 16 == 0;
}

#endif
