#include "kernels/host/variant/variant.h"

#include "kernels/cpu/loops/block.h"

static void add_task(void *arg, int64_t task, int thread)
{
    (void)thread;
    const struct add_args *a = arg;
    const real *x = a->a;
    const real *z = a->b;
    real *y = a->y;
    int64_t end = min_i64(a->n, (task + 1) * ELEMENT_BLOCK);
#pragma omp simd
    for (int64_t i = task * ELEMENT_BLOCK; i < end; i++) {
        y[i] = x[i] + z[i];
    }
}

void OP(add)(struct pool *pool, const void *args)
{
    struct add_args a = *(const struct add_args *)args;
    pool_run(pool, num_blocks(a.n, ELEMENT_BLOCK), add_task, &a);
}

static void scale_task(void *arg, int64_t task, int thread)
{
    (void)thread;
    const struct scale_args *a = arg;
    real *x = a->x;
    real factor = (real)a->factor;
    int64_t end = min_i64(a->n, (task + 1) * ELEMENT_BLOCK);
#pragma omp simd
    for (int64_t i = task * ELEMENT_BLOCK; i < end; i++) {
        x[i] *= factor;
    }
}

void OP(scale)(struct pool *pool, const void *args)
{
    struct scale_args a = *(const struct scale_args *)args;
    pool_run(pool, num_blocks(a.n, ELEMENT_BLOCK), scale_task, &a);
}
