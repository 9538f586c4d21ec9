#include "kernels/host/variant/variant.h"

#include "kernels/ref/gelu.h"

void OP(gelu_fwd)(struct pool *pool, const void *args)
{
    (void)pool;
    const struct gelu_args *a = args;
    real *y = a->out;
    for (int64_t i = 0; i < a->n; i++) {
        double x = (double)((const real *)a->x)[i];
        y[i] = (real)gelu(x);
    }
}

void OP(gelu_bwd)(struct pool *pool, const void *args)
{
    (void)pool;
    const struct gelu_args *a = args;
    const real *dy = a->dy;
    real *dx = a->out;
    for (int64_t i = 0; i < a->n; i++) {
        double x = (double)((const real *)a->x)[i];
        dx[i] = (real)((double)dy[i] * gelu_slope(x));
    }
}
