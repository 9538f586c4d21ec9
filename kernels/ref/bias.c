#include "kernels/host/variant/variant.h"

void OP(add_bias)(struct pool *pool, const void *args)
{
    (void)pool;
    const struct bias_args *a = args;
    const real *b = a->in;
    real *y = a->out;
    for (int64_t r = 0; r < a->r; r++) {
        for (int64_t i = 0; i < a->n; i++) {
            y[r * a->n + i] += b[i];
        }
    }
}

void OP(column_sum)(struct pool *pool, const void *args)
{
    (void)pool;
    const struct bias_args *a = args;
    const real *dy = a->in;
    real *db = a->out;
    for (int64_t i = 0; i < a->n; i++) {
        double sum = (double)db[i];
        for (int64_t r = 0; r < a->r; r++) {
            sum += (double)dy[r * a->n + i];
        }
        db[i] = (real)sum;
    }
}
