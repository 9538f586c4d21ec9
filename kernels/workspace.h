/* What the CUDA backend's operations need of their caller's workspace, in bytes: arithmetic alone,
 * the same on every device, so that who plans memory and who launches can't differ.
 *
 * Blocks: enough for the 132 multiprocessors of an H100; fewer of them only take longer. The counts
 * are constants, because they fix the order of sums: the same bits on every device. */
#ifndef TANDEM_KERNELS_WORKSPACE_H
#define TANDEM_KERNELS_WORKSPACE_H

#include <stddef.h>
#include <stdint.h>

#define WORKSPACE_ALIGN 256 /* of where each part of a workspace begins in it */

static inline size_t workspace_aligned(int64_t bytes)
{
    return (size_t)((bytes + WORKSPACE_ALIGN - 1) / WORKSPACE_ALIGN * WORKSPACE_ALIGN);
}

/* Backward passes of norms: each block's part of the parameters' gradients, f32. */
#define WORKSPACE_NORM_PARTS 396

static inline int64_t workspace_norm_parts(int64_t r)
{
    return r < WORKSPACE_NORM_PARTS ? r : WORKSPACE_NORM_PARTS;
}

static inline size_t workspace_cuda_rmsnorm_bwd(int64_t r, int64_t d)
{
    return (size_t)(workspace_norm_parts(r) * d) * sizeof(float);
}

static inline size_t workspace_cuda_layernorm_bwd(int64_t r, int64_t d)
{
    return 2 * (size_t)(workspace_norm_parts(r) * d) * sizeof(float);
}

/* Sums of squares: each block's sum, double, for each launch; a launch takes so many spans. */
#define WORKSPACE_SQUARES_PARTS 528
#define WORKSPACE_SQUARES_SPANS 192

static inline int64_t workspace_squares_launches(int32_t num_spans)
{
    int64_t launches = ((int64_t)num_spans + WORKSPACE_SQUARES_SPANS - 1) / WORKSPACE_SQUARES_SPANS;
    return launches > 0 ? launches : 1;
}

static inline size_t workspace_cuda_sum_squares(int32_t num_spans)
{
    return (size_t)(workspace_squares_launches(num_spans) * WORKSPACE_SQUARES_PARTS) *
           sizeof(double);
}

/* The gradient of an embedding: rows sorted by their ids, twice (8 bytes a row); and the sums of
 * pieces, f32, of ids that have more rows than one piece: at most two begin in each run of so many
 * sorted rows. It doesn't depend on the vocabulary. */
#define WORKSPACE_EMBED_PIECE 64

static inline size_t workspace_embed_keys(int64_t r)
{
    return workspace_aligned(r * (int64_t)sizeof(uint64_t));
}

static inline size_t workspace_cuda_embed_bwd(int64_t r, int64_t d)
{
    int64_t pieces = r > WORKSPACE_EMBED_PIECE
                         ? 2 * ((r + WORKSPACE_EMBED_PIECE - 1) / WORKSPACE_EMBED_PIECE)
                         : 0;
    return 2 * workspace_embed_keys(r) + workspace_aligned(pieces * d * (int64_t)sizeof(float));
}

/* Attention: of each query and head sum(dO * O), f32; of each tile of positions the least and the
 * largest segment, int32. The same for all types; the forward pass uses it with segments only. */
#define WORKSPACE_ATTENTION_TILE 64

static inline size_t workspace_attention_dots(int64_t b, int64_t t, int64_t h)
{
    return workspace_aligned(b * h * t * (int64_t)sizeof(float));
}

static inline size_t workspace_cuda_attention(int64_t b, int64_t t, int64_t h, int64_t kv,
                                              int64_t e)
{
    (void)kv;
    (void)e;
    int64_t tiles = (t + WORKSPACE_ATTENTION_TILE - 1) / WORKSPACE_ATTENTION_TILE;
    return workspace_attention_dots(b, t, h) +
           workspace_aligned(b * tiles * 2 * (int64_t)sizeof(int32_t));
}

/* Sums of columns have no workspace in the table of operations: whoever launches them keeps this
 * much for each stream: so many blocks' sums of up to 256 columns each. */
#define WORKSPACE_COLUMNS_BLOCKS 528
#define WORKSPACE_CUDA_COLUMN_SUM (WORKSPACE_COLUMNS_BLOCKS * 256 * sizeof(float))

#endif
