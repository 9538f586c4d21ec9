#include "kernels/host/variant/variant.h"

#include <math.h>

void OP(rmsnorm_fwd)(struct pool *pool, const void *args)
{
    (void)pool;
    const struct rmsnorm_args *a = args;
    const elem *w = a->w;
    real *rstd = a->rstd;
    for (int64_t r = 0; r < a->r; r++) {
        const elem *x = (const elem *)a->x + r * a->d;
        elem *y = (elem *)a->y + r * a->d;
        double squares = 0;
        for (int64_t d = 0; d < a->d; d++) {
            squares += (double)elem_load(x[d]) * (double)elem_load(x[d]);
        }
        double inv = 1 / sqrt(squares / (double)a->d + a->eps);
        rstd[r] = (real)inv;
        for (int64_t d = 0; d < a->d; d++) {
            y[d] = elem_store((real)((double)elem_load(x[d]) * inv * (double)elem_load(w[d])));
        }
    }
}

/* dw first: dx may lie where dy lies. */
static void add_weight_gradient(const struct rmsnorm_args *a)
{
    const elem *x = a->x;
    const elem *dy = a->dy;
    const real *rstd = a->rstd_in;
    real *dw = a->dw;
    for (int64_t d = 0; d < a->d; d++) {
        double sum = (double)dw[d];
        for (int64_t r = 0; r < a->r; r++) {
            sum += (double)elem_load(dy[r * a->d + d]) * (double)elem_load(x[r * a->d + d]) *
                   (double)rstd[r];
        }
        dw[d] = (real)sum;
    }
}

void OP(rmsnorm_bwd)(struct pool *pool, const void *args)
{
    (void)pool;
    const struct rmsnorm_args *a = args;
    const elem *w = a->w;
    add_weight_gradient(a);
    for (int64_t r = 0; r < a->r; r++) {
        const elem *x = (const elem *)a->x + r * a->d;
        const elem *dy = (const elem *)a->dy + r * a->d;
        elem *dx = (elem *)a->dx + r * a->d;
        double rstd = (double)((const real *)a->rstd_in)[r];
        double dot = 0;
        for (int64_t d = 0; d < a->d; d++) {
            dot += (double)elem_load(dy[d]) * (double)elem_load(w[d]) * (double)elem_load(x[d]);
        }
        double pull = rstd * rstd * rstd * dot / (double)a->d;
        for (int64_t d = 0; d < a->d; d++) {
            double g = rstd * (double)elem_load(dy[d]) * (double)elem_load(w[d]) -
                       pull * (double)elem_load(x[d]);
            dx[d] = elem_store((real)(a->accumulate ? (double)elem_load(dx[d]) + g : g));
        }
    }
}

size_t OP(rmsnorm_bwd_workspace)(int64_t r, int64_t d)
{
    (void)r;
    (void)d;
    return 0;
}
