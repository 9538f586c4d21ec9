#include "kernels/host/variant/variant.h"

#include <math.h>

void OP(swiglu_fwd)(struct pool *pool, const void *args)
{
    (void)pool;
    const struct swiglu_args *a = args;
    const elem *gate = a->gate;
    const elem *up = a->up;
    elem *y = a->y;
    for (int64_t i = 0; i < a->n; i++) {
        double g = (double)elem_load(gate[i]);
        y[i] = elem_store((real)(g / (1 + exp(-g)) * (double)elem_load(up[i])));
    }
}

void OP(swiglu_bwd)(struct pool *pool, const void *args)
{
    (void)pool;
    const struct swiglu_args *a = args;
    const elem *gate = a->gate;
    const elem *up = a->up;
    const elem *dy = a->dy;
    elem *dgate = a->dgate;
    elem *dup = a->dup;
    for (int64_t i = 0; i < a->n; i++) {
        double g = (double)elem_load(gate[i]);
        double u = (double)elem_load(up[i]);
        double s = 1 / (1 + exp(-g));
        dgate[i] = elem_store((real)((double)elem_load(dy[i]) * u * s * (1 + g * (1 - s))));
        dup[i] = elem_store((real)((double)elem_load(dy[i]) * g * s));
    }
}
