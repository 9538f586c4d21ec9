/* e^x for vectorised loops: no branch, no call. Within 1 ulp for x between the bounds; below them
 * 0, above them infinity. A NaN stays one. */
#ifndef TANDEM_KERNELS_CPU_LOOPS_EXP_H
#define TANDEM_KERNELS_CPU_LOOPS_EXP_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "kernels/host/variant/real.h"

/* e^x = 2^n * e^r with n = round(x / ln 2): adding 1.5 * 2^(mantissa bits) leaves n in the low bits
 * of the sum. ln 2 comes in two parts, the first with zeros at the end, so that n * part is exact.
 * e^r, |r| <= ln(2)/2, is its Taylor series. */
#if REAL_IS_F64
#define EXP_MIN -708.0
#define EXP_MAX 709.0

static inline double exp_real(double x)
{
    const double magic = 0x1.8p52;
    double c = x < EXP_MIN ? EXP_MIN : x;
    c = c > EXP_MAX ? EXP_MAX : c;
    double sum = c * 0x1.71547652b82fep0 + magic;
    double n = sum - magic;
    double r = (c - n * 0x1.62e42fefa0000p-1) - n * 0x1.cf79abc9e3b39p-40;
    double p = 1.0 / 6227020800.0;
    p = p * r + 1.0 / 479001600.0;
    p = p * r + 1.0 / 39916800.0;
    p = p * r + 1.0 / 3628800.0;
    p = p * r + 1.0 / 362880.0;
    p = p * r + 1.0 / 40320.0;
    p = p * r + 1.0 / 5040.0;
    p = p * r + 1.0 / 720.0;
    p = p * r + 1.0 / 120.0;
    p = p * r + 1.0 / 24.0;
    p = p * r + 1.0 / 6.0;
    p = p * r + 0.5;
    p = p * r + 1.0;
    p = p * r + 1.0;
    uint64_t bits;
    memcpy(&bits, &sum, sizeof bits);
    bits = (bits + 1023) << 52;
    double power;
    memcpy(&power, &bits, sizeof power);
    double y = x < EXP_MIN ? 0.0 : p * power;
    return x > EXP_MAX ? (double)INFINITY : y;
}
#else
#define EXP_MIN -87.0f
#define EXP_MAX 88.0f

static inline float exp_real(float x)
{
    const float magic = 0x1.8p23f;
    float c = x < EXP_MIN ? EXP_MIN : x;
    c = c > EXP_MAX ? EXP_MAX : c;
    float sum = c * 0x1.715476p0f + magic;
    float n = sum - magic;
    float r = (c - n * 0x1.62e400p-1f) - n * 0x1.7f7d1cp-20f;
    float p = 1.0f / 5040.0f;
    p = p * r + 1.0f / 720.0f;
    p = p * r + 1.0f / 120.0f;
    p = p * r + 1.0f / 24.0f;
    p = p * r + 1.0f / 6.0f;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    uint32_t bits;
    memcpy(&bits, &sum, sizeof bits);
    bits = (bits + 127) << 23;
    float power;
    memcpy(&power, &bits, sizeof power);
    float y = x < EXP_MIN ? 0.0f : p * power;
    return x > EXP_MAX ? INFINITY : y;
}
#endif

#endif
