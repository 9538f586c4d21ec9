#include "kernels/host/variant/variant.h"

#include "kernels/ref/gelu.h"

void OP(gelu_fwd)(struct pool *pool, const void *args)
{
    (void)pool;
    const struct gelu_args *a = args;
    elem *y = a->out;
    for (int64_t i = 0; i < a->n; i++) {
        double x = (double)elem_load(((const elem *)a->x)[i]);
        y[i] = elem_store((real)gelu(x));
    }
}

void OP(gelu_bwd)(struct pool *pool, const void *args)
{
    (void)pool;
    const struct gelu_args *a = args;
    const elem *dy = a->dy;
    elem *dx = a->out;
    for (int64_t i = 0; i < a->n; i++) {
        double x = (double)elem_load(((const elem *)a->x)[i]);
        dx[i] = elem_store((real)((double)elem_load(dy[i]) * gelu_slope(x)));
    }
}
