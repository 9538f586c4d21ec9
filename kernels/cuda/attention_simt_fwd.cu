/* Attention's forward pass by single products: a block takes 32 queries of one head and goes
 * through the keys, with a running softmax; a thread of the first warp keeps a row's. Source: Dao
 * 2023 (FlashAttention-2), algorithm 1. */
#include "kernels/cuda/attention_simt.cuh"

/* A row's maximum, sum, and the factor for what was summed before. */
struct softmax_rows {
    float max[SIMT_TILE], sum[SIMT_TILE], keep[SIMT_TILE];
};

/* By one warp, a row a lane: scores become weights. */
static __device__ __forceinline__ void soften(float *scores, struct softmax_rows *rows)
{
    int row = (int)threadIdx.x;
    float *s = scores + row * SIMT_STRIDE;
    float top = rows->max[row];
    for (int j = 0; j < SIMT_TILE; j++) {
        top = fmaxf(top, s[j]);
    }
    /* A row that has seen nothing yet. */
    float base = top == -INFINITY ? 0.0f : top;
    float keep = expf(rows->max[row] - base);
    float sum = rows->sum[row] * keep;
    for (int j = 0; j < SIMT_TILE; j++) {
        s[j] = expf(s[j] - base);
        sum += s[j];
    }
    rows->max[row] = top;
    rows->sum[row] = sum;
    rows->keep[row] = keep;
}

template <class T, int C>
static __global__ void __launch_bounds__(SIMT_THREADS, 2)
    simt_fwd_kernel(const struct attention_problem<T> p)
{
    CU_DYN_SHARED(float, shared);
    int size = SIMT_TILE * simt_stride(p.e);
    float *queries = shared, *keys = shared + size, *values = shared + 2 * size;
    float *weights = shared + 3 * size;
    struct softmax_rows *rows = (struct softmax_rows *)(weights + SIMT_TILE * SIMT_STRIDE);

    struct simt_block<T> b = simt_block_of(p, p.h, true);
    int tx = (int)threadIdx.x % SIMT_X;
    int ty = (int)threadIdx.x / SIMT_X;
    int kv = b.part.head / (p.h / p.kv);
    int64_t q_at = attention_at(b.part.b, b.first, b.part.head, p.t, p.h, p.e);
    simt_fetch(queries, p.q + q_at, b.q_stride, p.t - b.first, p.e);
    if (threadIdx.x < SIMT_TILE) {
        rows->max[threadIdx.x] = -INFINITY;
        rows->sum[threadIdx.x] = 0;
    }
    float sums[SIMT_ROWS][C] = {};
    for (int tile = b.part.tile; tile >= 0; tile--) {
        if (!simt_meet(b.ranges, b.part.tile, tile)) {
            continue;
        }
        int first = tile * SIMT_TILE;
        int64_t k_at = attention_at(b.part.b, first, kv, p.t, p.kv, p.e);
        __syncthreads(); /* the tile before may still be read */
        simt_fetch(keys, p.k + k_at, b.k_stride, p.t - first, p.e);
        simt_fetch(values, p.v + k_at, b.k_stride, p.t - first, p.e);
        __syncthreads();
        float s[SIMT_ROWS][SIMT_COLUMNS];
        simt_scores(s, queries, keys, p.e);
#pragma unroll
        for (int r = 0; r < SIMT_ROWS; r++) {
#pragma unroll
            for (int c = 0; c < SIMT_COLUMNS; c++) {
                int i = ty + r * SIMT_Y;
                int j = tx + c * SIMT_X;
                bool sees = simt_sees(b.segments, b.first + i, first + j, p.t);
                weights[i * SIMT_STRIDE + j] = sees ? s[r][c] * p.scale : -INFINITY;
            }
        }
        __syncthreads();
        if (threadIdx.x < SIMT_TILE) {
            soften(weights, rows);
        }
        __syncthreads();
#pragma unroll
        for (int r = 0; r < SIMT_ROWS; r++) {
            float keep = rows->keep[ty + r * SIMT_Y];
#pragma unroll
            for (int c = 0; c < C; c++) {
                sums[r][c] *= keep;
            }
        }
        simt_add<C>(sums, weights, SIMT_STRIDE, 1, values, p.e);
    }
#pragma unroll
    for (int r = 0; r < SIMT_ROWS; r++) {
        float inverse = 1 / rows->sum[ty + r * SIMT_Y];
#pragma unroll
        for (int c = 0; c < C; c++) {
            sums[r][c] *= inverse;
        }
    }
    simt_store<T, C>(p.out + q_at, b.q_stride, p.t - b.first, p.e, sums, 1);
    int row = b.first + (int)threadIdx.x;
    if (threadIdx.x < SIMT_TILE && row < p.t) {
        p.lse[((int64_t)b.part.b * p.h + b.part.head) * p.t + row] =
            rows->max[threadIdx.x] + logf(rows->sum[threadIdx.x]);
    }
}

template <class T>
cudaError_t attention_simt_fwd(cudaStream_t s, const struct attention_problem<T> *p)
{
    void (*kernel)(const struct attention_problem<T>) = p->e <= 32    ? simt_fwd_kernel<T, 2>
                                                        : p->e <= 64  ? simt_fwd_kernel<T, 4>
                                                        : p->e <= 128 ? simt_fwd_kernel<T, 8>
                                                                      : simt_fwd_kernel<T, 16>;
    return simt_launch(s, kernel, p, p->h, 3, 1, 3 * SIMT_TILE);
}

template cudaError_t attention_simt_fwd(cudaStream_t s, const struct attention_problem<float> *p);
template cudaError_t attention_simt_fwd(cudaStream_t s,
                                        const struct attention_problem<__nv_bfloat16> *p);
