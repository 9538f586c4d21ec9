/* Tiles of bf16 rows in shared memory, and products of them by tensor cores (mma.m16n8k16).
 *
 * A tile is rows of E numbers in chunks of eight (16 bytes). Chunks are swizzled, so that the eight
 * rows that an ldmatrix reads at the same column lie in eight different groups of four banks, and
 * so do eight neighbouring chunks of a copy. A row of 64 numbers fills all 32 banks: its chunks are
 * permuted by the row's number. A row of 32 fills half of them: two rows share a permutation.
 *
 * A warp holds 16 * MT rows of sums. Thread lane has of each 16 x 8 part the rows lane / 4 and
 * lane / 4 + 8, of each the columns 2 * (lane % 4) and the next: [part][4]. As the left factor of a
 * product, two neighbouring parts make the 16 x 16 part that an mma takes, so that scores go from
 * one product into the next without leaving registers. */
#ifndef TANDEM_KERNELS_CUDA_ATTENTION_MMA_CUH
#define TANDEM_KERNELS_CUDA_ATTENTION_MMA_CUH

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/vec.cuh"

typedef __nv_bfloat16 bf16;

#define MMA_WARPS 4
#define MMA_THREADS (MMA_WARPS * CU_WARP)
#define MMA_ROWS 16
#define CHUNK 8

/* Chunks that are permuted among each other, as they lie side by side in a row. */
template <int E> struct swizzle {
    static_assert(E % 32 == 0, "rows are whole halves of the banks");
    static constexpr int chunks = E % 64 == 0 ? 8 : 4;
    /* Threads side by side that copy a row. */
    static constexpr int copiers = E % 128 == 0 ? 16 : chunks;
};

/* Where a chunk of a row lies in a tile, in numbers. */
template <int E> static __device__ __forceinline__ int tile_at(int row, int chunk)
{
    int by = swizzle<E>::chunks == 8 ? row & 7 : row >> 1 & 3;
    return row * E + (chunk ^ by) * CHUNK;
}

/* Starts the copy of a tile's rows: `num` of them are there, the others become zeros, and so does
 * what is beyond e; where nothing is copied nothing is read, so the address may lie outside. As
 * many neighbours as chunks are permuted copy side by side, so that a thread's chunks all lie at
 * the same place of their rows but for a constant. */
template <int E, int ROWS>
static __device__ __forceinline__ void tile_fetch(bf16 *tile, const bf16 *src, int stride, int num,
                                                  int e)
{
    constexpr int across = swizzle<E>::copiers;
    constexpr int down = MMA_THREADS / across;
    static_assert(down % 8 == 0 && ROWS % down == 0 && E / CHUNK % across == 0,
                  "all threads copy the same");
    int thread = cu_anew((int)threadIdx.x);
    int row = thread / across;
    int chunk = thread % across;
    cu_shared_at to = cu_shared_of(tile + tile_at<E>(row, chunk));
    const bf16 *from = src + row * stride + chunk * CHUNK;
    int64_t step = (int64_t)down * stride;
#pragma unroll
    for (int r = 0; r < ROWS; r += down) {
#pragma unroll
        for (int c = 0; c < E / CHUNK; c += across) {
            bool full = row + r < num && (chunk + c) * CHUNK < e;
            cu_cp_async16(to + (cu_shared_at)(r * E + c * CHUNK) * sizeof(bf16), from + c * CHUNK,
                          full);
        }
        from += step;
    }
}

/* Parts of 16 x 16 numbers as ldmatrix takes them: of a lane, where its row of the part at (0, 0)
 * lies; and from there, that of the part at row 0 and column 16 * k. What a lane's row adds to the
 * permutation is in the first; the second is one instruction, whatever the tile. */
template <int E> static __device__ __forceinline__ cu_shared_at part_left(const bf16 *tile)
{
    int lane = (int)threadIdx.x % CU_WARP;
    return cu_shared_of(tile) + (cu_shared_at)tile_at<E>(lane % 16, lane / 16) * sizeof(bf16);
}
/* Of a right factor whose columns are the tile's rows. Where its rows are the tile's: part_left. */
template <int E> static __device__ __forceinline__ cu_shared_at part_across(const bf16 *tile)
{
    int lane = (int)threadIdx.x % CU_WARP;
    return cu_shared_of(tile) +
           (cu_shared_at)tile_at<E>(lane / 16 * 8 + lane % 8, lane / 8 % 2) * sizeof(bf16);
}
template <int E> static __device__ __forceinline__ cu_shared_at part_at(cu_shared_at part, int k)
{
    constexpr int parts = swizzle<E>::chunks / 2;
    return (part ^ (cu_shared_at)(k % parts * 32)) + (cu_shared_at)(k / parts * parts * 32);
}
/* Bytes from a part to the one that many rows further down. */
template <int E> static __device__ __forceinline__ cu_shared_at part_down(int rows)
{
    return (cu_shared_at)(rows * E) * sizeof(bf16);
}

