#include "kernels/host/variant/variant.h"

#include <math.h>

void OP(adamw)(struct pool *pool, const void *args)
{
    (void)pool;
    const struct adamw_args *a = args;
    real *w = a->w;
    real *m = a->m;
    real *v = a->v;
    const real *grad = a->g;
    for (int64_t i = 0; i < a->n; i++) {
        double g = (double)grad[i] * a->grad_scale;
        double first = a->beta1 * (double)m[i] + (1 - a->beta1) * g;
        double second = a->beta2 * (double)v[i] + (1 - a->beta2) * g * g;
        double step = first / a->bias1 / (sqrt(second / a->bias2) + a->eps);
        m[i] = (real)first;
        v[i] = (real)second;
        w[i] = (real)((double)w[i] - a->lr * (step + a->decay * (double)w[i]));
    }
}

void OP(sgd)(struct pool *pool, const void *args)
{
    (void)pool;
    const struct sgd_args *a = args;
    real *w = a->w;
    const real *g = a->g;
    for (int64_t i = 0; i < a->n; i++) {
        double step = a->grad_scale * (double)g[i] + a->decay * (double)w[i];
        w[i] = (real)((double)w[i] - a->lr * step);
    }
}
