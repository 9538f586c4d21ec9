/* The gradients of attention's keys and values by tensor cores: a block takes a tile of keys of one
 * key head and goes through the queries that see it, of one head of the group after the other. Its
 * rows are keys, so that weights and gradients of scores are, transposed, the left factors that the
 * two sums need, and stay in registers. Nobody else adds to them.
 * Source: Dao 2023 (FlashAttention-2), algorithm 2. */
#include "kernels/cuda/attention_mma.cuh"

#define KEYS (MMA_WARPS * MMA_ROWS)
#define QUERIES ATTENTION_TILE
static_assert(KEYS == ATTENTION_TILE, "a block's keys are one tile of segments");

/* WIDTH: queries whose scores are in registers at a time. KEPT: keys and values stay there. */
template <int E_, bool KEPT_, int WIDTH_, int BLOCKS_> struct dkv_shape {
    static constexpr bool KEPT = KEPT_;
    static constexpr int E = E_, WIDTH = WIDTH_, BLOCKS = BLOCKS_;
    static constexpr int TILE = QUERIES * E;
    /* Keys, values, two tiles of queries and two of gradients; of each query, twice, lse and dot.
     */
    static constexpr int BYTES = 6 * TILE * 2 + 4 * QUERIES * 4;
};
static_assert(MMA_THREADS == 2 * QUERIES, "a thread fetches one lse or one dot");

/* Where a block goes through its queries. */
struct walk {
    int head, tile;
};

/* One thread's lse (to base 2) or dot of a tile of queries; queries that aren't there weigh 0. */
static __device__ __forceinline__ float fetch_stat(const struct attention_problem<bf16> &p, int b,
                                                   struct walk w)
{
    int row = w.tile * QUERIES + (int)threadIdx.x % QUERIES;
    bool is_lse = threadIdx.x < QUERIES;
    if (row >= p.t) {
        return is_lse ? INFINITY : 0.0f;
    }
    int64_t at = ((int64_t)b * p.h + w.head) * p.t + row;
    return is_lse ? p.lse[at] * (float)LOG2_E : p.dots[at];
}

template <int E>
static __device__ __forceinline__ void fetch_queries(bf16 *queries, bf16 *grads,
                                                     const struct attention_problem<bf16> &p, int b,
                                                     struct walk w)
{
    int first = w.tile * QUERIES;
    int64_t at = attention_at(b, first, w.head, p.t, p.h, p.e);
    int stride = p.h * p.e;
    tile_fetch<E, QUERIES>(queries, p.q + at, stride, p.t - first, p.e);
    tile_fetch<E, QUERIES>(grads, p.d_o + at, stride, p.t - first, p.e);
}

/* Scores become weights; stats: lse of the WIDTH queries, and QUERIES further on their dots. */
template <int WIDTH>
static __device__ __forceinline__ void weigh(float (&s)[1][WIDTH / 8][4], const float *stats,
                                             float scale2)
{
    int lane = (int)threadIdx.x % CU_WARP;
#pragma unroll
    for (int n = 0; n < WIDTH / 8; n++) {
        vec<float, 2> lse = vec_load<float, 2>(stats + n * 8 + 2 * (lane % 4));
#pragma unroll
        for (int i = 0; i < 4; i++) {
            s[0][n][i] = cu_exp2(s[0][n][i] * scale2 - lse.v[i % 2]);
        }
    }
}

/* dp becomes the gradient of the scores, but for the factor scale. */
template <int WIDTH>
static __device__ __forceinline__ void grade(float (&dp)[1][WIDTH / 8][4],
                                             const float (&s)[1][WIDTH / 8][4], const float *stats)
{
    int lane = (int)threadIdx.x % CU_WARP;
#pragma unroll
    for (int n = 0; n < WIDTH / 8; n++) {
        vec<float, 2> dot = vec_load<float, 2>(stats + QUERIES + n * 8 + 2 * (lane % 4));
#pragma unroll
        for (int i = 0; i < 4; i++) {
            dp[0][n][i] = s[0][n][i] * (dp[0][n][i] - dot.v[i % 2]);
        }
    }
}

