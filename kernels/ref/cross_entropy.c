#include "kernels/host/variant/variant.h"

#include <math.h>

static void ignore_row(elem *dlogits, int64_t v)
{
    for (int64_t j = 0; dlogits && j < v; j++) {
        dlogits[j] = 0;
    }
}

void OP(cross_entropy)(struct pool *pool, const void *args)
{
    (void)pool;
    const struct cross_entropy_args *a = args;
    for (int64_t r = 0; r < a->r; r++) {
        const elem *x = (const elem *)a->logits + r * a->ld;
        elem *dx = a->dlogits ? (elem *)a->dlogits + r * a->ld : NULL;
        int32_t target = a->targets[r];
        if (target == IGNORED_TARGET) {
            a->nll[r] = 0;
            ignore_row(dx, a->v);
            continue;
        }
        double max = -INFINITY;
        for (int64_t j = 0; j < a->v; j++) {
            max = (double)elem_load(x[j]) > max ? (double)elem_load(x[j]) : max;
        }
        double total = 0;
        for (int64_t j = 0; j < a->v; j++) {
            total += exp((double)elem_load(x[j]) - max);
        }
        a->nll[r] = log(total) + max - (double)elem_load(x[target]);
        for (int64_t j = 0; dx && j < a->v; j++) {
            double p = exp((double)elem_load(x[j]) - max) / total;
            dx[j] = elem_store((real)((p - (j == target ? 1 : 0)) * a->dloss));
        }
    }
}
