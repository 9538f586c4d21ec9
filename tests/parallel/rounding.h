/* What a number becomes in bf16, said in another way than the kernels': eight leading bits, to
 * nearest, to even halfway. */
#ifndef TANDEM_TESTS_PARALLEL_ROUNDING_H
#define TANDEM_TESTS_PARALLEL_ROUNDING_H

#include <math.h>

/* x is finite, its bf16 a normal number or zero. */
static inline float rounding_bf16(float x)
{
    int exponent;
    float lead = ldexpf(frexpf(x, &exponent), 8); /* eight bits before the point */
    return ldexpf(rintf(lead), exponent - 8);
}

#endif
