#include "kernels/host/variant/variant.h"

#include <math.h>

#include "kernels/cpu/loops/block.h"
#include "kernels/host/bf16.h"

#if REAL_IS_F64
#define SQRT sqrt
#else
#define SQRT sqrtf
#endif

/* bf16 copies of what was written. */
static void put_low(const struct run_args *a, int64_t begin, int64_t end)
{
    const real *w = a->w;
    uint16_t *low = a->low;
    if (low == NULL) {
        return;
    }
#pragma omp simd
    for (int64_t i = begin; i < end; i++) {
        low[i] = bf16_of((float)w[i]);
    }
}

/* What doesn't change from element to element is worked out in double, once. */
static void adamw_task(void *arg, int64_t task, int thread)
{
    (void)thread;
    const struct run_args *a = arg;
    real *w = a->w;
    real *m = a->m;
    real *v = a->v;
    const real *grad = a->g;
    real scale = (real)run_scale(a);
    real beta1 = (real)a->beta1;
    real beta2 = (real)a->beta2;
    real rest1 = (real)(1 - a->beta1);
    real rest2 = (real)(1 - a->beta2);
    real rate = (real)(a->lr / a->bias1);
    real root = (real)(1 / sqrt(a->bias2));
    real eps = (real)a->eps;
    real shrink = (real)(a->lr * a->decay);
    int64_t end = min_i64(a->n, (task + 1) * ELEMENT_BLOCK);
#pragma omp simd
    for (int64_t i = task * ELEMENT_BLOCK; i < end; i++) {
        real g = grad[i] * scale;
        real first = beta1 * m[i] + rest1 * g;
        real second = beta2 * v[i] + rest2 * g * g;
        m[i] = first;
        v[i] = second;
        w[i] -= rate * first / (SQRT(second) * root + eps) + shrink * w[i];
    }
    put_low(a, task * ELEMENT_BLOCK, end);
}

void OP(adamw)(struct pool *pool, const void *args)
{
    struct run_args a = *(const struct run_args *)args;
    if (isfinite(run_scale(&a))) {
        pool_run(pool, num_blocks(a.n, ELEMENT_BLOCK), adamw_task, &a);
    }
}

static void sgd_task(void *arg, int64_t task, int thread)
{
    (void)thread;
    const struct run_args *a = arg;
    real *w = a->w;
    const real *g = a->g;
    real rate = (real)(a->lr * run_scale(a));
    real shrink = (real)(a->lr * a->decay);
    int64_t end = min_i64(a->n, (task + 1) * ELEMENT_BLOCK);
#pragma omp simd
    for (int64_t i = task * ELEMENT_BLOCK; i < end; i++) {
        w[i] -= rate * g[i] + shrink * w[i];
    }
    put_low(a, task * ELEMENT_BLOCK, end);
}

void OP(sgd)(struct pool *pool, const void *args)
{
    struct run_args a = *(const struct run_args *)args;
    if (isfinite(run_scale(&a))) {
        pool_run(pool, num_blocks(a.n, ELEMENT_BLOCK), sgd_task, &a);
    }
}
