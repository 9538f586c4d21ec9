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
    const elem *w = a->w;
    int64_t d = a->d;
    int64_t begin = task * row_block(d);
    int64_t end = min_i64(a->r, begin + row_block(d));
    for (int64_t r = begin; r < end; r++) {
        const elem *x = (const elem *)a->x + r * d;
        elem *y = (elem *)a->y + r * d;
        real squares = 0;
#pragma omp simd reduction(+ : squares)
        for (int64_t i = 0; i < d; i++) {
            real z = elem_load(x[i]);
            squares += z * z;
        }
        real inv = (real)(1 / sqrt((double)squares / (double)d + a->eps));
        ((real *)a->rstd)[r] = inv;
#pragma omp simd
        for (int64_t i = 0; i < d; i++) {
            y[i] = elem_store(elem_load(x[i]) * inv * elem_load(w[i]));
        }
    }
}

void OP(rmsnorm_fwd)(struct pool *pool, const void *args)
{
    struct rmsnorm_args a = *(const struct rmsnorm_args *)args;
    pool_run(pool, num_blocks(a.r, row_block(a.d)), rmsnorm_fwd_task, &a);
}

/* Adds the row to its block's part of dw and returns dy . (w * x). */
static real row_products(real *part, const elem *dy, const elem *x, const elem *w, real rstd,
                         int64_t d)
{
    real dot = 0;
#pragma omp simd reduction(+ : dot)
    for (int64_t i = 0; i < d; i++) {
        real g = elem_load(dy[i]) * elem_load(x[i]);
        part[i] += g * rstd;
        dot += g * elem_load(w[i]);
    }
    return dot;
}

static void rmsnorm_bwd_task(void *arg, int64_t task, int thread)
{
    (void)thread;
    const struct rmsnorm_args *a = arg;
    const elem *w = a->w;
    int64_t d = a->d;
    real *part = (real *)a->workspace + task * d;
    memset(part, 0, (size_t)d * sizeof *part);
    int64_t end = min_i64(a->r, (task + 1) * BWD_ROWS);
    for (int64_t r = task * BWD_ROWS; r < end; r++) {
        const elem *x = (const elem *)a->x + r * d;
        const elem *dy = (const elem *)a->dy + r * d;
        elem *dx = (elem *)a->dx + r * d;
        real rstd = ((const real *)a->rstd_in)[r];
        real dot = row_products(part, dy, x, w, rstd, d);
        real pull = rstd * rstd * rstd * (dot / (real)d);
        if (a->accumulate) {
#pragma omp simd
            for (int64_t i = 0; i < d; i++) {
                real g = rstd * elem_load(dy[i]) * elem_load(w[i]) - pull * elem_load(x[i]);
                dx[i] = elem_store(elem_load(dx[i]) + g);
            }
        } else {
#pragma omp simd
            for (int64_t i = 0; i < d; i++) {
                real g = rstd * elem_load(dy[i]) * elem_load(w[i]) - pull * elem_load(x[i]);
                dx[i] = elem_store(g);
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
