/* The gradient of attention's queries by tensor cores: a block takes a tile of queries of one head
 * and goes through the keys, as the forward pass does. Scores are computed anew; so no block adds
 * to what another has written, and the order of sums is always the same. Source: Dao 2023
 * (FlashAttention-2), algorithm 2, with the loops over queries and over keys in kernels of their
 * own. */
#include "kernels/cuda/attention_mma.cuh"

#define MT 2
#define WARP_ROWS (MT * MMA_ROWS)
#define ROWS (MMA_WARPS * WARP_ROWS)
/* Keys whose scores are in registers at a time. */
#define WIDTH 32

/* KEYS: of a tile. KEPT: queries and gradients stay in registers. */
template <int E_, int KEYS_, bool KEPT_, int BLOCKS_> struct dq_shape {
    static constexpr int E = E_, KEYS = KEYS_, BLOCKS = BLOCKS_;
    static constexpr bool KEPT = KEPT_;
    static constexpr int TILE = KEYS * E;
    /* Queries and gradients, two tiles of keys and two of values; of each query lse and dot. */
    static constexpr int BYTES = (2 * ROWS * E + 4 * TILE) * 2 + 2 * ROWS * 4;
    static_assert(MMA_THREADS == ROWS, "a thread fetches a row's");
    static_assert(ATTENTION_TILE % KEYS == 0 && KEYS % WIDTH == 0, "of one tile of segments");
};

/* Where the tile of keys begins that comes behind the one at `key`; -1 = none. */
template <int KEYS>
static __device__ __forceinline__ int keys_before(const int2 *ranges, int2 mine, int key)
{
    if (key % ATTENTION_TILE != 0) {
        return key - KEYS;
    }
    int tile = tile_before(ranges, mine, key / ATTENTION_TILE - 1);
    return tile < 0 ? -1 : (tile + 1) * ATTENTION_TILE - KEYS;
}

template <int E, int KEYS>
static __device__ __forceinline__ void
fetch_keys(bf16 *keys, bf16 *values, const struct attention_problem<bf16> &p, int64_t k_at, int key)
{
    int64_t at = k_at + (int64_t)key * (p.kv * p.e);
    tile_fetch<E, KEYS>(keys, p.k + at, p.kv * p.e, p.t - key, p.e);
    tile_fetch<E, KEYS>(values, p.v + at, p.kv * p.e, p.t - key, p.e);
}

/* Scores become weights; lse: to base 2, of the warp's rows. */
static __device__ __forceinline__ void weigh(float (&s)[MT][WIDTH / 8][4], const float *lse,
                                             float scale2)
{
    int row = (int)threadIdx.x % CU_WARP / 4;
#pragma unroll
    for (int m = 0; m < MT; m++) {
        float of_row[2] = {lse[m * MMA_ROWS + row], lse[m * MMA_ROWS + row + 8]};
#pragma unroll
        for (int n = 0; n < WIDTH / 8; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                s[m][n][i] = cu_exp2(s[m][n][i] * scale2 - of_row[i / 2]);
            }
        }
    }
}

/* dp becomes the gradient of the scores, but for the factor scale. */
static __device__ __forceinline__ void grade(float (&dp)[MT][WIDTH / 8][4],
                                             const float (&s)[MT][WIDTH / 8][4], const float *dots)
{
    int row = (int)threadIdx.x % CU_WARP / 4;
#pragma unroll
    for (int m = 0; m < MT; m++) {
        float of_row[2] = {dots[m * MMA_ROWS + row], dots[m * MMA_ROWS + row + 8]};
#pragma unroll
        for (int n = 0; n < WIDTH / 8; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                dp[m][n][i] = s[m][n][i] * (dp[m][n][i] - of_row[i / 2]);
            }
        }
    }
}

