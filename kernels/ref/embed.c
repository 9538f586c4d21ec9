#include "kernels/host/variant/variant.h"

void OP(embed_fwd)(struct pool *pool, const void *args)
{
    (void)pool;
    const struct embed_args *a = args;
    const elem *w = a->in;
    elem *y = a->out;
    for (int64_t r = 0; r < a->r; r++) {
        int64_t row = embed_row(a, a->ids[r]);
        for (int64_t d = 0; d < a->d; d++) {
            y[r * a->d + d] = row < 0 ? 0 : w[row * a->d + d];
        }
    }
}

void OP(embed_bwd)(struct pool *pool, const void *args)
{
    (void)pool;
    const struct embed_args *a = args;
    const elem *dy = a->in;
    real *dw = a->out;
    for (int64_t r = 0; r < a->r; r++) {
        int64_t row = embed_row(a, a->ids[r]);
        for (int64_t d = 0; row >= 0 && d < a->d; d++) {
            dw[row * a->d + d] += elem_load(dy[r * a->d + d]);
        }
    }
}
