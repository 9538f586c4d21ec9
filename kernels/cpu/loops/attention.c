/* Attention by tiles of queries: scores of a tile against all keys it may see, softmax, product
 * with the values. The scratch of a thread holds two tiles; nothing of size T x T is kept.
 * Source of the backward pass: Dao et al. 2022, algorithm 4. */
#include "kernels/host/variant/variant.h"

#include <math.h>
#include <string.h>

#include "kernels/cpu/loops/blas.h"
#include "kernels/cpu/loops/block.h"
#include "kernels/cpu/loops/exp.h"

/* Queries of a tile: keeps a tile's scores within the second-level cache and wastes little above
 * the diagonal. */
#define TILE INT64_C(64)

/* A tile of one head: queries first..first+rows-1 see keys 0..keys-1 at most. */
struct tile {
    const struct attention_args *a;
    int64_t b, h, kv, first, rows, keys;
    int64_t q_row, k_row; /* distances of rows */
    int64_t q_at, k_at;   /* of the tile's first query; of the head's first key */
    real *lse;            /* of the tile's first query */
};

static struct tile tile_of(const struct attention_args *a, int64_t b, int64_t h, int64_t first)
{
    int64_t kv = h / (a->h / a->kv);
    int64_t rows = min_i64(TILE, a->t - first);
    return (struct tile){
        .a = a,
        .b = b,
        .h = h,
        .kv = kv,
        .first = first,
        .rows = rows,
        .keys = first + rows,
        .q_row = a->h * a->e,
        .k_row = a->kv * a->e,
        .q_at = ((b * a->t + first) * a->h + h) * a->e,
        .k_at = (b * a->t * a->kv + kv) * a->e,
        .lse = (real *)a->lse + (b * a->h + h) * a->t + first,
    };
}

/* out [rows, keys] = scale * q . k, for all of the tile, above the diagonal as well. */
static void tile_scores(const struct tile *t, real *out)
{
    const struct attention_args *a = t->a;
    blas_gemm(false, true, t->rows, t->keys, a->e, (real)a->scale, (const real *)a->q + t->q_at,
              t->q_row, (const real *)a->k + t->k_at, t->k_row, 0, out, t->keys);
}

/* What query i may not see gets the score of nothing. */
static void mask_segments(const struct tile *t, int64_t i, real *score)
{
    const int32_t *segments = t->a->segments + t->b * t->a->t;
    int32_t own = segments[i];
#pragma omp simd
    for (int64_t j = 0; j <= i; j++) {
        score[j] = segments[j] == own ? score[j] : -INFINITY;
    }
}

/* Turns row i's scores into probabilities. */
static void softmax_row(const struct tile *t, int64_t i, real *score)
{
    int64_t n = i + 1;
    real max = -INFINITY;
#pragma omp simd reduction(max : max)
    for (int64_t j = 0; j < n; j++) {
        max = score[j] > max ? score[j] : max;
    }
    real total = 0;
#pragma omp simd reduction(+ : total)
    for (int64_t j = 0; j < n; j++) {
        real p = exp_real(score[j] - max);
        score[j] = p;
        total += p;
    }
    real inv = 1 / total;
#pragma omp simd
    for (int64_t j = 0; j < n; j++) {
        score[j] *= inv;
    }
    memset(score + n, 0, (size_t)(t->keys - n) * sizeof *score);
    t->lse[i - t->first] = (real)((double)max + log((double)total));
}

static void forward_task(void *arg, int64_t task, int thread)
{
    const struct attention_args *a = arg;
    int64_t num_tiles = num_blocks(a->t, TILE);
    int64_t head = task / num_tiles;
    /* The longest tiles first, so that none is left over at the end. */
    int64_t first = (num_tiles - 1 - task % num_tiles) * TILE;
    struct tile t = tile_of(a, head / a->h, head % a->h, first);
    real *p = (real *)a->workspace + (int64_t)thread * 2 * TILE * a->t;
    tile_scores(&t, p);
    for (int64_t i = 0; i < t.rows; i++) {
        if (a->segments) {
            mask_segments(&t, t.first + i, p + i * t.keys);
        }
        softmax_row(&t, t.first + i, p + i * t.keys);
    }
    blas_gemm(false, false, t.rows, a->e, t.keys, 1, p, t.keys, (const real *)a->v + t.k_at,
              t.k_row, 0, (real *)a->o + t.q_at, t.q_row);
}

