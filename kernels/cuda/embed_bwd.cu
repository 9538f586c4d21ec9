/* The gradient of an embedding, always summed in the same order and without atomics: rows are
 * sorted by id and, within one, by row; then a block sums each run of rows with one id.
 *
 * Sorting: tiles in shared memory, then up to MERGE_WAYS runs at a time, where each key finds its
 * place by binary searches in the other runs: two or three launches for 32 k rows. Runs that are
 * longer than WORKSPACE_EMBED_PIECE rows are summed in pieces, which a last launch adds in order.
 *
 * Bytes: 16 a row and sorting launch; then dy once, and dw read and written (8 a number) once for
 * each id that is there. It doesn't depend on the size of the vocabulary. */
#include "kernels/cuda/launch.h"
#include "kernels/cuda/vec.cuh"

#define SORT_THREADS 512
#define TILE 2048
#define MERGE_THREADS 256
#define MERGE_WAYS 16
#define SUM_THREADS 128
#define PIECE WORKSPACE_EMBED_PIECE

static_assert(PIECE <= SUM_THREADS, "a piece's keys are read at once");

/* Row of the table above, row of dy below: all differ. What isn't in the table sorts behind all. */
#define NOWHERE 0xffffffffu

static __device__ __forceinline__ uint32_t key_id(uint64_t key)
{
    return (uint32_t)(key >> 32);
}

/* Sorts keys of rows blockIdx.x * TILE ... : bitonic; each pair is one thread's. */
static __global__ void __launch_bounds__(SORT_THREADS)
    tile_sort_kernel(uint64_t *__restrict__ keys, const int32_t *__restrict__ ids, int64_t first,
                     int64_t r, int64_t v)
{
    CU_SHARED(uint64_t, tile, [TILE]);
    int64_t from = (int64_t)blockIdx.x * TILE;
    int num = 1;
    while (num < TILE && num < r - from) {
        num *= 2;
    }
    for (int i = (int)threadIdx.x; i < num; i += SORT_THREADS) {
        int64_t id = from + i < r ? (int64_t)ids[from + i] - first : -1;
        uint32_t high = id >= 0 && id < v ? (uint32_t)id : NOWHERE;
        tile[i] = (uint64_t)high << 32 | (from + i < r ? (uint32_t)(from + i) : NOWHERE);
    }
    for (int size = 2; size <= num; size *= 2) {
        for (int apart = size / 2; apart > 0; apart /= 2) {
            __syncthreads();
            for (int i = (int)threadIdx.x; i < num / 2; i += SORT_THREADS) {
                int low = 2 * i - (i & (apart - 1));
                bool up = (low & size) == 0;
                uint64_t a = tile[low];
                uint64_t b = tile[low + apart];
                if ((a > b) == up) {
                    tile[low] = b;
                    tile[low + apart] = a;
                }
            }
        }
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < num && from + i < r; i += SORT_THREADS) {
        keys[from + i] = tile[i];
    }
}

/* How many of keys[0..n) are below `key`. */
static __device__ __forceinline__ int64_t count_below(const uint64_t *keys, int64_t n, uint64_t key)
{
    int64_t low = 0;
    while (n > 0) {
        int64_t middle = n / 2;
        bool below = keys[low + middle] < key;
        low += below ? middle + 1 : 0;
        n = below ? n - middle - 1 : middle;
    }
    return low;
}

/* Runs of `run` keys (a power of two), each sorted, become runs of MERGE_WAYS times as many. A
 * key's place is how many are below it in its own run and in the others, which are searched side by
 * side, so that their reads are under way together. */
