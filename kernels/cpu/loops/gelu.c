/* With u = sqrt(2/pi) (x + 0.044715 x^3), (1 + tanh(u)) / 2 = 1 / (1 + e^-2u): one exponential, and
 * exact to the last bits also where tanh is near -1. */
#include "kernels/host/variant/variant.h"

#include "kernels/cpu/loops/block.h"
#include "kernels/cpu/loops/exp.h"

#define TWO_ROOT_2_OVER_PI ((real)1.59576912160573071176)
#define CUBIC ((real)0.044715)
/* Farther out the slope is 0 or 1 to the last bit; up to there e^-2u is a finite number. */
#if REAL_IS_F64
#define SLOPE_END 21.0
#else
#define SLOPE_END 10.0f
#endif

/* e^-2u. */
static inline real decay_of(real x)
{
    return exp_real(-TWO_ROOT_2_OVER_PI * x * (1 + CUBIC * x * x));
}

static void gelu_fwd_task(void *arg, int64_t task, int thread)
{
    (void)thread;
    const struct gelu_args *a = arg;
    const real *x = a->x;
    real *y = a->out;
    int64_t end = min_i64(a->n, (task + 1) * ELEMENT_BLOCK);
#pragma omp simd
    for (int64_t i = task * ELEMENT_BLOCK; i < end; i++) {
        y[i] = x[i] / (1 + decay_of(x[i]));
    }
}

void OP(gelu_fwd)(struct pool *pool, const void *args)
{
    struct gelu_args a = *(const struct gelu_args *)args;
    pool_run(pool, num_blocks(a.n, ELEMENT_BLOCK), gelu_fwd_task, &a);
}

static void gelu_bwd_task(void *arg, int64_t task, int thread)
{
    (void)thread;
    const struct gelu_args *a = arg;
    const real *x = a->x;
    const real *dy = a->dy;
    real *dx = a->out;
    int64_t end = min_i64(a->n, (task + 1) * ELEMENT_BLOCK);
#pragma omp simd
    for (int64_t i = task * ELEMENT_BLOCK; i < end; i++) {
        real c = x[i] < -SLOPE_END ? -SLOPE_END : x[i];
        c = c > SLOPE_END ? SLOPE_END : c;
        real e = decay_of(c);
        real s = 1 / (1 + e);
        real slope = TWO_ROOT_2_OVER_PI * (1 + 3 * CUBIC * c * c);
        dx[i] = dy[i] * (s + c * s * (e * s) * slope);
    }
}

void OP(gelu_bwd)(struct pool *pool, const void *args)
{
    struct gelu_args a = *(const struct gelu_args *)args;
    pool_run(pool, num_blocks(a.n, ELEMENT_BLOCK), gelu_bwd_task, &a);
}
