#include "kernels/host/variant/variant.h"

#include <math.h>

void OP(layernorm_fwd)(struct pool *pool, const void *args)
{
    (void)pool;
    const struct layernorm_args *a = args;
    const elem *w = a->w;
    const elem *b = a->b;
    for (int64_t r = 0; r < a->r; r++) {
        const elem *x = (const elem *)a->x + r * a->d;
        elem *y = (elem *)a->y + r * a->d;
        double sum = 0;
        for (int64_t d = 0; d < a->d; d++) {
            sum += (double)elem_load(x[d]);
        }
        double mean = sum / (double)a->d;
        double squares = 0;
        for (int64_t d = 0; d < a->d; d++) {
            squares += ((double)elem_load(x[d]) - mean) * ((double)elem_load(x[d]) - mean);
        }
        double inv = 1 / sqrt(squares / (double)a->d + a->eps);
        ((real *)a->mean)[r] = (real)mean;
        ((real *)a->rstd)[r] = (real)inv;
        for (int64_t d = 0; d < a->d; d++) {
            y[d] =
                elem_store((real)(((double)elem_load(x[d]) - mean) * inv * (double)elem_load(w[d]) +
                                  (double)elem_load(b[d])));
        }
    }
}

/* dw, db first: dx may lie where dy lies. */
static void add_parameter_gradients(const struct layernorm_args *a)
{
    const elem *x = a->x;
    const elem *dy = a->dy;
    const real *mean = a->mean_in;
    const real *rstd = a->rstd_in;
    real *dw = a->dw;
    real *db = a->db;
    for (int64_t d = 0; d < a->d; d++) {
        double sum_w = (double)dw[d];
        double sum_b = (double)db[d];
        for (int64_t r = 0; r < a->r; r++) {
            double g = (double)elem_load(dy[r * a->d + d]);
            sum_w += g * ((double)elem_load(x[r * a->d + d]) - (double)mean[r]) * (double)rstd[r];
            sum_b += g;
        }
        dw[d] = (real)sum_w;
        db[d] = (real)sum_b;
    }
}

/* With n = (x - mean) * rstd and g = dy * w: dx = rstd * (g - mean(g) - n * mean(g * n)). */
void OP(layernorm_bwd)(struct pool *pool, const void *args)
{
    (void)pool;
    const struct layernorm_args *a = args;
    const elem *w = a->w;
    add_parameter_gradients(a);
    for (int64_t r = 0; r < a->r; r++) {
        const elem *x = (const elem *)a->x + r * a->d;
        const elem *dy = (const elem *)a->dy + r * a->d;
        elem *dx = (elem *)a->dx + r * a->d;
        double mean = (double)((const real *)a->mean_in)[r];
        double rstd = (double)((const real *)a->rstd_in)[r];
        double sum = 0;
        double dot = 0;
        for (int64_t d = 0; d < a->d; d++) {
            double g = (double)elem_load(dy[d]) * (double)elem_load(w[d]);
            sum += g;
            dot += g * ((double)elem_load(x[d]) - mean) * rstd;
        }
        for (int64_t d = 0; d < a->d; d++) {
            double n = ((double)elem_load(x[d]) - mean) * rstd;
            double pull = (sum + n * dot) / (double)a->d;
            double g = rstd * ((double)elem_load(dy[d]) * (double)elem_load(w[d]) - pull);
            dx[d] = elem_store((real)(a->accumulate ? (double)elem_load(dx[d]) + g : g));
        }
    }
}

size_t OP(layernorm_bwd_workspace)(int64_t r, int64_t d)
{
    (void)r;
    (void)d;
    return 0;
}
