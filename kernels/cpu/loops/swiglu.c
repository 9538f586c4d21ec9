#include "kernels/host/variant/variant.h"

#include "kernels/cpu/loops/block.h"
#include "kernels/cpu/loops/exp.h"

static void swiglu_fwd_task(void *arg, int64_t task, int thread)
{
    (void)thread;
    const struct swiglu_args *a = arg;
    const elem *gate = a->gate;
    const elem *up = a->up;
    elem *y = a->y;
    int64_t end = min_i64(a->n, (task + 1) * ELEMENT_BLOCK);
#pragma omp simd
    for (int64_t i = task * ELEMENT_BLOCK; i < end; i++) {
        real g = elem_load(gate[i]);
        y[i] = elem_store(g / (1 + exp_real(-g)) * elem_load(up[i]));
    }
}

void OP(swiglu_fwd)(struct pool *pool, const void *args)
{
    struct swiglu_args a = *(const struct swiglu_args *)args;
    pool_run(pool, num_blocks(a.n, ELEMENT_BLOCK), swiglu_fwd_task, &a);
}

static void swiglu_bwd_task(void *arg, int64_t task, int thread)
{
    (void)thread;
    const struct swiglu_args *a = arg;
    const elem *gate = a->gate;
    const elem *up = a->up;
    const elem *dy = a->dy;
    elem *dgate = a->dgate;
    elem *dup = a->dup;
    int64_t end = min_i64(a->n, (task + 1) * ELEMENT_BLOCK);
#pragma omp simd
    for (int64_t i = task * ELEMENT_BLOCK; i < end; i++) {
        real g = elem_load(gate[i]);
        real u = elem_load(up[i]);
        real d = elem_load(dy[i]);
        real s = 1 / (1 + exp_real(-g));
        dgate[i] = elem_store(d * u * s * (1 + g * (1 - s)));
        dup[i] = elem_store(d * g * s);
    }
}

void OP(swiglu_bwd)(struct pool *pool, const void *args)
{
    struct swiglu_args a = *(const struct swiglu_args *)args;
    pool_run(pool, num_blocks(a.n, ELEMENT_BLOCK), swiglu_bwd_task, &a);
}
