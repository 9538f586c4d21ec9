#include "kernels/host/variant/variant.h"

void OP(embed_fwd)(struct pool *pool, const void *args)
{
    (void)pool;
    const struct embed_args *a = args;
    const real *w = a->in;
    real *y = a->out;
    for (int64_t r = 0; r < a->r; r++) {
        for (int64_t d = 0; d < a->d; d++) {
            y[r * a->d + d] = w[a->ids[r] * a->d + d];
        }
    }
}

void OP(embed_bwd)(struct pool *pool, const void *args)
{
    (void)pool;
    const struct embed_args *a = args;
    const real *dy = a->in;
    real *dw = a->out;
    for (int64_t r = 0; r < a->r; r++) {
        for (int64_t d = 0; d < a->d; d++) {
            dw[a->ids[r] * a->d + d] += dy[r * a->d + d];
        }
    }
}