template <class S>
static __global__ void __launch_bounds__(MMA_THREADS, S::BLOCKS)
    attention_dq_kernel(const struct attention_problem<bf16> p)
{
    constexpr int E = S::E, KEYS = S::KEYS;
    CU_DYN_SHARED(bf16, shared);
    bf16 *queries = shared, *grads = shared + ROWS * E;
    bf16 *keys = shared + 2 * ROWS * E, *values = keys + 2 * S::TILE;

    struct attention_part part = attention_part_of(p, p.h, true);
    int first = part.tile * ROWS;
    int warp_row = (int)threadIdx.x / CU_WARP * WARP_ROWS;
    int64_t k_at = attention_at(part.b, 0, part.head / (p.h / p.kv), p.t, p.kv, p.e);
    int first_row = first + warp_row;
    int q_stride = p.h * p.e;
    int64_t q_at = attention_at(part.b, first, part.head, p.t, p.h, p.e);
    int num_tiles = (p.t + ATTENTION_TILE - 1) / ATTENTION_TILE;
    const int2 *ranges = p.ranges ? p.ranges + (int64_t)part.b * num_tiles : nullptr;
    int end = first + ROWS < p.t ? first + ROWS : p.t;
    int2 mine = {0, 0};
    if (ranges) {
        int2 x = ranges[first / ATTENTION_TILE], y = ranges[(end - 1) / ATTENTION_TILE];
        mine = {min(x.x, y.x), max(x.y, y.y)};
    }

    int key = (end - 1) / KEYS * KEYS;
    tile_fetch<E, ROWS>(queries, p.q + q_at, q_stride, p.t - first, p.e);
    tile_fetch<E, ROWS>(grads, p.d_o + q_at, q_stride, p.t - first, p.e);
    fetch_keys<E, KEYS>(keys, values, p, k_at, key);
    cu_cp_async_commit();

    /* Rows that aren't there have weights of 0. */
    float *stats = (float *)(values + 2 * S::TILE);
    int row = first + (int)threadIdx.x;
    int64_t stats_at = ((int64_t)part.b * p.h + part.head) * p.t + row;
    stats[threadIdx.x] = row < p.t ? p.lse[stats_at] * (float)LOG2_E : INFINITY;
    stats[ROWS + threadIdx.x] = row < p.t ? p.dots[stats_at] : 0.0f;
    cu_cp_async_wait<0>();
    __syncthreads();
    struct left_factor<E, MT, S::KEPT> left, left_grads;
    left.init(queries + warp_row * E);
    left_grads.init(grads + warp_row * E);

    float dq[MT][E / 8][4] = {};
    int at = 0; /* of the two tiles */
    for (; key >= 0; at = 1 - at) {
        int next = keys_before<KEYS>(ranges, mine, key);
        cu_cp_async_wait<0>();
        __syncthreads(); /* both are there; nobody reads the others any more */
        if (next >= 0) {
            fetch_keys<E, KEYS>(keys + (1 - at) * S::TILE, values + (1 - at) * S::TILE, p, k_at,
                                next);
        }
        cu_cp_async_commit();
        bool mixed = ranges && !ranges_meet_as_one(mine, ranges[key / ATTENTION_TILE]);
#pragma unroll 1
        for (int from = 0; from < KEYS; from += WIDTH) {
            if (key + from >= first_row + WARP_ROWS) {
                break; /* these keys come after the warp's queries */
            }
            const bf16 *some = keys + at * S::TILE + from * E;
            float s[MT][WIDTH / 8][4], dp[MT][WIDTH / 8][4];
            product_across<E, MT, WIDTH>(s, left, some);
            if (mixed || key + from + WIDTH > first_row) {
                mask_scores_slowly<MT, WIDTH>(s, first_row, key + from, true,
                                              mixed ? p.segments + (int64_t)part.b * p.t : nullptr,
                                              p.t);
            }
            weigh(s, stats + warp_row, p.scale * (float)LOG2_E);
            product_across<E, MT, WIDTH>(dp, left_grads, values + at * S::TILE + from * E);
            grade(dp, s, stats + ROWS + warp_row);
            product_along<E, MT, WIDTH>(dq, dp, some);
        }
        key = next;
    }
    cu_cp_async_wait<0>();
#pragma unroll
    for (int m = 0; m < MT; m++) {
#pragma unroll
        for (int n = 0; n < E / 8; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                dq[m][n][i] *= p.scale;
            }
        }
    }
    /* A warp has read its own rows of queries, and nobody else has. */
    __syncwarp();
    tile_store<E, MT>(p.dq + q_at + warp_row * q_stride, q_stride, p.t - first_row, p.e,
                      queries + warp_row * E, dq);
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
    return p->e <= 32   ? launch<dq_shape<32, 64, true, 3>>(s, p)
           : p->e <= 64 ? launch<dq_shape<64, 64, true, 2>>(s, p)
           : p->e <= 96 ? launch<dq_shape<96, 32, false, 2>>(s, p)
                        : launch<dq_shape<128, 32, false, 2>>(s, p);
}
