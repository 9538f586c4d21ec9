/* Sources below ref/ and cpu/loops/, which compute, are compiled once a type (and once an
 * instruction set): `real` is the type, OP(name) the name with the variant behind it. The build
 * sets REAL_IS_F64 (0 or 1) and VARIANT (such as ref_f32). */
#ifndef TANDEM_KERNELS_HOST_VARIANT_REAL_H
#define TANDEM_KERNELS_HOST_VARIANT_REAL_H

#if REAL_IS_F64
typedef double real;
#else
typedef float real;
#endif

#define OP_JOIN(name, variant) name##_##variant
#define OP_EXPAND(name, variant) OP_JOIN(name, variant)
#define OP(name) OP_EXPAND(name, VARIANT)

#endif
