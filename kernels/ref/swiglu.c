#include "kernels/host/variant/variant.h"

#include <math.h>

void OP(swiglu_fwd)(struct pool *pool, const void *args)
{
    (void)pool;
    const struct swiglu_args *a = args;
    const real *gate = a->gate;
    const real *up = a->up;
    real *y = a->y;
    for (int64_t i = 0; i < a->n; i++) {
        double g = (double)gate[i];
        y[i] = (real)(g / (1 + exp(-g)) * (double)up[i]);
    }
}

void OP(swiglu_bwd)(struct pool *pool, const void *args)
{
    (void)pool;
    const struct swiglu_args *a = args;
    const real *gate = a->gate;
    const real *up = a->up;
    const real *dy = a->dy;
    real *dgate = a->dgate;
    real *dup = a->dup;
    for (int64_t i = 0; i < a->n; i++) {
        double g = (double)gate[i];
        double u = (double)up[i];
        double s = 1 / (1 + exp(-g));
        dgate[i] = (real)((double)dy[i] * u * s * (1 + g * (1 - s)));
        dup[i] = (real)((double)dy[i] * g * s);
    }
}
