/* GELU and its derivative: x/2 (1 + tanh u) is x / (1 + e^(-2u)), u = sqrt(2/pi) (x + 0.044715
 * x^3), which cancels nowhere. Source: Hendrycks & Gimpel 2016. */
#ifndef TANDEM_KERNELS_CUDA_GELU_CUH
#define TANDEM_KERNELS_CUDA_GELU_CUH

#include "kernels/cuda/cu.h"

#define GELU_ROOT 0.79788456080286535588
#define GELU_CUBIC 0.044715
#define GELU_LOG2E 1.44269504088896340736

/* e^(-2u), by the hardware's power of two. */
static __device__ __forceinline__ float gelu_exp(float x, float square)
{
    const float a = (float)(-2 * GELU_ROOT * GELU_LOG2E);
    const float b = (float)(-2 * GELU_ROOT * GELU_LOG2E * GELU_CUBIC);
    return exp2f(x * (a + b * square));
}

static __device__ __forceinline__ float gelu_of(float x)
{
    return __fdividef(x, 1 + gelu_exp(x, x * x));
}

/* s + x * s * (1 - s) * 2u', s = 1 / (1 + e^(-2u)) and 1 - s = e^(-2u) * s. Beyond 8 it is 0 or 1
 * to a float, and nothing in it overflows before; a NaN stays one. */
static __device__ __forceinline__ float gelu_slope(float x)
{
    const float a = (float)(2 * GELU_ROOT);
    const float b = (float)(6 * GELU_ROOT * GELU_CUBIC);
    x = x > 8 ? 8 : x < -8 ? -8 : x;
    float square = x * x;
    float e = gelu_exp(x, square);
    float s = __fdividef(1.0f, 1 + e);
    return s + x * (s * (e * s)) * (a + b * square);
}

#endif
