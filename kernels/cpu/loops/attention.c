/* Attention by tiles of queries. Scores lie transposed, [keys, tile]: one row a key, one column a
 * query. So a maximum, a sum or a mask over keys runs down the rows, for a vector of queries at
 * once, and of the products' right sides only tiles need to be packed. The scratch of a thread
 * holds two tiles; nothing of size T x T is kept. Keys before the first document of a tile's
 * queries are left out. Source of the backward pass: Dao et al. 2022, algorithm 4. */
#include "kernels/host/variant/variant.h"

#include <math.h>
#include <string.h>

#include "kernels/cpu/loops/block.h"
#include "kernels/cpu/loops/exp.h"
#include "kernels/cpu/loops/multiply.h"

#if REAL_IS_F64
#define LOG log
#else
#define LOG logf
#endif

/* Queries of a tile, at most; fewer in short sequences, where the part of a tile that lies above
 * the diagonal would be much of the work. */
#define TILE INT64_C(64)
#define SHORT_TILE INT64_C(32)
#define SHORT_SEQUENCE INT64_C(256)
/* Columns that inner loops take at once: whole vectors, whatever their width. */
#define GROUP INT64_C(16)
/* Keys whose sum is made on its own: sums of T numbers would round too often. */
#define SUM_KEYS INT64_C(128)

/* A tile of one head: queries first..first+rows-1 see none but the `keys` keys from first_key. */
struct tile {
    const struct attention_args *a;
    int64_t first, rows;
    int64_t first_key, keys;
    const int32_t *segments; /* of the row; NULL: the tile's queries and keys are of one document */
    int64_t cols;         /* rows, up to a whole group: what lies behind rows is never looked at */
    int64_t q_row, k_row; /* distances of rows */
    int64_t q_at, k_at;   /* of the tile's first query and first key */
    real *lse;            /* of the tile's first query */
};

static int64_t tile_width(int64_t seq_len)
{
    return seq_len <= SHORT_SEQUENCE ? SHORT_TILE : TILE;
}

/* The segments of queries begin..end-1 lie between these. */
static void segment_range(const int32_t *segments, int64_t begin, int64_t end, int32_t *min,
                          int32_t *max)
{
    int32_t low = segments[begin];
    int32_t high = segments[begin];
    for (int64_t i = begin; i < end; i++) {
        low = segments[i] < low ? segments[i] : low;
        high = segments[i] > high ? segments[i] : high;
    }
    *min = low;
    *max = high;
}

/* No query of the tile sees a key before this. Where segments ascend, as loaders number them, the
 * first query sees this one. */
static int64_t first_key_of(const int32_t *segments, int64_t first, int64_t rows)
{
    int32_t min;
    int32_t max;
    segment_range(segments, first, first + rows, &min, &max);
    int64_t j = 0;
    while (segments[j] < min || segments[j] > max) {
        j++;
    }
    return j;
}

static bool is_one_segment(const int32_t *segments, int64_t begin, int64_t end)
{
    int32_t min;
    int32_t max;
    segment_range(segments, begin, end, &min, &max);
    return min == max;
}

static struct tile tile_of(const struct attention_args *a, int64_t b, int64_t h, int64_t first)
{
    int64_t kv = h / (a->h / a->kv);
    int64_t rows = min_i64(tile_width(a->t), a->t - first);
    const int32_t *segments = a->segments ? a->segments + b * a->t : NULL;
    int64_t first_key = segments ? first_key_of(segments, first, rows) : 0;
    bool mixed = segments && !is_one_segment(segments, first_key, first + rows);
    return (struct tile){
        .a = a,
        .first = first,
        .rows = rows,
        .first_key = first_key,
        .keys = first + rows - first_key,
        .segments = mixed ? segments : NULL,
        .cols = num_blocks(rows, GROUP) * GROUP,
        .q_row = a->h * a->e,
        .k_row = a->kv * a->e,
        .q_at = ((b * a->t + first) * a->h + h) * a->e,
        .k_at = ((b * a->t + first_key) * a->kv + kv) * a->e,
        .lse = (real *)a->lse + (b * a->h + h) * a->t + first,
    };
}

