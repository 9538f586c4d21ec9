/* The gradient of attention's queries by tensor cores: a block takes a tile of queries of one head
 * and goes through the keys, as the forward pass does. Scores are computed anew; so no block adds
 * to what another has written, and the order of sums is always the same. Source: Dao 2023
 * (FlashAttention-2), algorithm 2, with the loops over queries and over keys in kernels of their
 * own. */
#include "kernels/cuda/attention_mma.cuh"

#define KEYS ATTENTION_TILE
#define ROWS (MMA_WARPS * MMA_ROWS)
static_assert(ROWS == ATTENTION_TILE, "a block's queries are one tile of segments");

/* WIDTH: keys whose scores are in registers at a time. KEPT: queries and gradients stay
 * there. */
template <int E_, bool KEPT_, int WIDTH_, int BLOCKS_> struct dq_shape {
    static constexpr int E = E_, WIDTH = WIDTH_, BLOCKS = BLOCKS_;
    static constexpr bool KEPT = KEPT_;
    static constexpr int TILE = KEYS * E;
    static constexpr int BYTES = 6 * TILE * 2;
};

/* Scores become weights. */
template <int WIDTH>
static __device__ __forceinline__ void weigh(float (&s)[1][WIDTH / 8][4], const float lse[2],
                                             float scale2)
{
#pragma unroll
    for (int n = 0; n < WIDTH / 8; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            s[0][n][i] = cu_exp2(s[0][n][i] * scale2 - lse[i / 2]);
        }
    }
}

/* dp becomes the gradient of the scores, but for the factor scale. */
template <int WIDTH>
static __device__ __forceinline__ void grade(float (&dp)[1][WIDTH / 8][4],
                                             const float (&s)[1][WIDTH / 8][4], const float dot[2])
{
#pragma unroll
    for (int n = 0; n < WIDTH / 8; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            dp[0][n][i] = s[0][n][i] * (dp[0][n][i] - dot[i / 2]);
        }
    }
}