static __global__ void __launch_bounds__(MERGE_THREADS)
    merge_kernel(uint64_t *__restrict__ out, const uint64_t *__restrict__ in, int64_t r,
                 int64_t run)
{
    int64_t i = (int64_t)blockIdx.x * MERGE_THREADS + threadIdx.x;
    if (i < r) {
        uint64_t key = in[i];
        int64_t group = i / (run * MERGE_WAYS) * (run * MERGE_WAYS);
        int mine = (int)((i - group) / run);
        int below[MERGE_WAYS] = {};
        for (int64_t step = run; step > 0; step /= 2) {
#pragma unroll
            for (int way = 0; way < MERGE_WAYS; way++) {
                int64_t begin = group + way * run;
                int64_t end = begin + run < r ? begin + run : r;
                int64_t at = begin + below[way] + step;
                if (way != mine && at <= end && in[at - 1] < key) {
                    below[way] += (int)step;
                }
            }
        }
        int64_t place = i - mine * run;
#pragma unroll
        for (int way = 0; way < MERGE_WAYS; way++) {
            place += below[way];
        }
        out[place] = key;
    }
}

static __device__ __forceinline__ bool same_id(const uint64_t *keys, int64_t at, int64_t r,
                                               uint32_t id)
{
    return at >= 0 && at < r && key_id(keys[at]) == id;
}

/* Where the sums of the piece that begins at `at` lie, if it isn't the only one of its id: in PIECE
 * places at most one piece that is its id's first begins, and one that isn't. */
static __device__ __forceinline__ int64_t piece_slot(int64_t at, bool is_first)
{
    return at / PIECE * 2 + (is_first ? 1 : 0);
}

/* Block `at` sums the piece that begins at the sorted row `at`, if one does. */
template <class T, int N>
static __global__ void __launch_bounds__(SUM_THREADS)
    piece_kernel(float *dw, float *__restrict__ sums, const uint64_t *__restrict__ keys,
                 const T *__restrict__ dy, int64_t r, int64_t d)
{
    int64_t at = blockIdx.x;
    uint32_t id = key_id(keys[at]);
    bool is_first = !same_id(keys, at - 1, r, id);
    bool begins = id != NOWHERE;
    if (begins && !is_first) {
        begins = same_id(keys, at - PIECE, r, id) &&
                 (at - count_below(keys, at, (uint64_t)id << 32)) % PIECE == 0;
    }
    bool mine = threadIdx.x < PIECE && same_id(keys, at + threadIdx.x, r, id);
    int num = __syncthreads_count(mine); /* sorted: they lie side by side */
    bool only = is_first && !same_id(keys, at + PIECE, r, id);
    float *to = only ? dw + (int64_t)id * d : sums + piece_slot(at, is_first) * d;
    int64_t end = begins ? d : 0;
    for (int64_t i = (int64_t)threadIdx.x * N; i < end; i += SUM_THREADS * N) {
        float sum[N] = {};
#pragma unroll 4
        for (int k = 0; k < num; k++) {
            float f[N];
            cu_load<T, N>(f, dy + (int64_t)(uint32_t)keys[at + k] * d + i);
#pragma unroll
            for (int j = 0; j < N; j++) {
                sum[j] += f[j];
            }
        }
        if (only) {
            float was[N];
            cu_load<float, N>(was, to + i);
#pragma unroll
            for (int j = 0; j < N; j++) {
                sum[j] += was[j];
            }
        }
        cu_store(to + i, sum);
    }
}

/* Block i adds the pieces of the id whose first row is one of the PIECE sorted rows from i * PIECE
 * on, if it has more than one piece: no two have. */
template <int N>
static __global__ void __launch_bounds__(SUM_THREADS)
    add_pieces_kernel(float *dw, const float *__restrict__ sums, const uint64_t *__restrict__ keys,
                      int64_t r, int64_t d)
{
    CU_SHARED(int64_t, begin, [1]);
    if (threadIdx.x == 0) {
        begin[0] = -1;
    }
    __syncthreads();
    int64_t mine = (int64_t)blockIdx.x * PIECE + threadIdx.x;
    if (threadIdx.x < PIECE && mine < r) {
        uint32_t id = key_id(keys[mine]);
        if (id != NOWHERE && !same_id(keys, mine - 1, r, id) &&
            same_id(keys, mine + PIECE, r, id)) {
            begin[0] = mine;
        }
    }
    __syncthreads();
    int64_t at = begin[0];
    uint32_t id = at < 0 ? NOWHERE : key_id(keys[at]);
    int64_t first = ((int64_t)blockIdx.y * SUM_THREADS + threadIdx.x) * N;
    if (at >= 0 && first < d) {
        float sum[N];
        cu_load<float, N>(sum, sums + piece_slot(at, true) * d + first);
#pragma unroll 4
        for (int64_t next = at + PIECE; same_id(keys, next, r, id); next += PIECE) {
            float f[N];
            cu_load<float, N>(f, sums + piece_slot(next, false) * d + first);
#pragma unroll
            for (int j = 0; j < N; j++) {
                sum[j] += f[j];
            }
        }
        float was[N];
        float *to = dw + (int64_t)id * d + first;
        cu_load<float, N>(was, to);
#pragma unroll
        for (int j = 0; j < N; j++) {
            was[j] += sum[j];
        }
        cu_store(to, was);
    }
}

