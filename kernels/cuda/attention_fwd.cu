/* Attention's forward pass by tensor cores: a block takes a tile of queries of one head and goes
 * through the keys from its diagonal backwards, with a running softmax to base 2.
 * Source: Dao 2023 (FlashAttention-2), algorithm 1. */
#include "kernels/cuda/attention_mma.cuh"

#define KEYS ATTENTION_TILE

/* MT: parts of 16 rows a warp. WIDTH: keys whose scores are in registers at a time. KEPT: queries
 * stay there. */
template <int E_, int MT_, int WIDTH_, bool KEPT_, int BLOCKS_> struct fwd_shape {
    static constexpr int E = E_, MT = MT_, WIDTH = WIDTH_, BLOCKS = BLOCKS_;
    static constexpr bool KEPT = KEPT_;
    static constexpr int ROWS = MMA_WARPS * MMA_ROWS * MT;
    static constexpr int TILE = KEYS * E;
    /* Twice a tile of keys and one of values; queries come by way of the second two where they
     * don't stay in shared memory, behind these. */
    static constexpr int BYTES = (4 * TILE + (KEPT ? 0 : ROWS * E)) * 2;
    static_assert(ROWS <= 2 * KEYS, "queries fit into two tiles");
};

/* The softmax so far of a warp's rows; [part][lane / 4, lane / 4 + 8]. */
template <int MT> struct running {
    float max[MT][2], sum[MT][2];
};

/* Scores become their weights; what was summed before is scaled to the new maximum. */
template <int E, int MT, int WIDTH>
static __device__ __forceinline__ void soften(float (&s)[MT][WIDTH / 8][4],
                                              float (&out)[MT][E / 8][4], struct running<MT> *run,
                                              float scale)
{
    float keep[MT][2];
    bool all = true;
#pragma unroll
    for (int m = 0; m < MT; m++) {
#pragma unroll
        for (int lower = 0; lower < 2; lower++) {
            float top = run->max[m][lower];
#pragma unroll
            for (int n = 0; n < WIDTH / 8; n++) {
                top = fmaxf(top, fmaxf(s[m][n][2 * lower], s[m][n][2 * lower + 1]));
            }
            top = row_max(top);
            /* A row that has seen nothing yet. */
            float base = top == -INFINITY ? 0.0f : top * scale;
            keep[m][lower] = cu_exp2(run->max[m][lower] * scale - base);
            all = all && keep[m][lower] == 1;
            float sum = run->sum[m][lower] * keep[m][lower];
#pragma unroll
            for (int n = 0; n < WIDTH / 8; n++) {
#pragma unroll
                for (int c = 0; c < 2; c++) {
                    float p = cu_exp2(s[m][n][2 * lower + c] * scale - base);
                    s[m][n][2 * lower + c] = p;
                    sum += p;
                }
            }
            run->max[m][lower] = top;
            run->sum[m][lower] = sum;
        }
    }
    /* Maxima seldom change after the first tiles. */
    if (__all_sync(CU_ALL_LANES, all)) {
        return;
    }
#pragma unroll
    for (int m = 0; m < MT; m++) {
#pragma unroll
        for (int n = 0; n < E / 8; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                out[m][n][i] *= keep[m][i / 2];
            }
        }
    }
}

