/* GELU of one number, and its slope. With u = sqrt(2/pi) (x + 0.044715 x^3), (1 + tanh(u)) / 2 =
 * 1 / (1 + e^-2u): one exponential, and exact to the last bits also where tanh is near -1. */
#ifndef TANDEM_KERNELS_CPU_LOOPS_GELU_H
#define TANDEM_KERNELS_CPU_LOOPS_GELU_H

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
static inline real gelu_decay(real x)
{
    return exp_real(-TWO_ROOT_2_OVER_PI * x * (1 + CUBIC * x * x));
}

static inline real gelu(real x)
{
    return x / (1 + gelu_decay(x));
}

static inline real gelu_slope(real x)
{
    real c = x < -SLOPE_END ? -SLOPE_END : x;
    c = c > SLOPE_END ? SLOPE_END : c;
    real e = gelu_decay(c);
    real s = 1 / (1 + e);
    real slope = TWO_ROOT_2_OVER_PI * (1 + 3 * CUBIC * c * c);
    return s + c * s * (e * s) * slope;
}

#endif
