#include "kernels/host/variant/variant.h"

#include <math.h>

void OP(layernorm_fwd)(struct pool *pool, const void *args)
{
    (void)pool;
    const struct layernorm_args *a = args;
    const real *w = a->w;
    const real *b = a->b;
    for (int64_t r = 0; r < a->r; r++) {
        const real *x = (const real *)a->x + r * a->d;
        real *y = (real *)a->y + r * a->d;
        double sum = 0;
        for (int64_t d = 0; d < a->d; d++) {
            sum += (double)x[d];
        }
        double mean = sum / (double)a->d;
        double squares = 0;
        for (int64_t d = 0; d < a->d; d++) {
            squares += ((double)x[d] - mean) * ((double)x[d] - mean);
        }
        double inv = 1 / sqrt(squares / (double)a->d + a->eps);
        ((real *)a->mean)[r] = (real)mean;
        ((real *)a->rstd)[r] = (real)inv;
        for (int64_t d = 0; d < a->d; d++) {
            y[d] = (real)(((double)x[d] - mean) * inv * (double)w[d] + (double)b[d]);
        }
    }
}

/* dw, db first: dx may lie where dy lies. */
static void add_parameter_gradients(const struct layernorm_args *a)
{
    const real *x = a->x;
    const real *dy = a->dy;
    const real *mean = a->mean_in;
    const real *rstd = a->rstd_in;
    real *dw = a->dw;
    real *db = a->db;
    for (int64_t d = 0; d < a->d; d++) {
        double sum_w = (double)dw[d];
        double sum_b = (double)db[d];
        for (int64_t r = 0; r < a->r; r++) {
            double g = (double)dy[r * a->d + d];
            sum_w += g * ((double)x[r * a->d + d] - (double)mean[r]) * (double)rstd[r];
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
    const real *w = a->w;
    add_parameter_gradients(a);
    for (int64_t r = 0; r < a->r; r++) {
        const real *x = (const real *)a->x + r * a->d;
        const real *dy = (const real *)a->dy + r * a->d;
        real *dx = (real *)a->dx + r * a->d;
        double mean = (double)((const real *)a->mean_in)[r];
        double rstd = (double)((const real *)a->rstd_in)[r];
        double sum = 0;
        double dot = 0;
        for (int64_t d = 0; d < a->d; d++) {
            double g = (double)dy[d] * (double)w[d];
            sum += g;
            dot += g * ((double)x[d] - mean) * rstd;
        }
        for (int64_t d = 0; d < a->d; d++) {
            double n = ((double)x[d] - mean) * rstd;
            double pull = (sum + n * dot) / (double)a->d;
            double g = rstd * ((double)dy[d] * (double)w[d] - pull);
            dx[d] = (real)(a->accumulate ? (double)dx[d] + g : g);
        }
    }
}

size_t OP(layernorm_bwd_workspace)(int64_t r, int64_t d)
{
    (void)r;
    (void)d;
    return 0;
}
