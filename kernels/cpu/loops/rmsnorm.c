#include "kernels/host/variant/variant.h"

#include <math.h>
#include <string.h>

#include "kernels/cpu/loops/block.h"

/* Rows whose contributions to dw one task sums. */
#define BWD_ROWS INT64_C(64)

static void rmsnorm_fwd_task(void *arg, int64_t task, int thread)
{
    (void)thread;
    const struct rmsnorm_args *a = arg;
    const real *w = a->w;
    int64_t d = a->d;
    int64_t begin = task * row_block(d);
    int64_t end = min_i64(a->r, begin + row_block(d));
    for (int64_t r = begin; r < end; r++) {
        const real *x = (const real *)a->x + r * d;
        real *y = (real *)a->y + r * d;
        real squares = 0;
#pragma omp simd reduction(+ : squares)
        for (int64_t i = 0; i < d; i++) {
            squares += x[i] * x[i];
        }
        real inv = (real)(1 / sqrt((double)squares / (double)d + a->eps));
        ((real *)a->rstd)[r] = inv;
#pragma omp simd
        for (int64_t i = 0; i < d; i++) {
            y[i] = x[i] * inv * w[i];
        }
    }
}

void OP(rmsnorm_fwd)(struct pool *pool, const void *args)
{
    struct rmsnorm_args a = *(const struct rmsnorm_args *)args;
    pool_run(pool, num_blocks(a.r, row_block(a.d)), rmsnorm_fwd_task, &a);
}

/* Adds the row to its block's part of dw and returns dy . (w * x). */
static real row_products(real *part, const real *dy, const real *x, const real *w, real rstd,
                         int64_t d)
{
    real dot = 0;
#pragma omp simd reduction(+ : dot)
    for (int64_t i = 0; i < d; i++) {
        real g = dy[i] * x[i];
        part[i] += g * rstd;
        dot += g * w[i];
    }
    return dot;
}

static void rmsnorm_bwd_task(void *arg, int64_t task, int thread)
{
    (void)thread;
    const struct rmsnorm_args *a = arg;
    const real *w = a->w;
    int64_t d = a->d;
    real *part = (real *)a->workspace + task * d;
    memset(part, 0, (size_t)d * sizeof *part);
    int64_t end = min_i64(a->r, (task + 1) * BWD_ROWS);
    for (int64_t r = task * BWD_ROWS; r < end; r++) {
        const real *x = (const real *)a->x + r * d;
        const real *dy = (const real *)a->dy + r * d;
        real *dx = (real *)a->dx + r * d;
        real rstd = ((const real *)a->rstd_in)[r];
        real dot = row_products(part, dy, x, w, rstd, d);
        real pull = rstd * rstd * rstd * (dot / (real)d);
        if (a->accumulate) {
#pragma omp simd
            for (int64_t i = 0; i < d; i++) {
                dx[i] += rstd * dy[i] * w[i] - pull * x[i];
            }
        } else {
#pragma omp simd
            for (int64_t i = 0; i < d; i++) {
                dx[i] = rstd * dy[i] * w[i] - pull * x[i];
            }
        }
    }
}

size_t OP(rmsnorm_bwd_workspace)(int64_t r, int64_t d)
{
    return (size_t)(num_blocks(r, BWD_ROWS) * d) * sizeof(real);
}

void OP(rmsnorm_bwd)(struct pool *pool, const void *args)
{
    struct rmsnorm_args a = *(const struct rmsnorm_args *)args;
    int64_t num_parts = num_blocks(a.r, BWD_ROWS);
    pool_run(pool, num_parts, rmsnorm_bwd_task, &a);
    real *dw = a.dw;
    for (int64_t p = 0; p < num_parts; p++) {
        const real *part = (const real *)a.workspace + p * a.d;
#pragma omp simd
        for (int64_t i = 0; i < a.d; i++) {
            dw[i] += part[i];
        }
    }
}
