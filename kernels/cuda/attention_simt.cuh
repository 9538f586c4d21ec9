/* Attention by single products, for what tensor cores aren't for: fp32 (which is to be fp32, not
 * TF32), narrow, wide and odd heads. Tiles of 32 rows as floats in shared memory; rows are an odd
 * number of words apart, so that neighbouring rows lie in different banks.
 *
 * A block has 8 x 16 threads. Of a 32 x 32 tile of scores, thread (y, x) has the rows y, y + 8, ..
 * and the columns x and x + 16; of a sum of 32 rows of width E, the same rows and every 16th
 * column. */
#ifndef TANDEM_KERNELS_CUDA_ATTENTION_SIMT_CUH
#define TANDEM_KERNELS_CUDA_ATTENTION_SIMT_CUH

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/vec.cuh"

#define SIMT_X 16
#define SIMT_Y 8
#define SIMT_THREADS (SIMT_X * SIMT_Y)
#define SIMT_TILE 32
#define SIMT_ROWS (SIMT_TILE / SIMT_Y)
#define SIMT_COLUMNS (SIMT_TILE / SIMT_X)
/* Of a tile of scores in shared memory. */
#define SIMT_STRIDE (SIMT_TILE + 1)

static_assert(ATTENTION_TILE % SIMT_TILE == 0, "a tile has one range of segments");

static __host__ __device__ __forceinline__ int simt_stride(int e)
{
    return e | 1;
}

/* Rows first..first+31 of a head, as floats; zeros behind the last. */
template <class T>
static __device__ __forceinline__ void simt_fetch(float *tile, const T *src, int stride, int num,
                                                  int e)
{
#pragma unroll 2
    for (int i = (int)threadIdx.x; i < SIMT_TILE * e; i += SIMT_THREADS) {
        int row = i / e;
        int column = i % e;
        tile[row * simt_stride(e) + column] =
            row < num ? cu_float(src[row * stride + column]) : 0.0f;
    }
}

/* scores = rows of x * rows of y. */
static __device__ __forceinline__ void simt_scores(float (&scores)[SIMT_ROWS][SIMT_COLUMNS],
                                                   const float *x, const float *y, int e)
{
    int tx = (int)threadIdx.x % SIMT_X;
    int ty = (int)threadIdx.x / SIMT_X;
    int stride = simt_stride(e);
#pragma unroll
    for (int r = 0; r < SIMT_ROWS; r++) {
#pragma unroll
        for (int c = 0; c < SIMT_COLUMNS; c++) {
            scores[r][c] = 0;
        }
    }
#pragma unroll 2
    for (int i = 0; i < e; i++) {
        float a[SIMT_ROWS], b[SIMT_COLUMNS];
#pragma unroll
        for (int r = 0; r < SIMT_ROWS; r++) {
            a[r] = x[(ty + r * SIMT_Y) * stride + i];
        }
#pragma unroll
        for (int c = 0; c < SIMT_COLUMNS; c++) {
            b[c] = y[(tx + c * SIMT_X) * stride + i];
        }
#pragma unroll
        for (int r = 0; r < SIMT_ROWS; r++) {
#pragma unroll
            for (int c = 0; c < SIMT_COLUMNS; c++) {
                scores[r][c] += a[r] * b[c];
            }
        }
    }
}

/* sums[r][c] += sum over i of weight(row r, i) * tile[i][column c]. The weights of a tile of scores
 * lie at [row * row_step + i * step]. */
template <int C>
static __device__ __forceinline__ void simt_add(float (&sums)[SIMT_ROWS][C], const float *weights,
                                                int row_step, int step, const float *tile, int e)
{
    int tx = (int)threadIdx.x % SIMT_X;
    int ty = (int)threadIdx.x / SIMT_X;
    int stride = simt_stride(e);
#pragma unroll(C > 8 ? 1 : 4)
    for (int i = 0; i < SIMT_TILE; i++) {
        float w[SIMT_ROWS];
#pragma unroll
        for (int r = 0; r < SIMT_ROWS; r++) {
            w[r] = weights[(ty + r * SIMT_Y) * row_step + i * step];
        }
#pragma unroll
        for (int c = 0; c < C; c++) {
            int column = tx + c * SIMT_X;
            float x = column < e ? tile[i * stride + column] : 0.0f;
#pragma unroll
            for (int r = 0; r < SIMT_ROWS; r++) {
                sums[r][c] += w[r] * x;
            }
        }
    }
}

