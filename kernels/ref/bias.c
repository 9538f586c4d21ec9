#include "kernels/host/variant/variant.h"

void OP(add_bias)(struct pool *pool, const void *args)
{
    (void)pool;
    const struct bias_args *a = args;
    const elem *b = a->in;
    elem *y = a->out;
    for (int64_t r = 0; r < a->r; r++) {
        for (int64_t i = 0; i < a->n; i++) {
            elem *at = &y[r * a->n + i];
            *at = elem_store(elem_load(*at) + elem_load(b[i]));
        }
    }
}

void OP(column_sum)(struct pool *pool, const void *args)
{
    (void)pool;
    const struct bias_args *a = args;
    const elem *dy = a->in;
    real *db = a->out;
    for (int64_t i = 0; i < a->n; i++) {
        double sum = (double)db[i];
        for (int64_t r = 0; r < a->r; r++) {
            sum += (double)elem_load(dy[r * a->n + i]);
        }
        db[i] = (real)sum;
    }
}
