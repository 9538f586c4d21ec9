#include "kernels/host/variant/variant.h"

void OP(rope)(struct pool *pool, const void *args)
{
    (void)pool;
    const struct rope_args *a = args;
    int64_t half = a->e / 2;
    double sign = a->backward ? -1 : 1;
    for (int64_t r = 0; r < a->r; r++) {
        int64_t position = a->positions ? a->positions[r] : r % a->seq_len;
        const real *cos = (const real *)a->cos + position * half;
        const real *sin = (const real *)a->sin + position * half;
        for (int64_t h = 0; h < a->heads; h++) {
            elem *x = (elem *)a->x + (r * a->heads + h) * a->e;
            for (int64_t i = 0; i < half; i++) {
                double x0 = (double)elem_load(x[i]);
                double x1 = (double)elem_load(x[i + half]);
                double c = (double)cos[i];
                double s = sign * (double)sin[i];
                x[i] = elem_store((real)(x0 * c - x1 * s));
                x[i + half] = elem_store((real)(x1 * c + x0 * s));
            }
        }
    }
}
