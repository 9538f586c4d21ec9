#include "kernels/host/variant/variant.h"

#include "kernels/cpu/loops/block.h"
#include "kernels/cpu/loops/exp.h"

static void swiglu_fwd_task(void *arg, int64_t task, int thread)
{
    (void)thread;
    const struct swiglu_args *a = arg;
    const real *gate = a->gate;
    const real *up = a->up;
    real *y = a->y;
    int64_t end = min_i64(a->n, (task + 1) * ELEMENT_BLOCK);
#pragma omp simd
    for (int64_t i = task * ELEMENT_BLOCK; i < end; i++) {
        y[i] = gate[i] / (1 + exp_real(-gate[i])) * up[i];
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
    const real *gate = a->gate;
    const real *up = a->up;
    const real *dy = a->dy;
    real *dgate = a->dgate;
    real *dup = a->dup;
    int64_t end = min_i64(a->n, (task + 1) * ELEMENT_BLOCK);
#pragma omp simd
    for (int64_t i = task * ELEMENT_BLOCK; i < end; i++) {
        real g = gate[i];
        real u = up[i];
        real s = 1 / (1 + exp_real(-g));
        dgate[i] = dy[i] * u * s * (1 + g * (1 - s));
        dup[i] = dy[i] * g * s;
    }
}

void OP(swiglu_bwd)(struct pool *pool, const void *args)
{
    struct swiglu_args a = *(const struct swiglu_args *)args;
    pool_run(pool, num_blocks(a.n, ELEMENT_BLOCK), swiglu_bwd_task, &a);
}
