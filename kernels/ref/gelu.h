/* GELU (tanh) of one number, and its slope. */
#ifndef TANDEM_KERNELS_REF_GELU_H
#define TANDEM_KERNELS_REF_GELU_H

#include <math.h>

#define ROOT_2_OVER_PI 0.79788456080286535588
#define CUBIC 0.044715

static inline double gelu(double x)
{
    return 0.5 * x * (1 + tanh(ROOT_2_OVER_PI * (x + CUBIC * x * x * x)));
}

static inline double gelu_slope(double x)
{
    double t = tanh(ROOT_2_OVER_PI * (x + CUBIC * x * x * x));
    double inner = ROOT_2_OVER_PI * (1 + 3 * CUBIC * x * x);
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * inner;
}

#endif
