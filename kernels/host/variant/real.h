/* Sources below ref/ and cpu/loops/, which compute, are compiled once a type (and once an
 * instruction set). `elem` is the type of an operation's numbers in memory, `real` what they are
 * computed in and what the wide ones (statistics, gradients of parameters) lie in; elem_load and
 * elem_store, which rounds, lie between, and are nothing but for bf16. OP(name) is the name with
 * the variant behind it. The build sets REAL_IS_F64 and ELEM_IS_BF16 (0 or 1) and VARIANT (such as
 * ref_f32_v3). */
#ifndef TANDEM_KERNELS_HOST_VARIANT_REAL_H
#define TANDEM_KERNELS_HOST_VARIANT_REAL_H

#include "kernels/host/bf16.h"

#if REAL_IS_F64
typedef double real;
#else
typedef float real;
#endif

#if ELEM_IS_BF16
typedef uint16_t elem;
#else
typedef real elem;
#endif

static inline real elem_load(elem x)
{
#if ELEM_IS_BF16
    return bf16_float(x);
#else
    return x;
#endif
}

static inline elem elem_store(real x)
{
#if ELEM_IS_BF16
    return bf16_of(x);
#else
    return x;
#endif
}

#define OP_JOIN(name, variant) name##_##variant
#define OP_EXPAND(name, variant) OP_JOIN(name, variant)
#define OP(name) OP_EXPAND(name, VARIANT)

#endif