/* Returns where the sorted keys lie: keys or more. */
static uint64_t *sort(cudaStream_t s, uint64_t *keys, uint64_t *more, const int32_t *ids,
                      int64_t first, int64_t r, int64_t v)
{
    CU_LAUNCH(tile_sort_kernel, dim3((unsigned)((r + TILE - 1) / TILE)), dim3(SORT_THREADS), 0, s,
              keys, ids, first, r, v);
    for (int64_t run = TILE; run < r; run *= MERGE_WAYS) {
        CU_LAUNCH(merge_kernel, dim3((unsigned)((r + MERGE_THREADS - 1) / MERGE_THREADS)),
                  dim3(MERGE_THREADS), 0, s, more, (const uint64_t *)keys, r, run);
        uint64_t *sorted = more;
        more = keys;
        keys = sorted;
    }
    return keys;
}

template <class T>
static cudaError_t backward(cudaStream_t s, float *dw, const T *dy, const uint64_t *keys,
                            float *sums, int64_t r, int64_t d)
{
    constexpr int wide = per_16_bytes<T>::value;
    bool fits = vec_fits(dy, d) && vec_fits(dw, d);
    auto piece = fits ? piece_kernel<T, wide> : piece_kernel<T, 1>;
    CU_LAUNCH(piece, dim3((unsigned)r), dim3(SUM_THREADS), 0, s, dw, sums, keys, dy, r, d);
    if (r > PIECE) {
        int n = fits ? 4 : 1;
        auto add = fits ? add_pieces_kernel<4> : add_pieces_kernel<1>;
        int64_t across = (d + (int64_t)SUM_THREADS * n - 1) / ((int64_t)SUM_THREADS * n);
        CU_LAUNCH(add, dim3((unsigned)((r + PIECE - 1) / PIECE), (unsigned)across),
                  dim3(SUM_THREADS), 0, s, dw, (const float *)sums, keys, r, d);
    }
    return cudaGetLastError();
}

extern "C" cudaError_t cuda_embed_bwd(cudaStream_t s, enum dtype t, float *dw, const void *dy,
                                      const int32_t *ids, int64_t first, int64_t r, int64_t v,
                                      int64_t d, void *workspace)
{
    bool fits =
        r >= 0 && r <= INT32_MAX && v >= 0 && v <= INT32_MAX && d >= 0 && d <= 65535 * SUM_THREADS;
    if (!fits || (t != DTYPE_F32 && t != DTYPE_BF16)) {
        return cudaErrorInvalidValue;
    }
    if (r == 0 || d == 0 || v == 0) {
        return cudaSuccess;
    }
    char *mem = (char *)workspace;
    uint64_t *keys = (uint64_t *)mem;
    uint64_t *more = (uint64_t *)(mem + workspace_embed_keys(r));
    float *sums = r > PIECE ? (float *)(mem + 2 * workspace_embed_keys(r)) : nullptr;
    const uint64_t *sorted = sort(s, keys, more, ids, first, r, v);
    return t == DTYPE_F32 ? backward(s, dw, (const float *)dy, sorted, sums, r, d)
                          : backward(s, dw, (const __nv_bfloat16 *)dy, sorted, sums, r, d);
}
