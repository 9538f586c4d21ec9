#include "kernels/host/variant/variant.h"

#include <math.h>

#include "kernels/host/bf16.h"

static void put_low(const struct run_args *a, int64_t i, real w)
{
    if (a->low) {
        ((uint16_t *)a->low)[i] = bf16_of((float)w);
    }
}

void OP(adamw)(struct pool *pool, const void *args)
{
    (void)pool;
    const struct run_args *a = args;
    real *w = a->w;
    real *m = a->m;
    real *v = a->v;
    const real *grad = a->g;
    double scale = run_scale(a);
    for (int64_t i = 0; isfinite(scale) && i < a->n; i++) {
        double g = (double)grad[i] * scale;
        double first = a->beta1 * (double)m[i] + (1 - a->beta1) * g;
        double second = a->beta2 * (double)v[i] + (1 - a->beta2) * g * g;
        double step = first / a->bias1 / (sqrt(second / a->bias2) + a->eps);
        m[i] = (real)first;
        v[i] = (real)second;
        w[i] = (real)((double)w[i] - a->lr * (step + a->decay * (double)w[i]));
        put_low(a, i, w[i]);
    }
}

void OP(sgd)(struct pool *pool, const void *args)
{
    (void)pool;
    const struct run_args *a = args;
    real *w = a->w;
    const real *g = a->g;
    double scale = run_scale(a);
    for (int64_t i = 0; isfinite(scale) && i < a->n; i++) {
        double step = scale * (double)g[i] + a->decay * (double)w[i];
        w[i] = (real)((double)w[i] - a->lr * step);
        put_low(a, i, w[i]);
    }
}
