#include "kernels/host/variant/variant.h"

#include <math.h>

void OP(rmsnorm_fwd)(struct pool *pool, const void *args)
{
    (void)pool;
    const struct rmsnorm_args *a = args;
    const real *w = a->w;
    real *rstd = a->rstd;
    for (int64_t r = 0; r < a->r; r++) {
        const real *x = (const real *)a->x + r * a->d;
        real *y = (real *)a->y + r * a->d;
        double squares = 0;
        for (int64_t d = 0; d < a->d; d++) {
            squares += (double)x[d] * (double)x[d];
        }
        double inv = 1 / sqrt(squares / (double)a->d + a->eps);
        rstd[r] = (real)inv;
        for (int64_t d = 0; d < a->d; d++) {
            y[d] = (real)((double)x[d] * inv * (double)w[d]);
        }
    }
}

/* dw first: dx may lie where dy lies. */
static void add_weight_gradient(const struct rmsnorm_args *a)
{
    const real *x = a->x;
    const real *dy = a->dy;
    const real *rstd = a->rstd_in;
    real *dw = a->dw;
    for (int64_t d = 0; d < a->d; d++) {
        double sum = (double)dw[d];
        for (int64_t r = 0; r < a->r; r++) {
            sum += (double)dy[r * a->d + d] * (double)x[r * a->d + d] * (double)rstd[r];
        }
        dw[d] = (real)sum;
    }
}

void OP(rmsnorm_bwd)(struct pool *pool, const void *args)
{
    (void)pool;
    const struct rmsnorm_args *a = args;
    const real *w = a->w;
    add_weight_gradient(a);
    for (int64_t r = 0; r < a->r; r++) {
        const real *x = (const real *)a->x + r * a->d;
        const real *dy = (const real *)a->dy + r * a->d;
        real *dx = (real *)a->dx + r * a->d;
        double rstd = (double)((const real *)a->rstd_in)[r];
        double dot = 0;
        for (int64_t d = 0; d < a->d; d++) {
            dot += (double)dy[d] * (double)w[d] * (double)x[d];
        }
        double pull = rstd * rstd * rstd * dot / (double)a->d;
        for (int64_t d = 0; d < a->d; d++) {
            double g = rstd * (double)dy[d] * (double)w[d] - pull * (double)x[d];
            dx[d] = (real)(a->accumulate ? (double)dx[d] + g : g);
        }
    }
}

size_t OP(rmsnorm_bwd_workspace)(int64_t r, int64_t d)
{
    (void)r;
    (void)d;
    return 0;
}
