/* What RMS norm and layer norm share. Forward: a block a row. Backward: blocks of as many rows as
 * have room in NORM_THREADS threads, each of which holds up to K * 16 bytes of a row's x and dy and
 * the gradients of its parameters in registers; what is read is read once. Rows that are too long
 * for that, or not aligned, are a block's; it keeps its gradients in shared memory. */
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

/* Threads of a row of which each takes k times n numbers: a power of two of warps; 0 = too long. */
static inline int norm_per_row(int64_t d, int n, int k)
{
    int threads = CU_WARP;
    while (threads <= NORM_THREADS && (int64_t)threads * n * k < d) {
        threads *= 2;
    }
    return threads <= NORM_THREADS ? threads : 0;
}

/* How often such a thread takes n numbers. */
static inline int norm_times(int64_t d, int n, int per_row)
{
    return (int)((d + (int64_t)per_row * n - 1) / ((int64_t)per_row * n));
}

/* Blocks that a multiprocessor has room for where a thread holds k times 16 bytes. */
#define NORM_RESIDENT(k) ((k) < 4 ? 3 : 2)

/* Blocks for r rows of so many threads each: no more than run at once. */
static inline int64_t norm_blocks(int64_t r, int per_row, int k)
{
    int64_t rows = NORM_THREADS / per_row;
    int64_t most = (int64_t)WORKSPACE_NORM_PARTS / 3 * NORM_RESIDENT(k);
    return (r + rows - 1) / rows < most ? (r + rows - 1) / rows : most;
}

#define NORM_WARPS (NORM_THREADS / CU_WARP)

/* Sums over the threads of a row, for all of them. Two calls in turn have two parities of `part`,
 * so that one barrier is enough. */
template <int M>
static __device__ __forceinline__ void row_sum(float (&x)[M], float (*part)[NORM_WARPS][M],
                                               int parity, int per_row)
{
    int warp = (int)threadIdx.x / CU_WARP;
#pragma unroll
    for (int m = 0; m < M; m++) {
        x[m] = warp_sum(x[m]);
    }
    if (per_row > CU_WARP) { /* so for all of the block */
        int num = per_row / CU_WARP;
        int first = warp / num * num;
        if (threadIdx.x % CU_WARP == 0) {
#pragma unroll
            for (int m = 0; m < M; m++) {
                part[parity][warp][m] = x[m];
            }
        }
        __syncthreads();
#pragma unroll
        for (int m = 0; m < M; m++) {
            x[m] = 0;
            for (int i = first; i < first + num; i++) {
                x[m] += part[parity][i][m];
            }
        }
    }
}

/* to [D] = the sum of what the block's rows hold, added in the order of the rows. */
template <int K, int N>
static __device__ __forceinline__ void rows_add(float *to, float *shared, float (&sum)[K][N], int d,
                                                int per_row)
{
    int lane = (int)threadIdx.x % per_row;
    int row = (int)threadIdx.x / per_row;
    int num = NORM_THREADS / per_row;
    for (int turn = 0; turn < num; turn++) {
        __syncthreads();
#pragma unroll
        for (int k = 0; k < K; k++) {
            int i = (k * per_row + lane) * N;
            if (row == turn && i < d) {
                if (turn > 0) {
                    float before[N];
                    cu_load<float, N>(before, shared + i);
#pragma unroll
                    for (int j = 0; j < N; j++) {
                        sum[k][j] += before[j];
                    }
                }
                cu_store(turn + 1 < num ? shared + i : to + i, sum[k]);
            }
        }
    }
}

/* A thread's numbers of a row: zeros where it has none. */
template <class T, int K>
static __device__ __forceinline__ void row_hold(struct vec_held<T> (&held)[K], const T *row, int d,
                                                int per_row)
{
    constexpr int N = per_16_bytes<T>::value;
    int lane = (int)threadIdx.x % per_row;
#pragma unroll
    for (int k = 0; k < K; k++) {
        int i = (k * per_row + lane) * N;
        held[k] = i < d ? vec_hold(row + i) : vec_held<T>{};
    }
}

static inline bool norm_sizes_fit(enum dtype t, int64_t r, int64_t d)
{
    return r >= 0 && r <= INT32_MAX && d >= 0 && d <= INT32_MAX - NORM_THREADS * 16 &&
           (t == DTYPE_F32 || t == DTYPE_BF16);
}

#endif
