/* What attention's kernels share: what they are given, which tiles they can leave out, and how they
 * are cut into blocks. */
#ifndef TANDEM_KERNELS_CUDA_ATTENTION_CUH
#define TANDEM_KERNELS_CUDA_ATTENTION_CUH

#include "kernels/cuda/cu.h"
#include "kernels/cuda/launch.h"

#define ATTENTION_TILE WORKSPACE_ATTENTION_TILE
#define LOG2_E 1.4426950408889634
#define LN_2 0.6931471805599453

/* struct attention_args as a kernel takes it; T is the numbers' type. */
template <class T> struct attention_problem {
    const T *q, *k, *v, *o, *d_o;
    T *out, *dq, *dk, *dv;
    float *lse;
    float *dots;             /* [B,H,T]: sum(dO * O) */
    const int32_t *segments; /* [B,T] or NULL */
    const int2 *ranges;      /* [B, tiles]: least and largest segment of each tile */
    int b, t, h, kv, e;
    float scale;
};

/* One block's part: a tile of positions of one sequence and head. */
struct attention_part {
    int tile, b, head;
};

/* Blocks are dealt out so that those with the longest way come first, and neighbours read the same
 * keys. */
template <class T>
static __device__ __forceinline__ struct attention_part
attention_part_of(const struct attention_problem<T> &p, int num_heads, bool last_first)
{
    int num_tiles = (int)(gridDim.x / (unsigned)(p.b * num_heads));
    int row = (int)blockIdx.x % (p.b * num_heads);
    int tile = (int)blockIdx.x / (p.b * num_heads);
    return {last_first ? num_tiles - 1 - tile : tile, row / num_heads, row % num_heads};
}

/* The numbers of position i of a head in [B,T,heads,E]. */
static __device__ __forceinline__ int64_t attention_at(int b, int i, int head, int t, int heads,
                                                       int e)
{
    return (((int64_t)b * t + i) * heads + head) * e;
}

static __device__ __forceinline__ bool ranges_meet(int2 x, int2 y)
{
    return x.x <= y.y && y.x <= x.y;
}

/* Is all of both one segment? */
static __device__ __forceinline__ bool ranges_meet_as_one(int2 x, int2 y)
{
    return x.x == x.y && y.x == y.y && x.x == y.x;
}

/* The largest tile up to `tile` whose segments meet those of `mine`; -1 = none. All lanes come, and
 * get the same. Segments needn't be sorted: a tile that is left out holds nothing for sure. */
static __device__ __forceinline__ int tile_before(const int2 *ranges, int2 mine, int tile)
{
    int lane = (int)threadIdx.x % CU_WARP;
    for (; ranges && tile >= 0; tile -= CU_WARP) {
        bool meet = tile - lane >= 0 && ranges_meet(ranges[tile - lane], mine);
        unsigned votes = __ballot_sync(CU_ALL_LANES, meet);
        if (votes) {
            return tile - (__ffs((int)votes) - 1);
        }
    }
    return tile < 0 ? -1 : tile;
}

/* The least one from `tile` on; num_tiles = none. */
static __device__ __forceinline__ int tile_behind(const int2 *ranges, int2 mine, int tile,
                                                  int num_tiles)
{
    int lane = (int)threadIdx.x % CU_WARP;
    for (; ranges && tile < num_tiles; tile += CU_WARP) {
        bool meet = tile + lane < num_tiles && ranges_meet(ranges[tile + lane], mine);
        unsigned votes = __ballot_sync(CU_ALL_LANES, meet);
        if (votes) {
            return tile + (__ffs((int)votes) - 1);
        }
    }
    return tile < num_tiles ? tile : num_tiles;
}

/* By tensor cores: bf16, E a multiple of 8 from 8 to 128, all rows at multiples of 16 bytes. */
cudaError_t attention_mma_fwd(cudaStream_t s, const struct attention_problem<__nv_bfloat16> *p);
cudaError_t attention_mma_dq(cudaStream_t s, const struct attention_problem<__nv_bfloat16> *p);
cudaError_t attention_mma_dkv(cudaStream_t s, const struct attention_problem<__nv_bfloat16> *p);

/* By single products: anything. */
template <class T>
cudaError_t attention_simt_fwd(cudaStream_t s, const struct attention_problem<T> *p);
template <class T>
cudaError_t attention_simt_bwd(cudaStream_t s, const struct attention_problem<T> *p);

#endif