void OP(attention_fwd)(struct pool *pool, const void *args)
{
    struct attention_args a = *(const struct attention_args *)args;
    pool_run(pool, a.b * a.h * num_blocks(a.t, TILE), forward_task, &a);
}

/* p: scores in, probabilities out; ds: d_o . v in, the gradient of q . k out. */
static void backward_row(const struct tile *t, int64_t i, real *p, real *ds)
{
    const struct attention_args *a = t->a;
    int64_t n = i + 1;
    int64_t at = t->q_at + (i - t->first) * t->q_row;
    const real *o = (const real *)a->o + at;
    const real *d_o = (const real *)a->d_o + at;
    real delta = 0;
#pragma omp simd reduction(+ : delta)
    for (int64_t e = 0; e < a->e; e++) {
        delta += o[e] * d_o[e];
    }
    if (a->segments) {
        mask_segments(t, i, p);
    }
    real lse = t->lse[i - t->first];
    real scale = (real)a->scale;
#pragma omp simd
    for (int64_t j = 0; j < n; j++) {
        real prob = exp_real(p[j] - lse);
        p[j] = prob;
        ds[j] = scale * prob * (ds[j] - delta);
    }
    memset(p + n, 0, (size_t)(t->keys - n) * sizeof *p);
    memset(ds + n, 0, (size_t)(t->keys - n) * sizeof *ds);
}

/* dq of the tile =; dk, dv of its keys +=. */
static void backward_tile(const struct tile *t, real *p, real *ds)
{
    const struct attention_args *a = t->a;
    const real *q = (const real *)a->q + t->q_at;
    const real *d_o = (const real *)a->d_o + t->q_at;
    tile_scores(t, p);
    blas_gemm(false, true, t->rows, t->keys, a->e, 1, d_o, t->q_row, (const real *)a->v + t->k_at,
              t->k_row, 0, ds, t->keys);
    for (int64_t i = 0; i < t->rows; i++) {
        backward_row(t, t->first + i, p + i * t->keys, ds + i * t->keys);
    }
    blas_gemm(false, false, t->rows, a->e, t->keys, 1, ds, t->keys, (const real *)a->k + t->k_at,
              t->k_row, 0, (real *)a->dq + t->q_at, t->q_row);
    blas_gemm(true, false, t->keys, a->e, t->rows, 1, ds, t->keys, q, t->q_row, 1,
              (real *)a->dk + t->k_at, t->k_row);
    blas_gemm(true, false, t->keys, a->e, t->rows, 1, p, t->keys, d_o, t->q_row, 1,
              (real *)a->dv + t->k_at, t->k_row);
}

/* One key head with all its query heads: they add to the same dk and dv, in this order. */
static void backward_task(void *arg, int64_t task, int thread)
{
    const struct attention_args *a = arg;
    int64_t b = task / a->kv;
    int64_t kv = task % a->kv;
    real *p = (real *)a->workspace + (int64_t)thread * 2 * TILE * a->t;
    for (int64_t j = 0; j < a->t; j++) {
        int64_t at = ((b * a->t + j) * a->kv + kv) * a->e;
        memset((real *)a->dk + at, 0, (size_t)a->e * sizeof(real));
        memset((real *)a->dv + at, 0, (size_t)a->e * sizeof(real));
    }
    int64_t group = a->h / a->kv;
    for (int64_t h = kv * group; h < (kv + 1) * group; h++) {
        for (int64_t first = 0; first < a->t; first += TILE) {
            struct tile t = tile_of(a, b, h, first);
            backward_tile(&t, p, p + TILE * a->t);
        }
    }
}

void OP(attention_bwd)(struct pool *pool, const void *args)
{
    struct attention_args a = *(const struct attention_args *)args;
    pool_run(pool, a.b * a.kv, backward_task, &a);
}

size_t OP(attention_workspace)(int num_threads, int64_t b, int64_t seq_len, int64_t h, int64_t kv,
                               int64_t e)
{
    (void)b;
    (void)h;
    (void)kv;
    (void)e;
    return (size_t)num_threads * 2 * (size_t)TILE * (size_t)seq_len * sizeof(real);
}
