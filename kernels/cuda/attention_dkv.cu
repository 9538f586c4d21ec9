/* The gradients of attention's keys and values by tensor cores: a block takes a tile of keys of one
 * key head and goes through the queries that see it, of one head of the group after the other. Its
 * rows are keys, so that weights and gradients of scores are, transposed, the left factors that the
 * two sums need, and stay in registers. Nobody else adds to them.
 *
 * Two warps share 32 keys. One holds the keys: it computes weights, and sums the gradient of the
 * values. The other holds the values: it computes the weights' gradients, is told the weights by
 * way of shared memory, and sums the gradient of the keys. So a number that is read from shared
 * memory serves 32 rows, and left factors are read but once.
 * Source: Dao 2023 (FlashAttention-2), algorithm 2. */
#include "kernels/cuda/attention_mma.cuh"

#define MT 2
#define WARP_KEYS (MT * MMA_ROWS)
#define KEYS (MMA_WARPS / 2 * WARP_KEYS)
#define QUERIES ATTENTION_TILE
/* Queries whose scores are in registers at a time. */
#define WIDTH 32
static_assert(KEYS == ATTENTION_TILE, "a block's keys are one tile of segments");
static_assert(QUERIES == 2 * WIDTH, "while one half is worked on, the next tile comes");

template <int E_, int BLOCKS_> struct dkv_shape {
    static constexpr int E = E_, BLOCKS = BLOCKS_;
    static constexpr int TILE = QUERIES * E;
    /* Two tiles of queries and two of gradients, of which keys and values come by way of the
     * second; weights of WIDTH queries, twice; of each query, twice, lse and dot. */
    static constexpr int BYTES = 4 * TILE * 2 + 2 * KEYS * WIDTH * 4 + 4 * QUERIES * 4;
};
static_assert(MMA_THREADS == 2 * QUERIES, "a thread fetches one lse or one dot");

/* One thread's lse (to base 2) or dot of a tile of queries; queries that aren't there weigh 0. */
static __device__ __forceinline__ float fetch_stat(const struct attention_problem<bf16> &p, int b,
                                                   int head, int tile)
{
    int thread = cu_anew((int)threadIdx.x);
    int row = tile * QUERIES + thread % QUERIES;
    bool is_lse = thread < QUERIES;
    if (row >= p.t) {
        return is_lse ? INFINITY : 0.0f;
    }
    int64_t at = ((int64_t)b * p.h + head) * p.t + row;
    return is_lse ? p.lse[at] * (float)LOG2_E : p.dots[at];
}

template <int E>
static __device__ __forceinline__ void fetch_queries(bf16 *queries, bf16 *grads,
                                                     const struct attention_problem<bf16> &p, int b,
                                                     int head, int tile)
{
    int first = tile * QUERIES;
    int64_t at = attention_at(b, first, head, p.t, p.h, p.e);
    int stride = p.h * p.e;
    tile_fetch<E, QUERIES>(queries, p.q + at, stride, p.t - first, p.e);
    tile_fetch<E, QUERIES>(grads, p.d_o + at, stride, p.t - first, p.e);
}

/* Scores become weights, which the other warp finds at `told`, lane by lane; stats: lse. */
static __device__ __forceinline__ void weigh(float (&s)[MT][WIDTH / 8][4], float *told,
                                             const float *stats, float scale2)
{
    int lane = (int)threadIdx.x % CU_WARP;
#pragma unroll
    for (int n = 0; n < WIDTH / 8; n++) {
        vec<float, 2> lse = vec_load<float, 2>(stats + n * 8 + 2 * (lane % 4));
#pragma unroll
        for (int m = 0; m < MT; m++) {
            vec<float, 4> out;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                s[m][n][i] = cu_exp2(s[m][n][i] * scale2 - lse.v[i % 2]);
                out.v[i] = s[m][n][i];
            }
            vec_store<float, 4>(told + ((m * (WIDTH / 8) + n) * CU_WARP + lane) * 4, out);
        }
    }
}

/* stats: dots. */
static __device__ __forceinline__ void subtract_dots(float (&dp)[MT][WIDTH / 8][4],
                                                     const float *stats)
{
    int lane = (int)threadIdx.x % CU_WARP;
#pragma unroll
    for (int n = 0; n < WIDTH / 8; n++) {
        vec<float, 2> dot = vec_load<float, 2>(stats + n * 8 + 2 * (lane % 4));
#pragma unroll
        for (int m = 0; m < MT; m++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                dp[m][n][i] -= dot.v[i % 2];
            }
        }
    }
}

/* dp of the k-th 16 queries, less dots, becomes the gradient of the scores, but for the factor
 * scale. */
static __device__ __forceinline__ void grade(float (&dp)[MT][WIDTH / 8][4], int k,
                                             const float *told)
{
    int lane = (int)threadIdx.x % CU_WARP;
#pragma unroll
    for (int n = 2 * k; n < 2 * k + 2; n++) {
#pragma unroll
        for (int m = 0; m < MT; m++) {
            vec<float, 4> s =
                vec_load<float, 4>(told + ((m * (WIDTH / 8) + n) * CU_WARP + lane) * 4);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                dp[m][n][i] *= s.v[i];
            }
        }
    }
}