/* Left factors of a warp's rows: kept in registers, or read again each time. */
template <int E, int MT, bool KEPT> struct left_factor {
    uint32_t a[MT][E / 16][4];
    __device__ __forceinline__ void init(const bf16 *rows)
    {
#pragma unroll
        for (int m = 0; m < MT; m++) {
#pragma unroll
            for (int k = 0; k < E / 16; k++) {
                cu_ldmatrix_x4(a[m][k],
                               part_at<E>(part_left<E>(rows), k) + part_down<E>(m * MMA_ROWS));
            }
        }
    }
    __device__ __forceinline__ void get(uint32_t out[4], int m, int k) const
    {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            out[i] = a[m][k][i];
        }
    }
};
template <int E, int MT> struct left_factor<E, MT, false> {
    cu_shared_at part;
    __device__ __forceinline__ void init(const bf16 *rows)
    {
        part = part_left<E>(rows);
    }
    __device__ __forceinline__ void get(uint32_t out[4], int m, int k) const
    {
        cu_ldmatrix_x4(out, part_at<E>(part, k) + part_down<E>(m * MMA_ROWS));
    }
};

/* sums [16 MT, N] = left [16 MT, E] * (N rows of a tile)^T. */
template <int E, int MT, int N, bool KEPT>
static __device__ __forceinline__ void product_across(float (&sums)[MT][N / 8][4],
                                                      const struct left_factor<E, MT, KEPT> &left,
                                                      const bf16 *tile)
{
    cu_shared_at part = part_across<E>(tile);
#pragma unroll
    for (int m = 0; m < MT; m++) {
#pragma unroll
        for (int n = 0; n < N / 8; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                sums[m][n][i] = 0;
            }
        }
    }
#pragma unroll
    for (int k = 0; k < E / 16; k++) {
        uint32_t a[MT][4];
#pragma unroll
        for (int m = 0; m < MT; m++) {
            left.get(a[m], m, k);
        }
#pragma unroll
        for (int n = 0; n < N / 16; n++) {
            uint32_t b[4];
            cu_ldmatrix_x4(b, part_at<E>(part, k) + part_down<E>(n * 16));
#pragma unroll
            for (int m = 0; m < MT; m++) {
                cu_mma_16816_bf16(sums[m][2 * n], a[m], b);
                cu_mma_16816_bf16(sums[m][2 * n + 1], a[m], b + 2);
            }
        }
    }
}

static __device__ __forceinline__ uint32_t pack_bf16(float low, float high)
{
    __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    uint32_t word;
    memcpy(&word, &pair, sizeof word);
    return word;
}

/* sums [16 MT, E] += the k-th 16 columns of left [16 MT, N], rounded to bf16, * (as many of N rows
 * of a tile). */
template <int E, int MT, int N>
static __device__ __forceinline__ void product_along_part(float (&sums)[MT][E / 8][4],
                                                          const float (&left)[MT][N / 8][4], int k,
                                                          const bf16 *tile)
{
    cu_shared_at part = part_left<E>(tile);
    uint32_t a[MT][4];
#pragma unroll
    for (int m = 0; m < MT; m++) {
        const float(&x)[4] = left[m][2 * k];
        const float(&y)[4] = left[m][2 * k + 1];
        a[m][0] = pack_bf16(x[0], x[1]);
        a[m][1] = pack_bf16(x[2], x[3]);
        a[m][2] = pack_bf16(y[0], y[1]);
        a[m][3] = pack_bf16(y[2], y[3]);
    }
#pragma unroll
    for (int n = 0; n < E / 16; n++) {
        uint32_t b[4];
        cu_ldmatrix_x4_trans(b, part_at<E>(part, n) + part_down<E>(k * 16));
#pragma unroll
        for (int m = 0; m < MT; m++) {
            cu_mma_16816_bf16(sums[m][2 * n], a[m], b);
            cu_mma_16816_bf16(sums[m][2 * n + 1], a[m], b + 2);
        }
    }
}

/* sums [16 MT, E] += left [16 MT, N], rounded to bf16, * (N rows of a tile). */
template <int E, int MT, int N>
static __device__ __forceinline__ void
product_along(float (&sums)[MT][E / 8][4], const float (&left)[MT][N / 8][4], const bf16 *tile)
{
#pragma unroll
    for (int k = 0; k < N / 16; k++) {
        product_along_part<E, MT, N>(sums, left, k, tile);
    }
}

/* A warp's rows of sums go to dst (row 0 of the warp; `num` rows are there, e numbers each), by way
 * of the warp's own 16 * MT rows of a tile, so that 16 bytes are stored at a time. */
