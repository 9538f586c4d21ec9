/* Attention's backward pass by single products: one kernel goes through the keys for the gradient
 * of 32 queries, one through the queries for those of 32 keys and values; nobody adds to what
 * another has written. Source: Dao 2023 (FlashAttention-2), algorithm 2. */
#include "kernels/cuda/attention_simt.cuh"

/* Weights and gradients of scores of queries i0.. and keys j0.., of which a thread has some. */
struct graded {
    float p[SIMT_ROWS][SIMT_COLUMNS], ds[SIMT_ROWS][SIMT_COLUMNS];
};

template <class T>
static __device__ __forceinline__ void
simt_grade(struct graded *g, const struct attention_problem<T> &p, const struct simt_block<T> &b,
           int head, int i0, int j0, const float *queries, const float *grads, const float *keys,
           const float *values)
{
    int tx = (int)threadIdx.x % SIMT_X;
    int ty = (int)threadIdx.x / SIMT_X;
    simt_scores(g->p, queries, keys, p.e);
    simt_scores(g->ds, grads, values, p.e);
    int64_t stats = ((int64_t)b.part.b * p.h + head) * p.t;
#pragma unroll
    for (int r = 0; r < SIMT_ROWS; r++) {
        int i = i0 + ty + r * SIMT_Y;
        float lse = i < p.t ? p.lse[stats + i] : 0.0f;
        float dot = i < p.t ? p.dots[stats + i] : 0.0f;
#pragma unroll
        for (int c = 0; c < SIMT_COLUMNS; c++) {
            bool sees = simt_sees(b.segments, i, j0 + tx + c * SIMT_X, p.t);
            g->p[r][c] = sees ? expf(g->p[r][c] * p.scale - lse) : 0.0f;
            g->ds[r][c] = g->p[r][c] * (g->ds[r][c] - dot);
        }
    }
}

/* Into a tile in shared memory. */
static __device__ __forceinline__ void simt_put(float *tile,
                                                const float (&x)[SIMT_ROWS][SIMT_COLUMNS])
{
    int tx = (int)threadIdx.x % SIMT_X;
    int ty = (int)threadIdx.x / SIMT_X;
#pragma unroll
    for (int r = 0; r < SIMT_ROWS; r++) {
#pragma unroll
        for (int c = 0; c < SIMT_COLUMNS; c++) {
            tile[(ty + r * SIMT_Y) * SIMT_STRIDE + tx + c * SIMT_X] = x[r][c];
        }
    }
}

template <class T, int C>
static __global__ void __launch_bounds__(SIMT_THREADS, 2)
    simt_dq_kernel(const struct attention_problem<T> p)
{
    CU_DYN_SHARED(float, shared);
    int size = SIMT_TILE * simt_stride(p.e);
    float *queries = shared, *grads = shared + size;
    float *keys = shared + 2 * size, *values = shared + 3 * size;
    float *ds = shared + 4 * size;

    struct simt_block<T> b = simt_block_of(p, p.h, true);
    int kv = b.part.head / (p.h / p.kv);
    int64_t q_at = attention_at(b.part.b, b.first, b.part.head, p.t, p.h, p.e);
    simt_fetch(queries, p.q + q_at, b.q_stride, p.t - b.first, p.e);
    simt_fetch(grads, p.d_o + q_at, b.q_stride, p.t - b.first, p.e);
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
        struct graded g;
        simt_grade(&g, p, b, b.part.head, b.first, first, queries, grads, keys, values);
        simt_put(ds, g.ds);
        __syncthreads();
        simt_add<C>(sums, ds, SIMT_STRIDE, 1, keys, p.e);
    }
    simt_store<T, C>(p.dq + q_at, b.q_stride, p.t - b.first, p.e, sums, p.scale);
}

template <class T, int C>
static __global__ void __launch_bounds__(SIMT_THREADS, 2)
    simt_dkv_kernel(const struct attention_problem<T> p)
{
    CU_DYN_SHARED(float, shared);
    int size = SIMT_TILE * simt_stride(p.e);
    float *queries = shared, *grads = shared + size;
    float *keys = shared + 2 * size, *values = shared + 3 * size;
    float *weights = shared + 4 * size, *ds = weights + SIMT_TILE * SIMT_STRIDE;

    struct simt_block<T> b = simt_block_of(p, p.kv, false);
    int group = p.h / p.kv;
    int64_t k_at = attention_at(b.part.b, b.first, b.part.head, p.t, p.kv, p.e);
    simt_fetch(keys, p.k + k_at, b.k_stride, p.t - b.first, p.e);
    simt_fetch(values, p.v + k_at, b.k_stride, p.t - b.first, p.e);
    float dk[SIMT_ROWS][C] = {}, dv[SIMT_ROWS][C] = {};
    int num_steps = group * (b.num_tiles - b.part.tile);
    for (int step = 0; step < num_steps; step++) {
        int head = b.part.head * group + step % group;
        int tile = b.part.tile + step / group;
        if (!simt_meet(b.ranges, tile, b.part.tile)) {
            continue;
        }
        int first = tile * SIMT_TILE;
        int64_t q_at = attention_at(b.part.b, first, head, p.t, p.h, p.e);
        __syncthreads(); /* the tile before may still be read */
        simt_fetch(queries, p.q + q_at, b.q_stride, p.t - first, p.e);
        simt_fetch(grads, p.d_o + q_at, b.q_stride, p.t - first, p.e);
        __syncthreads();
        struct graded g;
        simt_grade(&g, p, b, head, first, b.first, queries, grads, keys, values);
        simt_put(weights, g.p);
        simt_put(ds, g.ds);
        __syncthreads();
        simt_add<C>(dv, weights, 1, SIMT_STRIDE, grads, p.e);
        simt_add<C>(dk, ds, 1, SIMT_STRIDE, queries, p.e);
    }
    simt_store<T, C>(p.dk + k_at, b.k_stride, p.t - b.first, p.e, dk, p.scale);
    simt_store<T, C>(p.dv + k_at, b.k_stride, p.t - b.first, p.e, dv, 1);
}

template <class T, int C>
static cudaError_t launch(cudaStream_t s, const struct attention_problem<T> *p)
{
    cudaError_t e = simt_launch(s, simt_dq_kernel<T, C>, p, p->h, 4, 1, 0);
    return e == cudaSuccess ? simt_launch(s, simt_dkv_kernel<T, C>, p, p->kv, 4, 2, 0) : e;
}

template <class T>
cudaError_t attention_simt_bwd(cudaStream_t s, const struct attention_problem<T> *p)
{
    return p->e <= 32    ? launch<T, 2>(s, p)
           : p->e <= 64  ? launch<T, 4>(s, p)
           : p->e <= 128 ? launch<T, 8>(s, p)
                         : launch<T, 16>(s, p);
}

template cudaError_t attention_simt_bwd(cudaStream_t s, const struct attention_problem<float> *p);
template cudaError_t attention_simt_bwd(cudaStream_t s,
                                        const struct attention_problem<__nv_bfloat16> *p);
