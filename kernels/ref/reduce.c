#include "kernels/host/variant/variant.h"

void OP(sum_squares)(struct pool *pool, const void *args)
{
    (void)pool;
    const struct sum_args *a = args;
    const elem *x = a->x;
    double sum = 0;
    for (int64_t i = 0; i < a->n; i++) {
        sum += (double)elem_load(x[i]) * (double)elem_load(x[i]);
    }
    *a->out = sum;
}
