#include "kernels/host/variant/variant.h"

#include <math.h>

#include "kernels/cpu/loops/block.h"

#if REAL_IS_F64
#define SQRT sqrt
#else
#define SQRT sqrtf
#endif

/* What doesn't change from element to element is worked out in double, once. */
static void adamw_task(void *arg, int64_t task, int thread)
{
    (void)thread;
    const struct adamw_args *a = arg;
    real *w = a->w;
    real *m = a->m;
    real *v = a->v;
    const real *grad = a->g;
    real scale = (real)a->grad_scale;
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
}

void OP(adamw)(struct pool *pool, const void *args)
{
    struct adamw_args a = *(const struct adamw_args *)args;
    pool_run(pool, num_blocks(a.n, ELEMENT_BLOCK), adamw_task, &a);
}

static void sgd_task(void *arg, int64_t task, int thread)
{
    (void)thread;
    const struct sgd_args *a = arg;
    real *w = a->w;
    const real *g = a->g;
    real rate = (real)(a->lr * a->grad_scale);
    real shrink = (real)(a->lr * a->decay);
    int64_t end = min_i64(a->n, (task + 1) * ELEMENT_BLOCK);
#pragma omp simd
    for (int64_t i = task * ELEMENT_BLOCK; i < end; i++) {
        w[i] -= rate * g[i] + shrink * w[i];
    }
}

void OP(sgd)(struct pool *pool, const void *args)
{
    struct sgd_args a = *(const struct sgd_args *)args;
    pool_run(pool, num_blocks(a.n, ELEMENT_BLOCK), sgd_task, &a);
}
