/* The sum of squares over spans, in double: blocks take chunks in turns, as the spans have them,
 * and one block sums the blocks. Groups count from a span's first number, wherever that lies, so
 * the order is always the same.
 *
 * Bytes a number: its type's. Doubles are no bound: each number costs a conversion and a
 * multiply-add, 16 and 64 a clock and multiprocessor of an H100, which is 3.6e12 conversions a
 * second where memory brings 1.1e12 floats. */
#include "kernels/cuda/chunks.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/vec.cuh"

#define NUM_THREADS 256
#define MAX_SPANS WORKSPACE_SQUARES_SPANS
#define MAX_PARTS WORKSPACE_SQUARES_PARTS

/* As many as a kernel's arguments have room for. first[i]: chunks of the spans before. */
struct span_list {
    struct span spans[MAX_SPANS];
    int32_t first[MAX_SPANS + 1];
    int32_t num;

    __device__ __forceinline__ int first_chunk(int i) const
    {
        return first[i];
    }
};

template <class T, int N>
static __device__ __forceinline__ void add_squares(double (&sum)[4], const float (&f)[N])
{
#pragma unroll
    for (int j = 0; j < N; j++) {
        sum[j % 4] += (double)f[j] * (double)f[j];
    }
}

/* Numbers x[0..n) of a chunk, in groups of 16 bytes' numbers. */
template <class T>
static __device__ __forceinline__ void add_chunk(double (&sum)[4], const T *x, int n)
{
    constexpr int N = per_16_bytes<T>::value;
    int full = n / N;
    if ((uintptr_t)x % 16 == 0) {
#pragma unroll 4
        for (int g = (int)threadIdx.x; g < full; g += NUM_THREADS) {
            float f[N];
            cu_load<T, N>(f, x + g * N);
            add_squares<T, N>(sum, f);
        }
    } else {
        for (int g = (int)threadIdx.x; g < full; g += NUM_THREADS) {
            float f[N];
#pragma unroll
            for (int j = 0; j < N; j++) {
                f[j] = cu_float(x[g * N + j]);
            }
            add_squares<T, N>(sum, f);
        }
    }
    if (full % NUM_THREADS == (int)threadIdx.x) { /* whose turn the last group is */
        for (int i = full * N; i < n; i++) {
            float f[1] = {cu_float(x[i])};
            add_squares<T, 1>(sum, f);
        }
    }
}

template <class T>
static __global__ void __launch_bounds__(NUM_THREADS)
    sum_squares_kernel(double *__restrict__ parts, const T *__restrict__ x, struct span_list list)
{
    double sum[4] = {};
    for (int chunk = (int)blockIdx.x; chunk < list.first[list.num]; chunk += (int)gridDim.x) {
        int i = chunk_owner(list, chunk);
        int64_t from = (int64_t)(chunk - list.first[i]) * CHUNK;
        int64_t left = list.spans[i].n - from;
        add_chunk<T>(sum, x + list.spans[i].at + from, (int)(left < CHUNK ? left : CHUNK));
    }
    double all = block_sum((sum[0] + sum[1]) + (sum[2] + sum[3]));
    if (threadIdx.x == 0) {
        parts[blockIdx.x] = all;
    }
}

/* *out = the sum of x[n], by one block. */
static __global__ void __launch_bounds__(NUM_THREADS)
    sum_kernel(double *__restrict__ out, const double *__restrict__ x, int64_t n)
{
    double sum = 0;
#pragma unroll 8
    for (int64_t i = threadIdx.x; i < n; i += NUM_THREADS) {
        sum += x[i];
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) {
        *out = sum;
    }
}

/* Takes spans until the list is full; returns how many, or -1. */
static int32_t list_fill(struct span_list *list, const struct span *spans, int32_t num)
{
    int32_t i = 0;
    int64_t chunks = 0;
    for (; i < num && i < MAX_SPANS; i++) {
        if (spans[i].at < 0 || spans[i].n < 0) {
            return -1;
        }
        list->spans[i] = spans[i];
        list->first[i] = (int32_t)chunks;
        chunks += chunks_of(spans[i].n);
        if (chunks > INT32_MAX - MAX_PARTS) {
            return -1;
        }
    }
    list->first[i] = (int32_t)chunks;
    list->num = i;
    return i;
}

template <class T>
static cudaError_t launch(cudaStream_t s, double *out, const T *x, const struct span *spans,
                          int32_t num_spans, double *parts)
{
    int64_t num_parts = 0;
    for (int32_t done = 0; done < num_spans;) {
        struct span_list list;
        int32_t taken = list_fill(&list, spans + done, num_spans - done);
        if (taken < 0) {
            return cudaErrorInvalidValue;
        }
        int32_t chunks = list.first[list.num];
        int32_t blocks = chunks < MAX_PARTS ? chunks : MAX_PARTS;
        if (blocks > 0) {
            CU_LAUNCH(sum_squares_kernel<T>, dim3((unsigned)blocks), dim3(NUM_THREADS), 0, s,
                      parts + num_parts, x, list);
        }
        num_parts += blocks;
        done += taken;
    }
    CU_LAUNCH(sum_kernel, dim3(1), dim3(NUM_THREADS), 0, s, out, parts, num_parts);
    return cudaGetLastError();
}

extern "C" cudaError_t cuda_sum_squares(cudaStream_t s, enum dtype t, double *out, const void *x,
                                        const struct span *spans, int32_t num_spans,
                                        void *workspace)
{
    double *parts = (double *)workspace;
    if (num_spans < 0 || (t != DTYPE_F32 && t != DTYPE_BF16)) {
        return cudaErrorInvalidValue;
    }
    return t == DTYPE_F32 ? launch(s, out, (const float *)x, spans, num_spans, parts)
                          : launch(s, out, (const __nv_bfloat16 *)x, spans, num_spans, parts);
}

extern "C" cudaError_t cuda_sum_double(cudaStream_t s, double *out, const double *x, int64_t n)
{
    if (n < 0) {
        return cudaErrorInvalidValue;
    }
    CU_LAUNCH(sum_kernel, dim3(1), dim3(NUM_THREADS), 0, s, out, x, n);
    return cudaGetLastError();
}
