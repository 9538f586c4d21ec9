#include "kernels/host/variant/variant.h"

#include <math.h>
#include <string.h>

#include "kernels/cpu/loops/logits.h"

#if ELEM_IS_BF16
/* Each power is worked out twice: to keep it would round it. */
static double row_loss(elem *dx, const elem *x, int32_t target, double dloss, int64_t v)
{
    double at_target = (double)elem_load(x[target]);
    real max = logits_max(x, v);
    double total = logits_sum_exp(x, v, max);
    if (dx) {
        double p_target = exp(at_target - (double)max) / total;
        real factor = (real)(dloss / total);
#pragma omp simd
        for (int64_t i = 0; i < v; i++) {
            dx[i] = elem_store(exp_real(elem_load(x[i]) - max) * factor);
        }
        dx[target] = elem_store((real)((p_target - 1) * dloss));
    }
    return log(total) + ((double)max - at_target);
}
#else
/* logits_sum_exp that leaves e^(x - max) in out, which may be x. */
static double store_exp(real *out, const real *x, int64_t v, real max)
{
    double total = 0;
    for (int64_t begin = 0; begin < v; begin += SUM_BLOCK) {
        int64_t end = min_i64(v, begin + SUM_BLOCK);
        real lane[SUM_LANES] = {0};
        int64_t i = begin;
        for (; i + SUM_LANES <= end; i += SUM_LANES) {
#pragma omp simd
            for (int64_t j = 0; j < SUM_LANES; j++) {
                real p = exp_real(x[i + j] - max);
                out[i + j] = p;
                lane[j] += p;
            }
        }
        for (; i < end; i++) {
            out[i] = exp_real(x[i] - max);
            lane[i % SUM_LANES] += out[i];
        }
        total += add_lanes(lane);
    }
    return total;
}

static double row_loss(real *dx, const real *x, int32_t target, double dloss, int64_t v)
{
    double at_target = (double)x[target];
    real max = logits_max(x, v);
    double total;
    if (dx) {
        total = store_exp(dx, x, v, max);
        real p_target = (real)(((double)dx[target] / total - 1) * dloss);
        real factor = (real)(dloss / total);
#pragma omp simd
        for (int64_t i = 0; i < v; i++) {
            dx[i] *= factor;
        }
        dx[target] = p_target;
    } else {
        total = logits_sum_exp(x, v, max);
    }
    return log(total) + ((double)max - at_target);
}
#endif

static void cross_entropy_task(void *arg, int64_t task, int thread)
{
    (void)thread;
    const struct cross_entropy_args *a = arg;
    int64_t begin = task * row_block(a->v);
    int64_t end = min_i64(a->r, begin + row_block(a->v));
    for (int64_t r = begin; r < end; r++) {
        elem *dx = a->dlogits ? (elem *)a->dlogits + r * a->ld : NULL;
        if (a->targets[r] == IGNORED_TARGET) {
            a->nll[r] = 0;
            if (dx) {
                memset(dx, 0, (size_t)a->v * sizeof *dx);
            }
        } else {
            const elem *x = (const elem *)a->logits + r * a->ld;
            a->nll[r] = row_loss(dx, x, a->targets[r], a->dloss, a->v);
        }
    }
}

void OP(cross_entropy)(struct pool *pool, const void *args)
{
    struct cross_entropy_args a = *(const struct cross_entropy_args *)args;
    pool_run(pool, num_blocks(a.r, row_block(a.v)), cross_entropy_task, &a);
}