template <class S>
static __global__ void __launch_bounds__(MMA_THREADS, S::BLOCKS)
    attention_dkv_kernel(const struct attention_problem<bf16> p)
{
    constexpr int E = S::E;
    CU_DYN_SHARED(bf16, shared);
    bf16 *queries = shared, *grads = shared + 2 * S::TILE;
    float *weights = (float *)(shared + 4 * S::TILE);
    float *stats = weights + 2 * KEYS * WIDTH;

    struct attention_part part = attention_part_of(p, p.kv, false);
    int first = part.tile * KEYS;
    int warp = (int)threadIdx.x / CU_WARP;
    int warp_row = warp / 2 * WARP_KEYS;
    bool grades = warp % 2 != 0; /* or else weighs */
    int k_stride = p.kv * p.e;
    int64_t k_at = attention_at(part.b, first, part.head, p.t, p.kv, p.e);
    int num_tiles = (p.t + QUERIES - 1) / QUERIES;
    const int2 *ranges = p.ranges ? p.ranges + (int64_t)part.b * num_tiles : nullptr;

    /* The tile of queries that is worked on; how many heads are left, and the next tile, of the
     * first of them. */
    int tile = part.tile, left_heads = p.h / p.kv;
    tile_fetch<E, KEYS>(queries + S::TILE, p.k + k_at, k_stride, p.t - first, p.e);
    tile_fetch<E, KEYS>(grads + S::TILE, p.v + k_at, k_stride, p.t - first, p.e);
    fetch_queries<E>(queries, grads, p, part.b, (part.head + 1) * (p.h / p.kv) - left_heads, tile);
    cu_cp_async_commit();
    stats[threadIdx.x] = fetch_stat(p, part.b, (part.head + 1) * (p.h / p.kv) - left_heads, tile);
    cu_cp_async_wait<0>();
    __syncthreads();
    struct left_factor<E, MT, true> left;
    left.init((grades ? grads : queries) + S::TILE + warp_row * E);

    float sums[MT][E / 8][4] = {};
    int at = 0; /* of the two tiles */
    while (left_heads > 0) {
        int next = 0;
        float stat = 0;
#pragma unroll 1
        for (int from = 0; from < QUERIES; from += WIDTH) {
            const bf16 *some = queries + at * S::TILE + from * E;
            const float *some_stats = stats + at * MMA_THREADS + from;
            float *told = weights + from * KEYS + warp_row * WIDTH;
            float s[MT][WIDTH / 8][4];
            product_across<E, MT, WIDTH>(s, left, some + (grades ? 2 * S::TILE : 0));
            if (grades) {
                subtract_dots(s, some_stats + QUERIES);
            } else {
                bool mixed = ranges && !ranges_meet_as_one(ranges[part.tile], ranges[tile]);
                if (mixed || tile == part.tile) {
                    mask_scores_slowly<MT, WIDTH>(
                        s, part.tile * KEYS + warp_row, tile * QUERIES + from, false,
                        mixed ? p.segments + (int64_t)part.b * p.t : nullptr, p.t);
                }
                weigh(s, told, some_stats, p.scale * (float)LOG2_E);
            }
            if (from > 0) {
                stats[(1 - at) * MMA_THREADS + (int)threadIdx.x] = stat;
                cu_cp_async_wait<0>();
            }
            /* Weights are there, and behind the second half all of next; in the first half, nobody
             * reads the other tiles any more. */
            __syncthreads();
            const bf16 *along = some + (grades ? 0 : 2 * S::TILE);
            if (grades) {
                grade(s, 0, told);
            }
            product_along_part<E, MT, WIDTH>(sums, s, 0, along);
            if (from == 0) { /* here registers are free for it */
                next = tile_behind(ranges, ranges ? ranges[part.tile] : int2{0, 0}, tile + 1,
                                   num_tiles);
                if (next == num_tiles) {
                    next = part.tile;
                    left_heads--;
                }
                if (left_heads > 0) {
                    int head = (part.head + 1) * (p.h / p.kv) - left_heads;
                    fetch_queries<E>(queries + (1 - at) * S::TILE, grads + (1 - at) * S::TILE, p,
                                     part.b, head, next);
                    stat = fetch_stat(p, part.b, head, next);
                }
                cu_cp_async_commit();
            }
            if (grades) {
                grade(s, 1, told);
            }
            product_along_part<E, MT, WIDTH>(sums, s, 1, along);
        }
        tile = next;
        at = 1 - at;
    }

    float factor = grades ? p.scale : 1.0f;
#pragma unroll
    for (int m = 0; m < MT; m++) {
#pragma unroll
        for (int n = 0; n < E / 8; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                sums[m][n][i] *= factor;
            }
        }
    }
    __syncthreads(); /* queries and gradients may still be read */
    tile_store<E, MT>((grades ? p.dk : p.dv) + k_at + warp_row * k_stride, k_stride,
                      p.t - first - warp_row, p.e, shared + warp * WARP_KEYS * E, sums);
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
    return p->e <= 32   ? launch<dkv_shape<32, 3>>(s, p)
           : p->e <= 64 ? launch<dkv_shape<64, 3>>(s, p)
           : p->e <= 96 ? launch<dkv_shape<96, 2>>(s, p)
                        : launch<dkv_shape<128, 2>>(s, p);
}