/* Rows of sums, times factor, to dst, of whose rows `num` are there. */
template <class T, int C>
static __device__ __forceinline__ void simt_store(T *dst, int stride, int num, int e,
                                                  const float (&sums)[SIMT_ROWS][C], float factor)
{
    int tx = (int)threadIdx.x % SIMT_X;
    int ty = (int)threadIdx.x / SIMT_X;
#pragma unroll
    for (int r = 0; r < SIMT_ROWS; r++) {
        int row = ty + r * SIMT_Y;
        T *to = dst + row * stride + tx;
#pragma unroll
        for (int c = 0; c < C; c++) {
            if (row < num && tx + c * SIMT_X < e) {
                cu_set(to + c * SIMT_X, sums[r][c] * factor);
            }
        }
    }
}

/* Does query i see key j? */
static __device__ __forceinline__ bool simt_sees(const int32_t *segments, int i, int j, int t)
{
    return i < t && j <= i && (!segments || segments[i] == segments[j]);
}

/* Tiles of 32 have the range of the tile of 64 that holds them. */
static __device__ __forceinline__ bool simt_meet(const int2 *ranges, int x, int y)
{
    constexpr int part = ATTENTION_TILE / SIMT_TILE;
    return !ranges || ranges_meet(ranges[x / part], ranges[y / part]);
}

/* What all three kernels work out first. */
template <class T> struct simt_block {
    struct attention_part part;
    int first, num_tiles;
    int q_stride, k_stride;
    const int32_t *segments;
    const int2 *ranges;
};

template <class T>
static __device__ __forceinline__ struct simt_block<T>
simt_block_of(const struct attention_problem<T> &p, int num_heads, bool last_first) {
    struct simt_block<T> b;
    b.part = attention_part_of(p, num_heads, last_first);
    b.first = b.part.tile * SIMT_TILE;
    b.num_tiles = (p.t + SIMT_TILE - 1) / SIMT_TILE;
    b.q_stride = p.h * p.e;
    b.k_stride = p.kv * p.e;
    b.segments = p.segments ? p.segments + (int64_t)b.part.b * p.t : nullptr;
    int num_ranges = (p.t + ATTENTION_TILE - 1) / ATTENTION_TILE;
    b.ranges = p.ranges ? p.ranges + (int64_t)b.part.b * num_ranges : nullptr;
    return b;
}

/* Launches kernel<T, C> for the C that holds e: `tiles` tiles of width e and `scores` of scores,
 * and `more` floats, in shared memory. */
template <class T>
static cudaError_t simt_launch(cudaStream_t s, void (*kernel)(const struct attention_problem<T>),
                               const struct attention_problem<T> *p, int num_heads, int tiles,
                               int scores, int more)
{
    int bytes = (tiles * SIMT_TILE * simt_stride(p->e) + scores * SIMT_TILE * SIMT_STRIDE + more) *
                (int)sizeof(float);
    int64_t num_blocks = (int64_t)((p->t + SIMT_TILE - 1) / SIMT_TILE) * p->b * num_heads;
    if (num_blocks > INT32_MAX) {
        return cudaErrorInvalidValue;
    }
    cudaError_t e = cudaFuncSetAttribute((const void *)kernel,
                                         cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (e == cudaSuccess) {
        CU_LAUNCH(kernel, dim3((unsigned)num_blocks), dim3(SIMT_THREADS), (size_t)bytes, s, *p);
        e = cudaGetLastError();
    }
    return e;
}

#endif
