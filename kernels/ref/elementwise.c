#include "kernels/host/variant/variant.h"

void OP(add)(struct pool *pool, const void *args)
{
    (void)pool;
    const struct add_args *a = args;
    const real *x = a->a;
    const real *z = a->b;
    real *y = a->y;
    for (int64_t i = 0; i < a->n; i++) {
        y[i] = x[i] + z[i];
    }
}

void OP(scale)(struct pool *pool, const void *args)
{
    (void)pool;
    const struct scale_args *a = args;
    real *x = a->x;
    for (int64_t i = 0; i < a->n; i++) {
        x[i] = (real)((double)x[i] * a->factor);
    }
}
