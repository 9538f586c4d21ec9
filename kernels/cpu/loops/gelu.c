#include "kernels/cpu/loops/gelu.h"

#include "kernels/cpu/loops/block.h"
#include "kernels/host/variant/variant.h"

static void gelu_fwd_task(void *arg, int64_t task, int thread)
{
    (void)thread;
    const struct gelu_args *a = arg;
    const elem *x = a->x;
    elem *y = a->out;
    int64_t end = min_i64(a->n, (task + 1) * ELEMENT_BLOCK);
#pragma omp simd
    for (int64_t i = task * ELEMENT_BLOCK; i < end; i++) {
        y[i] = elem_store(gelu(elem_load(x[i])));
    }
}

void OP(gelu_fwd)(struct pool *pool, const void *args)
{
    struct gelu_args a = *(const struct gelu_args *)args;
    pool_run(pool, num_blocks(a.n, ELEMENT_BLOCK), gelu_fwd_task, &a);
}

static void gelu_bwd_task(void *arg, int64_t task, int thread)
{
    (void)thread;
    const struct gelu_args *a = arg;
    const elem *x = a->x;
    const elem *dy = a->dy;
    elem *dx = a->out;
    int64_t end = min_i64(a->n, (task + 1) * ELEMENT_BLOCK);
#pragma omp simd
    for (int64_t i = task * ELEMENT_BLOCK; i < end; i++) {
        dx[i] = elem_store(elem_load(dy[i]) * gelu_slope(elem_load(x[i])));
    }
}

void OP(gelu_bwd)(struct pool *pool, const void *args)
{
    struct gelu_args a = *(const struct gelu_args *)args;
    pool_run(pool, num_blocks(a.n, ELEMENT_BLOCK), gelu_bwd_task, &a);
}