static struct view rows_of(const void *at, int64_t offset, int64_t row)
{
    return (struct view){(const elem *)at + offset, row, 1, !ELEM_IS_BF16};
}

static struct view scores_of(const real *score)
{
    return (struct view){score, TILE, 1, true};
}

static struct view transposed(struct view v)
{
    return (struct view){v.at, v.col, v.row, v.wide};
}

/* ---- scratch ---------------------------------------------------------------------------------
 * Of each thread. In bf16 what comes out is summed up on the side, in fp32, and rounded behind its
 * last sum. */

struct scratch {
    real *p, *ds;  /* [T, TILE] */
    real *out;     /* [TILE, E], bf16 only: o or dq of a tile */
    real *dk, *dv; /* [T, E], bf16 only: of a key head */
};

static int64_t scratch_numbers(int64_t seq_len, int64_t e)
{
    int64_t sums = ELEM_IS_BF16 ? TILE * e + 2 * seq_len * e : 0;
    return 2 * TILE * seq_len + sums;
}

static struct scratch scratch_of(const struct attention_args *a, int thread)
{
    struct scratch s = {.p = (real *)a->workspace + thread * scratch_numbers(a->t, a->e)};
    s.ds = s.p + TILE * a->t;
    if (ELEM_IS_BF16) {
        s.out = s.ds + TILE * a->t;
        s.dk = s.out + TILE * a->e;
        s.dv = s.dk + a->t * a->e;
    }
    return s;
}

static real *aside(real *sums, int64_t offset)
{
    return ELEM_IS_BF16 ? sums + offset : NULL;
}

/* Rows of sums, and how far apart they are. */
struct sums {
    real *at;
    int64_t row;
};

/* Where rows that belong at `offset` in `whole` are summed up. */
static struct sums sums_of(void *whole, int64_t offset, int64_t row, real *beside, int64_t e)
{
    return ELEM_IS_BF16 ? (struct sums){beside, e} : (struct sums){(real *)whole + offset, row};
}

/* Puts them there. */
static void put_sums(void *whole, int64_t offset, int64_t row, struct sums from, int64_t num,
                     int64_t e)
{
    for (int64_t i = 0; ELEM_IS_BF16 && i < num; i++) {
        elem *to = (elem *)whole + offset + i * row;
        const real *sum = from.at + i * from.row;
#pragma omp simd
        for (int64_t j = 0; j < e; j++) {
            to[j] = elem_store(sum[j]);
        }
    }
}

/* Columns without a query hold zeros, so that no loop has to stop within a group. */
static void clear_spare_columns(const struct tile *t, real *score)
{
    for (int64_t j = 0; t->rows < t->cols && j < t->keys; j++) {
        memset(score + j * TILE + t->rows, 0, (size_t)(t->cols - t->rows) * sizeof *score);
    }
}

/* What a query may not see gets the score of nothing: later keys, and other segments. */
static void mask_scores(const struct tile *t, real *score)
{
    int64_t diagonal = t->first - t->first_key;
    for (int64_t j = diagonal; j < t->keys; j++) {
        for (int64_t i = 0; i < j - diagonal; i++) {
            score[j * TILE + i] = -INFINITY;
        }
    }
    for (int64_t j = 0; t->segments && j < t->keys; j++) {
        int32_t own = t->segments[t->first_key + j];
        const int32_t *segments = t->segments + t->first;
#pragma omp simd
        for (int64_t i = 0; i < t->rows; i++) {
            real s = score[j * TILE + i];
            score[j * TILE + i] = segments[i] == own ? s : -INFINITY;
        }
    }
}

