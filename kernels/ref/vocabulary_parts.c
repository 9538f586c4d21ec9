/* Cross entropy of a vocabulary that is cut over ranks. */
#include "kernels/host/variant/variant.h"

#include <math.h>

void OP(ce_max)(struct pool *pool, const void *args)
{
    (void)pool;
    const struct ce_args *a = args;
    for (int64_t r = 0; r < a->p.r; r++) {
        const elem *x = (const elem *)a->p.logits + r * a->p.ld;
        double max = -INFINITY;
        for (int64_t j = 0; j < a->p.valid; j++) {
            max = (double)elem_load(x[j]) > max ? (double)elem_load(x[j]) : max;
        }
        a->out[r] = a->p.targets[r] == IGNORED_TARGET ? 0 : max;
    }
}

void OP(ce_sum)(struct pool *pool, const void *args)
{
    (void)pool;
    const struct ce_args *a = args;
    for (int64_t r = 0; r < a->p.r; r++) {
        const elem *x = (const elem *)a->p.logits + r * a->p.ld;
        int64_t target = (int64_t)a->p.targets[r] - a->p.first;
        bool ignored = a->p.targets[r] == IGNORED_TARGET;
        double total = 0;
        for (int64_t j = 0; !ignored && j < a->p.valid; j++) {
            total += exp((double)elem_load(x[j]) - a->max[r]);
        }
        a->out[r] = total;
        bool here = !ignored && target >= 0 && target < a->p.valid;
        a->out[a->p.r + r] = here ? (double)elem_load(x[target]) : 0;
    }
}

void OP(ce_finish)(struct pool *pool, const void *args)
{
    (void)pool;
    const struct ce_args *a = args;
    for (int64_t r = 0; r < a->p.r; r++) {
        const elem *x = (const elem *)a->p.logits + r * a->p.ld;
        elem *dx = a->dlogits ? (elem *)a->dlogits + r * a->p.ld : NULL;
        int64_t target = (int64_t)a->p.targets[r] - a->p.first;
        bool ignored = a->p.targets[r] == IGNORED_TARGET;
        double total = a->sums[r];
        a->out[r] = ignored ? 0 : log(total) + a->max[r] - a->sums[a->p.r + r];
        for (int64_t j = 0; dx && j < a->p.ld; j++) {
            if (ignored || j >= a->p.valid) {
                dx[j] = 0;
            } else {
                double p = exp((double)elem_load(x[j]) - a->max[r]) / total;
                dx[j] = elem_store((real)((p - (j == target ? 1 : 0)) * a->dloss));
            }
        }
    }
}
