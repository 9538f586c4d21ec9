#include "kernels/host/variant/variant.h"

#include "kernels/cpu/loops/block.h"

static void add_task(void *arg, int64_t task, int thread)
{
    (void)thread;
    const struct add_args *a = arg;
    const elem *x = a->a;
    const elem *z = a->b;
    elem *y = a->y;
    int64_t end = min_i64(a->n, (task + 1) * ELEMENT_BLOCK);
#pragma omp simd
    for (int64_t i = task * ELEMENT_BLOCK; i < end; i++) {
        y[i] = elem_store(elem_load(x[i]) + elem_load(z[i]));
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
    elem *x = a->x;
    real factor = (real)a->factor;
    int64_t end = min_i64(a->n, (task + 1) * ELEMENT_BLOCK);
#pragma omp simd
    for (int64_t i = task * ELEMENT_BLOCK; i < end; i++) {
        x[i] = elem_store(elem_load(x[i]) * factor);
    }
}

void OP(scale)(struct pool *pool, const void *args)
{
    struct scale_args a = *(const struct scale_args *)args;
    pool_run(pool, num_blocks(a.n, ELEMENT_BLOCK), scale_task, &a);
}