/* score [keys, TILE] = scale * k . q. */
static void tile_scores(const struct tile *t, real *score)
{
    const struct attention_args *a = t->a;
    clear_spare_columns(t, score);
    OP(multiply)
    (t->keys, t->rows, a->e, (real)a->scale, rows_of(a->k, t->k_at, t->k_row),
     transposed(rows_of(a->q, t->q_at, t->q_row)), 0, score, TILE);
    mask_scores(t, score);
}

static void column_max(const struct tile *t, const real *score, real *max)
{
    for (int64_t c = 0; c < t->cols; c += GROUP) {
        real m[GROUP];
        for (int64_t i = 0; i < GROUP; i++) {
            m[i] = -INFINITY;
        }
        for (int64_t j = 0; j < t->keys; j++) {
            const real *s = score + j * TILE + c;
#pragma omp simd
            for (int64_t i = 0; i < GROUP; i++) {
                m[i] = s[i] > m[i] ? s[i] : m[i];
            }
        }
        memcpy(max + c, m, sizeof m);
    }
}

/* Turns scores into e^(score - max) and gives the sums of columns. */
static void column_exp(const struct tile *t, real *score, const real *max, real *total)
{
    memset(total, 0, (size_t)TILE * sizeof *total);
    for (int64_t begin = 0; begin < t->keys; begin += SUM_KEYS) {
        int64_t end = min_i64(t->keys, begin + SUM_KEYS);
        for (int64_t c = 0; c < t->cols; c += GROUP) {
            real sum[GROUP] = {0};
            for (int64_t j = begin; j < end; j++) {
                real *s = score + j * TILE + c;
#pragma omp simd
                for (int64_t i = 0; i < GROUP; i++) {
                    s[i] = exp_real(s[i] - max[c + i]);
                    sum[i] += s[i];
                }
            }
            for (int64_t i = 0; i < GROUP; i++) {
                total[c + i] += sum[i];
            }
        }
    }
}

static void forward_task(void *arg, int64_t task, int thread)
{
    const struct attention_args *a = arg;
    int64_t num_tiles = num_blocks(a->t, tile_width(a->t));
    int64_t head = task / num_tiles;
    /* The longest tiles first, so that none is left over at the end. */
    int64_t first = (num_tiles - 1 - task % num_tiles) * tile_width(a->t);
    struct tile t = tile_of(a, head / a->h, head % a->h, first);
    struct scratch s = scratch_of(a, thread);
    real *p = s.p;
    real max[TILE];
    real total[TILE];
    tile_scores(&t, p);
    column_max(&t, p, max);
    column_exp(&t, p, max, total);
    struct sums o = sums_of(a->o, t.q_at, t.q_row, s.out, a->e);
    OP(multiply)
    (t.rows, a->e, t.keys, 1, transposed(scores_of(p)), rows_of(a->v, t.k_at, t.k_row), 0, o.at,
     o.row);
    for (int64_t i = 0; i < t.rows; i++) {
        real inv = 1 / total[i];
        t.lse[i] = max[i] + LOG(total[i]);
#pragma omp simd
        for (int64_t e = 0; e < a->e; e++) {
            o.at[i * o.row + e] *= inv;
        }
    }
    put_sums(a->o, t.q_at, t.q_row, o, t.rows, a->e);
}

void OP(attention_fwd)(struct pool *pool, const void *args)
{
    struct attention_args a = *(const struct attention_args *)args;
    pool_run(pool, a.b * a.h * num_blocks(a.t, tile_width(a.t)), forward_task, &a);
}

/* delta [TILE]: of each query, o . d_o. */
static void output_products(const struct tile *t, real *delta)
{
    const elem *o = (const elem *)t->a->o + t->q_at;
    const elem *d_o = (const elem *)t->a->d_o + t->q_at;
    for (int64_t i = 0; i < t->rows; i++) {
        real sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t e = 0; e < t->a->e; e++) {
            sum += elem_load(o[i * t->q_row + e]) * elem_load(d_o[i * t->q_row + e]);
        }
        delta[i] = sum;
    }
}