template <class S>
static __global__ void __launch_bounds__(MMA_THREADS, S::BLOCKS)
    attention_fwd_kernel(const struct attention_problem<bf16> p)
{
    constexpr int E = S::E, MT = S::MT, WIDTH = S::WIDTH;
    CU_DYN_SHARED(bf16, shared);
    bf16 *keys = shared, *values = shared + S::TILE;
    bf16 *queries = shared + (S::KEPT ? 2 : 4) * S::TILE;

    struct attention_part part = attention_part_of(p, p.h, true);
    int warp = (int)threadIdx.x / CU_WARP;
    int lane = (int)threadIdx.x % CU_WARP;
    int first = part.tile * S::ROWS;
    int first_row = first + warp * MMA_ROWS * MT;
    int kv = part.head / (p.h / p.kv);
    int q_stride = p.h * p.e, k_stride = p.kv * p.e;
    const bf16 *q = p.q + attention_at(part.b, first, part.head, p.t, p.h, p.e);
    int64_t k_at = attention_at(part.b, 0, kv, p.t, p.kv, p.e);
    const int32_t *segments = p.segments ? p.segments + (int64_t)part.b * p.t : nullptr;
    int num_tiles = (p.t + KEYS - 1) / KEYS;
    const int2 *ranges = p.ranges ? p.ranges + (int64_t)part.b * num_tiles : nullptr;
    int last = (first + S::ROWS - 1) / KEYS;
    last = last < num_tiles ? last : num_tiles - 1;
    int2 mine = {0, 0};
    if (ranges) {
        mine = ranges[first / KEYS];
        if (last > first / KEYS) {
            mine.x = min(mine.x, ranges[last].x);
            mine.y = max(mine.y, ranges[last].y);
        }
    }

    tile_fetch<E, S::ROWS>(queries, q, q_stride, p.t - first, p.e);
    tile_fetch<E, KEYS>(keys, p.k + k_at + (int64_t)(last * KEYS) * k_stride, k_stride,
                        p.t - last * KEYS, p.e);
    cu_cp_async_commit();
    tile_fetch<E, KEYS>(values, p.v + k_at + (int64_t)(last * KEYS) * k_stride, k_stride,
                        p.t - last * KEYS, p.e);
    cu_cp_async_commit();
    struct left_factor<E, MT, S::KEPT> left;
    if (S::KEPT) {
        cu_cp_async_wait<1>();
        __syncthreads();
    }
    left.init(queries + warp * MMA_ROWS * MT * E);

    float out[MT][E / 8][4] = {};
    struct running<MT> run;
#pragma unroll
    for (int m = 0; m < MT; m++) {
        run.max[m][0] = run.max[m][1] = -INFINITY;
        run.sum[m][0] = run.sum[m][1] = 0;
    }
    int at = 0; /* of the two tiles */
    for (int tile = last; tile >= 0; at = 1 - at) {
        int next = tile_before(ranges, mine, tile - 1);
        cu_cp_async_wait<1>();
        __syncthreads(); /* keys are there; nobody reads the others any more */
        if (next >= 0) {
            tile_fetch<E, KEYS>(keys + 2 * (1 - at) * S::TILE,
                                p.k + k_at + (int64_t)(next * KEYS) * k_stride, k_stride, KEYS,
                                p.e);
        }
        cu_cp_async_commit();
        bool mixed = ranges && !ranges_meet_as_one(mine, ranges[tile]);
#pragma unroll 1
        for (int from = 0; from < KEYS; from += WIDTH) {
            float s[MT][WIDTH / 8][4];
            product_across<E, MT, WIDTH>(s, left, keys + 2 * at * S::TILE + from * E);
            if (mixed || tile * KEYS + KEYS - 1 > first_row) {
                mask_scores<MT, WIDTH>(s, first_row, tile * KEYS + from, true,
                                       mixed ? segments : nullptr, p.t);
            }
            soften<E, MT, WIDTH>(s, out, &run, p.scale);
            if (from == 0) {
                cu_cp_async_wait<1>();
                __syncthreads(); /* values, too */
                if (next >= 0) {
                    tile_fetch<E, KEYS>(values + 2 * (1 - at) * S::TILE,
                                        p.v + k_at + (int64_t)(next * KEYS) * k_stride, k_stride,
                                        KEYS, p.e);
                }
                cu_cp_async_commit();
            }
            product_along<E, MT, WIDTH>(out, s, values + 2 * at * S::TILE + from * E);
        }
        tile = next;
    }
    cu_cp_async_wait<0>();

#pragma unroll
    for (int m = 0; m < MT; m++) {
#pragma unroll
        for (int lower = 0; lower < 2; lower++) {
            float sum = row_sum(run.sum[m][lower]);
            float inverse = 1 / sum;
            int row = first_row + m * MMA_ROWS + 8 * lower + lane / 4;
            if (lane % 4 == 0 && row < p.t) {
                p.lse[((int64_t)part.b * p.h + part.head) * p.t + row] =
                    run.max[m][lower] * p.scale * (float)LN_2 + logf(sum);
            }
#pragma unroll
            for (int n = 0; n < E / 8; n++) {
                out[m][n][2 * lower] *= inverse;
                out[m][n][2 * lower + 1] *= inverse;
            }
        }
    }
    __syncthreads(); /* values may still be read */
    tile_store<E, MT>(p.out + attention_at(part.b, first_row, part.head, p.t, p.h, p.e), q_stride,
                      p.t - first_row, p.e, shared + warp * MMA_ROWS * MT * E, out);
}

template <class S>
static cudaError_t launch(cudaStream_t s, const struct attention_problem<bf16> *p)
{
    int64_t num_blocks = (int64_t)((p->t + S::ROWS - 1) / S::ROWS) * p->b * p->h;
    if (num_blocks > INT32_MAX) {
        return cudaErrorInvalidValue;
    }
    cudaError_t e = cudaFuncSetAttribute((const void *)attention_fwd_kernel<S>,
                                         cudaFuncAttributeMaxDynamicSharedMemorySize, S::BYTES);
    if (e == cudaSuccess) {
        CU_LAUNCH(attention_fwd_kernel<S>, dim3((unsigned)num_blocks), dim3(MMA_THREADS), S::BYTES,
                  s, *p);
        e = cudaGetLastError();
    }
    return e;
}

cudaError_t attention_mma_fwd(cudaStream_t s, const struct attention_problem<bf16> *problem)
{
    struct attention_problem<bf16> p = *problem;
    p.scale *= (float)LOG2_E;
    return p.e <= 32   ? launch<fwd_shape<32, 2, 64, true, 2>>(s, &p)
           : p.e <= 64 ? launch<fwd_shape<64, 2, 64, true, 2>>(s, &p)
           : p.e <= 96 ? launch<fwd_shape<96, 2, 64, false, 2>>(s, &p)
                       : launch<fwd_shape<128, 2, 32, false, 2>>(s, &p);
}
