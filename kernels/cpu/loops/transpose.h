/* Transposes a square of one vector's width in registers: one exchange of halves, quarters and so
 * on between pairs of rows for each bit of a lane's number. */
#ifndef TANDEM_KERNELS_CPU_LOOPS_TRANSPOSE_H
#define TANDEM_KERNELS_CPU_LOOPS_TRANSPOSE_H

#include "kernels/cpu/loops/vec.h"

/* Where lane l of the upper and of the lower row of a pair comes from, when the bit d of row and
 * lane is exchanged; lanes of the lower row count from VEC_LANES. */
#define UPPER(l, d) ((l) & (d) ? VEC_LANES + (l) - (d) : (l))
#define LOWER(l, d) ((l) & (d) ? VEC_LANES + (l) : (l) + (d))

#define LANES_2(of, d) of(0, d), of(1, d)
#define LANES_4(of, d) LANES_2(of, d), of(2, d), of(3, d)
#define LANES_8(of, d) LANES_4(of, d), of(4, d), of(5, d), of(6, d), of(7, d)
#define LANES_16(of, d)                                                                            \
    LANES_8(of, d), of(8, d), of(9, d), of(10, d), of(11, d), of(12, d), of(13, d), of(14, d),     \
        of(15, d)

#if VEC_LANES == 16
#define LANES LANES_16
#elif VEC_LANES == 8
#define LANES LANES_8
#elif VEC_LANES == 4
#define LANES LANES_4
#else
#define LANES LANES_2
#endif

#define EXCHANGE(rows, d)                                                                          \
    _Pragma("GCC unroll 16") for (int i = 0; i < VEC_LANES; i++)                                   \
    {                                                                                              \
        if ((i & (d)) == 0) {                                                                      \
            vec upper = rows[i];                                                                   \
            vec lower = rows[i + (d)];                                                             \
            rows[i] = __builtin_shufflevector(upper, lower, LANES(UPPER, d));                      \
            rows[i + (d)] = __builtin_shufflevector(upper, lower, LANES(LOWER, d));                \
        }                                                                                          \
    }

/* out[i][j] = in[j][i]; out_row, in_row: distances of rows. */
static inline void transpose_square(real *out, int64_t out_row, const real *in, int64_t in_row)
{
    vec rows[VEC_LANES];
#pragma GCC unroll 16
    for (int i = 0; i < VEC_LANES; i++) {
        rows[i] = *(const vec *)(in + i * in_row);
    }
#if VEC_LANES >= 16
    EXCHANGE(rows, 8)
#endif
#if VEC_LANES >= 8
    EXCHANGE(rows, 4)
#endif
#if VEC_LANES >= 4
    EXCHANGE(rows, 2)
#endif
    EXCHANGE(rows, 1)
#pragma GCC unroll 16
    for (int i = 0; i < VEC_LANES; i++) {
        *(vec *)(out + i * out_row) = rows[i];
    }
}

#endif
