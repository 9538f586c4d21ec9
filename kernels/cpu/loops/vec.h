/* One vector register of `real`, as wide as the variant's instruction set has them. Loads and
 * stores need no alignment. */
#ifndef TANDEM_KERNELS_CPU_LOOPS_VEC_H
#define TANDEM_KERNELS_CPU_LOOPS_VEC_H

#include <stdint.h>

#include "kernels/host/variant/real.h"

#if defined(__AVX512F__)
#define VEC_BYTES 64
#elif defined(__AVX2__)
#define VEC_BYTES 32
#else
#define VEC_BYTES 16
#endif

typedef real vec __attribute__((vector_size(VEC_BYTES), aligned(sizeof(real)), may_alias));

#define VEC_LANES (VEC_BYTES / (REAL_IS_F64 ? 8 : 4))

/* A register of numbers as they lie in memory. */
static inline vec vec_load(const elem *x)
{
#if ELEM_IS_BF16
    vec out;
#pragma GCC unroll 16
    for (int i = 0; i < VEC_LANES; i++) {
        out[i] = elem_load(x[i]);
    }
    return out;
#else
    return *(const vec *)x;
#endif
}

#endif
