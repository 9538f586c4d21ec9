#include "kernels/host/variant/variant.h"

void OP(add)(struct pool *pool, const void *args)
{
    (void)pool;
    const struct add_args *a = args;
    const elem *x = a->a;
    const elem *z = a->b;
    elem *y = a->y;
    for (int64_t i = 0; i < a->n; i++) {
        y[i] = elem_store(elem_load(x[i]) + elem_load(z[i]));
    }
}

void OP(scale)(struct pool *pool, const void *args)
{
    (void)pool;
    const struct scale_args *a = args;
    elem *x = a->x;
    for (int64_t i = 0; i < a->n; i++) {
        x[i] = elem_store((real)((double)elem_load(x[i]) * a->factor));
    }
}