/* p: scores in, probabilities out; ds: v . d_o in, the gradient of k . q out. */
static void score_gradients(const struct tile *t, real *p, real *ds)
{
    real delta[TILE] = {0};
    real lse[TILE] = {0};
    real scale = (real)t->a->scale;
    output_products(t, delta);
    memcpy(lse, t->lse, (size_t)t->rows * sizeof *lse);
    for (int64_t j = 0; j < t->keys; j++) {
        for (int64_t c = 0; c < t->cols; c += GROUP) {
            real *prob = p + j * TILE + c;
            real *grad = ds + j * TILE + c;
#pragma omp simd
            for (int64_t i = 0; i < GROUP; i++) {
                prob[i] = exp_real(prob[i] - lse[c + i]);
                grad[i] = scale * prob[i] * (grad[i] - delta[c + i]);
            }
        }
    }
}

/* dq of the tile =; dk, dv of its keys +=. */
static void backward_tile(const struct tile *t, const struct scratch *s)
{
    real *p = s->p;
    real *ds = s->ds;
    const struct attention_args *a = t->a;
    struct view q = rows_of(a->q, t->q_at, t->q_row);
    struct view d_o = rows_of(a->d_o, t->q_at, t->q_row);
    tile_scores(t, p);
    OP(multiply)
    (t->keys, t->rows, a->e, 1, rows_of(a->v, t->k_at, t->k_row), transposed(d_o), 0, ds, TILE);
    score_gradients(t, p, ds);
    struct sums dq = sums_of(a->dq, t->q_at, t->q_row, s->out, a->e);
    struct sums dk = sums_of(a->dk, t->k_at, t->k_row, aside(s->dk, t->first_key * a->e), a->e);
    struct sums dv = sums_of(a->dv, t->k_at, t->k_row, aside(s->dv, t->first_key * a->e), a->e);
    OP(multiply)
    (t->rows, a->e, t->keys, 1, transposed(scores_of(ds)), rows_of(a->k, t->k_at, t->k_row), 0,
     dq.at, dq.row);
    put_sums(a->dq, t->q_at, t->q_row, dq, t->rows, a->e);
    OP(multiply)(t->keys, a->e, t->rows, 1, scores_of(ds), q, 1, dk.at, dk.row);
    OP(multiply)(t->keys, a->e, t->rows, 1, scores_of(p), d_o, 1, dv.at, dv.row);
}

/* One key head with all its query heads: they add to the same dk and dv, in this order. */
static void backward_task(void *arg, int64_t task, int thread)
{
    const struct attention_args *a = arg;
    int64_t b = task / a->kv;
    int64_t kv = task % a->kv;
    struct scratch s = scratch_of(a, thread);
    int64_t at = (b * a->t * a->kv + kv) * a->e;
    int64_t row = a->kv * a->e;
    struct sums dk = sums_of(a->dk, at, row, s.dk, a->e);
    struct sums dv = sums_of(a->dv, at, row, s.dv, a->e);
    for (int64_t j = 0; j < a->t; j++) {
        memset(dk.at + j * dk.row, 0, (size_t)a->e * sizeof(real));
        memset(dv.at + j * dv.row, 0, (size_t)a->e * sizeof(real));
    }
    int64_t group = a->h / a->kv;
    for (int64_t h = kv * group; h < (kv + 1) * group; h++) {
        for (int64_t first = 0; first < a->t; first += tile_width(a->t)) {
            struct tile t = tile_of(a, b, h, first);
            backward_tile(&t, &s);
        }
    }
    put_sums(a->dk, at, row, dk, a->t, a->e);
    put_sums(a->dv, at, row, dv, a->t, a->e);
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
    return (size_t)num_threads * (size_t)scratch_numbers(seq_len, e) * sizeof(real);
}