template <class S>
static __global__ void __launch_bounds__(MMA_THREADS, S::BLOCKS)
    attention_dq_kernel(const struct attention_problem<bf16> p)
{
    constexpr int E = S::E, WIDTH = S::WIDTH;
    CU_DYN_SHARED(bf16, shared);
    bf16 *keys = shared, *values = shared + 2 * S::TILE;
    bf16 *queries = shared + 4 * S::TILE, *grads = shared + 5 * S::TILE;

    struct attention_part part = attention_part_of(p, p.h, true);
    int lane = (int)threadIdx.x % CU_WARP;
    int first = part.tile * ROWS;
    int warp_row = (int)threadIdx.x / CU_WARP * MMA_ROWS;
    int kv = part.head / (p.h / p.kv);
    int q_stride = p.h * p.e, k_stride = p.kv * p.e;
    int64_t q_at = attention_at(part.b, first, part.head, p.t, p.h, p.e);
    int64_t k_at = attention_at(part.b, 0, kv, p.t, p.kv, p.e);
    const int32_t *segments = p.segments ? p.segments + (int64_t)part.b * p.t : nullptr;
    int num_tiles = (p.t + KEYS - 1) / KEYS;
    const int2 *ranges = p.ranges ? p.ranges + (int64_t)part.b * num_tiles : nullptr;
    int2 mine = ranges ? ranges[part.tile] : int2{0, 0};

    tile_fetch<E, ROWS>(queries, p.q + q_at, q_stride, p.t - first, p.e);
    tile_fetch<E, ROWS>(grads, p.d_o + q_at, q_stride, p.t - first, p.e);
    tile_fetch<E, KEYS>(keys, p.k + k_at + (int64_t)first * k_stride, k_stride, p.t - first, p.e);
    cu_cp_async_commit();
    tile_fetch<E, KEYS>(values, p.v + k_at + (int64_t)first * k_stride, k_stride, p.t - first, p.e);
    cu_cp_async_commit();

    /* Rows that aren't there have weights of 0. */
    float lse[2], dot[2];
    const int64_t stats = ((int64_t)part.b * p.h + part.head) * p.t;
#pragma unroll
    for (int lower = 0; lower < 2; lower++) {
        int row = first + warp_row + 8 * lower + lane / 4;
        lse[lower] = row < p.t ? p.lse[stats + row] * (float)LOG2_E : INFINITY;
        dot[lower] = row < p.t ? p.dots[stats + row] : 0.0f;
    }
    cu_cp_async_wait<1>();
    __syncthreads();
    struct left_factor<E, 1, S::KEPT> left, left_grads;
    left.init(queries + warp_row * E);
    left_grads.init(grads + warp_row * E);

    float dq[1][E / 8][4] = {};
    int at = 0; /* of the two tiles */
    for (int tile = part.tile; tile >= 0; at = 1 - at) {
        int next = tile_before(ranges, mine, tile - 1);
        cu_cp_async_wait<0>();
        __syncthreads(); /* both are there; nobody reads the others any more */
        if (next >= 0) {
            tile_fetch<E, KEYS>(keys + (1 - at) * S::TILE,
                                p.k + k_at + (int64_t)(next * KEYS) * k_stride, k_stride, KEYS,
                                p.e);
            tile_fetch<E, KEYS>(values + (1 - at) * S::TILE,
                                p.v + k_at + (int64_t)(next * KEYS) * k_stride, k_stride, KEYS,
                                p.e);
        }
        cu_cp_async_commit();
        bool mixed = ranges && !ranges_meet_as_one(mine, ranges[tile]);
#pragma unroll
        for (int from = 0; from < KEYS; from += WIDTH) {
            const bf16 *some = keys + at * S::TILE + from * E;
            const bf16 *some_values = values + at * S::TILE + from * E;
            float s[1][WIDTH / 8][4], dp[1][WIDTH / 8][4];
            product_across<E, 1, WIDTH>(s, left, some);
            if (mixed || tile == part.tile) {
                mask_scores<1, WIDTH>(s, first + warp_row, tile * KEYS + from, true,
                                      mixed ? segments : nullptr, p.t);
            }
            weigh<WIDTH>(s, lse, p.scale * (float)LOG2_E);
            product_across<E, 1, WIDTH>(dp, left_grads, some_values);
            grade<WIDTH>(dp, s, dot);
            product_along<E, 1, WIDTH>(dq, dp, some);
        }
        tile = next;
    }
    cu_cp_async_wait<0>();
#pragma unroll
    for (int n = 0; n < E / 8; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            dq[0][n][i] *= p.scale;
        }
    }
    __syncthreads(); /* keys may still be read */
    tile_store<E, 1>(p.dq + q_at + warp_row * q_stride, q_stride, p.t - first - warp_row, p.e,
                     shared + warp_row * E, dq);
}

template <class S>
static cudaError_t launch(cudaStream_t s, const struct attention_problem<bf16> *p)
{
    int64_t num_blocks = (int64_t)((p->t + ROWS - 1) / ROWS) * p->b * p->h;
    if (num_blocks > INT32_MAX) {
        return cudaErrorInvalidValue;
    }
    cudaError_t e = cudaFuncSetAttribute((const void *)attention_dq_kernel<S>,
                                         cudaFuncAttributeMaxDynamicSharedMemorySize, S::BYTES);
    if (e == cudaSuccess) {
        CU_LAUNCH(attention_dq_kernel<S>, dim3((unsigned)num_blocks), dim3(MMA_THREADS), S::BYTES,
                  s, *p);
        e = cudaGetLastError();
    }
    return e;
}

cudaError_t attention_mma_dq(cudaStream_t s, const struct attention_problem<bf16> *p)
{
    return p->e <= 32   ? launch<dq_shape<32, true, 64, 3>>(s, p)
           : p->e <= 64 ? launch<dq_shape<64, true, 64, 3>>(s, p)
           : p->e <= 96 ? launch<dq_shape<96, true, 64, 2>>(s, p)
                        : launch<dq_shape<128, true, 64, 2>>(s, p);
}
