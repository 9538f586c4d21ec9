#include "kernels/host/variant/variant.h"

#include <math.h>
#include <string.h>

#include "kernels/cpu/loops/block.h"
#include "kernels/cpu/loops/vec.h"

/* Rows whose contributions to dw and db one task sums. */
#define BWD_ROWS INT64_C(64)

/* Registers whose sums run side by side, so that none waits for the one before it. Each lane's sum
 * is short; double adds them up. */
#define SIDES 4

/* Of distances from a centre: their sum, or that of their squares. */
static inline double row_sum(const elem *x, int64_t d, real centre, bool square)
{
    vec side[SIDES] = {0};
    int64_t i = 0;
    for (; i + SIDES * VEC_LANES <= d; i += SIDES * VEC_LANES) {
#pragma GCC unroll 4
        for (int j = 0; j < SIDES; j++) {
            vec off = vec_load(x + i + j * VEC_LANES) - centre;
            vec term = off;
            if (square) {
                term = off * off;
            }
            side[j] += term;
        }
    }
    double sum = 0;
    for (; i < d; i++) {
        double off = (double)(elem_load(x[i]) - centre);
        sum += square ? off * off : off;
    }
    real lane[VEC_LANES];
    vec all = (side[0] + side[1]) + (side[2] + side[3]);
    memcpy(lane, &all, sizeof lane);
#pragma omp simd reduction(+ : sum)
    for (int j = 0; j < VEC_LANES; j++) {
        sum += (double)lane[j];
    }
    return sum;
}

/* From a centre near the mean, corrected for what it is off by. */
static double row_variance(const elem *x, int64_t d, double mean)
{
    double shift = mean - (double)(real)mean;
    return row_sum(x, d, (real)mean, true) / (double)d - shift * shift;
}

static void layernorm_fwd_task(void *arg, int64_t task, int thread)
{
    (void)thread;
    const struct layernorm_args *a = arg;
    const elem *w = a->w;
    const elem *b = a->b;
    int64_t d = a->d;
    int64_t begin = task * row_block(d);
    int64_t end = min_i64(a->r, begin + row_block(d));
    for (int64_t r = begin; r < end; r++) {
        const elem *x = (const elem *)a->x + r * d;
        elem *y = (elem *)a->y + r * d;
        double exact = row_sum(x, d, 0, false) / (double)d;
        real mean = (real)exact;
        real inv = (real)(1 / sqrt(row_variance(x, d, exact) + a->eps));
        ((real *)a->mean)[r] = mean;
        ((real *)a->rstd)[r] = inv;
#pragma omp simd
        for (int64_t i = 0; i < d; i++) {
            y[i] = elem_store((elem_load(x[i]) - mean) * inv * elem_load(w[i]) + elem_load(b[i]));
        }
    }
}

void OP(layernorm_fwd)(struct pool *pool, const void *args)
{
    struct layernorm_args a = *(const struct layernorm_args *)args;
    pool_run(pool, num_blocks(a.r, row_block(a.d)), layernorm_fwd_task, &a);
}

struct row {
    const elem *x, *dy, *w;
    elem *dx;
    real mean, rstd;
    int64_t d;
};

/* Adds the row to its block's parts of dw and db; gives the sums of g = dy * w and of g * n, n the
 * normalised x. */
static void row_products(const struct row *row, real *part_w, real *part_b, real *sum, real *dot)
{
    real s = 0;
    real p = 0;
#pragma omp simd reduction(+ : s, p)
    for (int64_t i = 0; i < row->d; i++) {
        real n = (elem_load(row->x[i]) - row->mean) * row->rstd;
        real dy = elem_load(row->dy[i]);
        real g = dy * elem_load(row->w[i]);
        part_w[i] += dy * n;
        part_b[i] += dy;
        s += g;
        p += g * n;
    }
    *sum = s;
    *dot = p;
}

static void row_gradient(const struct row *row, real sum, real dot, bool accumulate)
{
    real shift = sum / (real)row->d;
    real pull = dot / (real)row->d;
    real rstd = row->rstd;
    if (accumulate) {
#pragma omp simd
        for (int64_t i = 0; i < row->d; i++) {
            real n = (elem_load(row->x[i]) - row->mean) * rstd;
            real g = elem_load(row->dy[i]) * elem_load(row->w[i]);
            g = rstd * (g - shift - n * pull);
            row->dx[i] = elem_store(elem_load(row->dx[i]) + g);
        }
    } else {
#pragma omp simd
        for (int64_t i = 0; i < row->d; i++) {
            real n = (elem_load(row->x[i]) - row->mean) * rstd;
            real g = elem_load(row->dy[i]) * elem_load(row->w[i]);
            row->dx[i] = elem_store(rstd * (g - shift - n * pull));
        }
    }
}

static void layernorm_bwd_task(void *arg, int64_t task, int thread)
{
    (void)thread;
    const struct layernorm_args *a = arg;
    int64_t d = a->d;
    real *part_w = (real *)a->workspace + task * 2 * d;
    real *part_b = part_w + d;
    memset(part_w, 0, 2 * (size_t)d * sizeof *part_w);
    int64_t end = min_i64(a->r, (task + 1) * BWD_ROWS);
    for (int64_t r = task * BWD_ROWS; r < end; r++) {
        struct row row = {.x = (const elem *)a->x + r * d,
                          .dy = (const elem *)a->dy + r * d,
                          .w = a->w,
                          .dx = (elem *)a->dx + r * d,
                          .mean = ((const real *)a->mean_in)[r],
                          .rstd = ((const real *)a->rstd_in)[r],
                          .d = d};
        real sum;
        real dot;
        row_products(&row, part_w, part_b, &sum, &dot);
        row_gradient(&row, sum, dot, a->accumulate);
    }
}

size_t OP(layernorm_bwd_workspace)(int64_t r, int64_t d)
{
    return (size_t)(num_blocks(r, BWD_ROWS) * 2 * d) * sizeof(real);
}

void OP(layernorm_bwd)(struct pool *pool, const void *args)
{
    struct layernorm_args a = *(const struct layernorm_args *)args;
    int64_t num_parts = num_blocks(a.r, BWD_ROWS);
    pool_run(pool, num_parts, layernorm_bwd_task, &a);
    real *dw = a.dw;
    real *db = a.db;
    for (int64_t p = 0; p < num_parts; p++) {
        const real *part_w = (const real *)a.workspace + p * 2 * a.d;
        const real *part_b = part_w + a.d;
#pragma omp simd
        for (int64_t i = 0; i < a.d; i++) {
            dw[i] += part_w[i];
            db[i] += part_b[i];
        }
    }
}
