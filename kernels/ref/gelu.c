#include "kernels/host/variant/variant.h"

#include <math.h>

#define ROOT_2_OVER_PI 0.79788456080286535588
#define CUBIC 0.044715

void OP(gelu_fwd)(struct pool *pool, const void *args)
{
    (void)pool;
    const struct gelu_args *a = args;
    real *y = a->out;
    for (int64_t i = 0; i < a->n; i++) {
        double x = (double)((const real *)a->x)[i];
        y[i] = (real)(0.5 * x * (1 + tanh(ROOT_2_OVER_PI * (x + CUBIC * x * x * x))));
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
        double t = tanh(ROOT_2_OVER_PI * (x + CUBIC * x * x * x));
        double inner = ROOT_2_OVER_PI * (1 + 3 * CUBIC * x * x);
        dx[i] = (real)((double)dy[i] * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * inner));
    }
}