template <class S>
static __global__ void __launch_bounds__(MMA_THREADS, S::BLOCKS)
    attention_dkv_kernel(const struct attention_problem<bf16> p)
{
    constexpr int E = S::E, WIDTH = S::WIDTH;
    CU_DYN_SHARED(bf16, shared);
    bf16 *keys = shared, *values = shared + S::TILE;
    bf16 *queries = shared + 2 * S::TILE, *grads = shared + 4 * S::TILE;
    float *stats = (float *)(shared + 6 * S::TILE);

    struct attention_part part = attention_part_of(p, p.kv, false);
    int first = part.tile * KEYS;
    int warp_row = (int)threadIdx.x / CU_WARP * MMA_ROWS;
    int group = p.h / p.kv;
    int k_stride = p.kv * p.e;
    int64_t k_at = attention_at(part.b, first, part.head, p.t, p.kv, p.e);
    const int32_t *segments = p.segments ? p.segments + (int64_t)part.b * p.t : nullptr;
    int num_tiles = (p.t + QUERIES - 1) / QUERIES;
    const int2 *ranges = p.ranges ? p.ranges + (int64_t)part.b * num_tiles : nullptr;
    int2 mine = ranges ? ranges[part.tile] : int2{0, 0};

    struct walk now = {part.head * group, part.tile};
    tile_fetch<E, KEYS>(keys, p.k + k_at, k_stride, p.t - first, p.e);
    tile_fetch<E, KEYS>(values, p.v + k_at, k_stride, p.t - first, p.e);
    fetch_queries<E>(queries, grads, p, part.b, now);
    cu_cp_async_commit();
    stats[threadIdx.x] = fetch_stat(p, part.b, now);
    struct left_factor<E, 1, S::KEPT> left, left_values;
    if (S::KEPT) {
        cu_cp_async_wait<0>();
        __syncthreads();
    }
    left.init(keys + warp_row * E);
    left_values.init(values + warp_row * E);

    float dk[1][E / 8][4] = {}, dv[1][E / 8][4] = {};
    int at = 0; /* of the two tiles */
    bool more = true;
    while (more) {
        struct walk next = {now.head, tile_behind(ranges, mine, now.tile + 1, num_tiles)};
        if (next.tile == num_tiles) {
            next = {now.head + 1, part.tile};
        }
        more = next.head < (part.head + 1) * group;
        cu_cp_async_wait<0>();
        __syncthreads(); /* all of now is there; nobody reads the other tiles any more */
        if (more) {
            fetch_queries<E>(queries + (1 - at) * S::TILE, grads + (1 - at) * S::TILE, p, part.b,
                             next);
            stats[(1 - at) * MMA_THREADS + (int)threadIdx.x] = fetch_stat(p, part.b, next);
        }
        cu_cp_async_commit();
        bool mixed = ranges && !ranges_meet_as_one(mine, ranges[now.tile]);
#pragma unroll 1
        for (int from = 0; from < QUERIES; from += WIDTH) {
            const bf16 *some = queries + at * S::TILE + from * E;
            const bf16 *some_grads = grads + at * S::TILE + from * E;
            const float *some_stats = stats + at * MMA_THREADS + from;
            float s[1][WIDTH / 8][4], dp[1][WIDTH / 8][4];
            product_across<E, 1, WIDTH>(s, left, some);
            if (mixed || now.tile == part.tile) {
                mask_scores<1, WIDTH>(s, first + warp_row, now.tile * QUERIES + from, false,
                                      mixed ? segments : nullptr, p.t);
            }
            weigh<WIDTH>(s, some_stats, p.scale * (float)LOG2_E);
            product_along<E, 1, WIDTH>(dv, s, some_grads);
            product_across<E, 1, WIDTH>(dp, left_values, some_grads);
            grade<WIDTH>(dp, s, some_stats);
            product_along<E, 1, WIDTH>(dk, dp, some);
        }
        now = next;
        at = 1 - at;
    }
    cu_cp_async_wait<0>();

#pragma unroll
    for (int n = 0; n < E / 8; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            dk[0][n][i] *= p.scale;
        }
    }
    /* A warp has read its own rows of keys and values, and nobody else has. */
    __syncwarp();
    tile_store<E, 1>(p.dk + k_at + warp_row * k_stride, k_stride, p.t - first - warp_row, p.e,
                     keys + warp_row * E, dk);
    tile_store<E, 1>(p.dv + k_at + warp_row * k_stride, k_stride, p.t - first - warp_row, p.e,
                     values + warp_row * E, dv);
}

template <class S>
static cudaError_t launch(cudaStream_t s, const struct attention_problem<bf16> *p)
{
    int64_t num_blocks = (int64_t)((p->t + KEYS - 1) / KEYS) * p->b * p->kv;
    if (num_blocks > INT32_MAX) {
        return cudaErrorInvalidValue;
    }
    cudaError_t e = cudaFuncSetAttribute((const void *)attention_dkv_kernel<S>,
                                         cudaFuncAttributeMaxDynamicSharedMemorySize, S::BYTES);
    if (e == cudaSuccess) {
        CU_LAUNCH(attention_dkv_kernel<S>, dim3((unsigned)num_blocks), dim3(MMA_THREADS), S::BYTES,
                  s, *p);
        e = cudaGetLastError();
    }
    return e;
}

cudaError_t attention_mma_dkv(cudaStream_t s, const struct attention_problem<bf16> *p)
{
    return p->e <= 32   ? launch<dkv_shape<32, true, 64, 3>>(s, p)
           : p->e <= 64 ? launch<dkv_shape<64, true, 64, 2>>(s, p)
           : p->e <= 96 ? launch<dkv_shape<96, false, 32, 2>>(s, p)
                        : launch<dkv_shape<128, false, 32, 2>>(s, p);
}