template <int E, int MT>
static __device__ __forceinline__ void tile_store(bf16 *dst, int stride, int num, int e, bf16 *tile,
                                                  const float (&sums)[MT][E / 8][4])
{
    constexpr int chunks = E / CHUNK;
    int lane = (int)threadIdx.x % CU_WARP;
#pragma unroll
    for (int m = 0; m < MT; m++) {
#pragma unroll
        for (int n = 0; n < E / 8; n++) {
            int row = m * MMA_ROWS + lane / 4;
            const float(&x)[4] = sums[m][n];
            uint32_t *low = (uint32_t *)(tile + tile_at<E>(row, n));
            uint32_t *high = (uint32_t *)(tile + tile_at<E>(row + 8, n));
            low[lane % 4] = pack_bf16(x[0], x[1]);
            high[lane % 4] = pack_bf16(x[2], x[3]);
        }
    }
    __syncwarp();
#pragma unroll
    for (int n = 0; n < MT * MMA_ROWS * chunks / CU_WARP; n++) {
        int i = n * CU_WARP + lane;
        int row = i / chunks;
        int chunk = i % chunks;
        if (row < num && chunk * CHUNK < e) {
            vec_store<bf16, CHUNK>(dst + row * stride + chunk * CHUNK,
                                   vec_load<bf16, CHUNK>(tile + tile_at<E>(row, chunk)));
        }
    }
}

/* Minus infinity where a query may not see a key; rows are queries, or keys. */
template <int MT, int N>
static __device__ __forceinline__ void mask_scores(float (&s)[MT][N / 8][4], int first_row,
                                                   int first_column, bool rows_are_queries,
                                                   const int32_t *segments, int t)
{
    int lane = (int)threadIdx.x % CU_WARP;
#pragma unroll
    for (int m = 0; m < MT; m++) {
        int row = first_row + m * MMA_ROWS + lane / 4;
        int of_row[2] = {0, 0};
        if (segments) {
            of_row[0] = row < t ? segments[row] : 0;
            of_row[1] = row + 8 < t ? segments[row + 8] : 0;
        }
#pragma unroll
        for (int n = 0; n < N / 8; n++) {
#pragma unroll
            for (int c = 0; c < 2; c++) {
                int column = first_column + n * 8 + 2 * (lane % 4) + c;
                int of_column = segments && column < t ? segments[column] : 0;
#pragma unroll
                for (int lower = 0; lower < 2; lower++) {
                    int ahead = row + 8 * lower - column;
                    bool sees =
                        (rows_are_queries ? ahead >= 0 : ahead <= 0) && of_column == of_row[lower];
                    s[m][n][2 * lower + c] = sees ? s[m][n][2 * lower + c] : -INFINITY;
                }
            }
        }
    }
}

/* Of a thread's scores in a row of parts, which are of one segment: bit 4 * part + place. */
static __device__ __forceinline__ uint32_t scores_of_one(const int32_t *segments, int row,
                                                         int first_column, int num_parts, int t)
{
    int lane = (int)threadIdx.x % CU_WARP;
    int upper = row < t ? segments[row] : 0;
    int lower = row + 8 < t ? segments[row + 8] : 0;
    uint32_t bits = 0;
#pragma unroll 1
    for (int i = 0; i < 2 * num_parts; i++) {
        int column = first_column + i / 2 * 8 + 2 * (lane % 4) + i % 2;
        int of_column = column < t ? segments[column] : 0;
        uint32_t both = (of_column == upper ? 1u : 0u) | (of_column == lower ? 4u : 0u);
        bits |= both << (i / 2 * 4 + i % 2);
    }
    return bits;
}

/* As mask_scores, where no registers are left: segments are compared one after the other. */
template <int MT, int N>
static __device__ __forceinline__ void mask_scores_slowly(float (&s)[MT][N / 8][4], int first_row,
                                                          int first_column, bool rows_are_queries,
                                                          const int32_t *segments, int t)
{
    static_assert(N <= 64, "a word has a bit for each of a thread's scores");
    int lane = (int)threadIdx.x % CU_WARP;
#pragma unroll
    for (int m = 0; m < MT; m++) {
        int row = first_row + m * MMA_ROWS + lane / 4;
        int ahead = row - first_column - 2 * (lane % 4);
        uint32_t one = segments ? scores_of_one(segments, row, first_column, N / 8, t) : ~0u;
#pragma unroll
        for (int n = 0; n < N / 8; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int by = n * 8 + i % 2 - i / 2 * 8;
                bool sees =
                    (rows_are_queries ? ahead >= by : ahead <= by) && one >> (n * 4 + i) & 1;
                s[m][n][i] = sees ? s[m][n][i] : -INFINITY;
            }
        }
    }
}

/* Over the four lanes that share a row. */
static __device__ __forceinline__ float row_max(float x)
{
    x = fmaxf(x, __shfl_xor_sync(CU_ALL_LANES, x, 1));
    return fmaxf(x, __shfl_xor_sync(CU_ALL_LANES, x, 2));
}
static __device__ __forceinline__ float row_sum(float x)
{
    x += __shfl_xor_sync(CU_ALL_LANES, x, 1);
    return x + __shfl_xor_sync(CU_ALL_LANES, x, 2);
}

#endif
