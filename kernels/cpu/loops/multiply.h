/* The matrix product of one thread, for all that the cpu loops multiply. Every entry is summed over
 * k in the same order, wherever it lies in C: cutting C into parts changes no bit. */
#ifndef TANDEM_KERNELS_CPU_LOOPS_MULTIPLY_H
#define TANDEM_KERNELS_CPU_LOOPS_MULTIPLY_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/host/variant/real.h"

/* Entry (i, j) lies at at[i * row + j * col]; one of the two distances is 1. */
struct view {
    const void *at;
    int64_t row, col;
    bool wide; /* entries are of type real, else elem */
};

/* From entry (i, j) on. */
static inline struct view view_from(struct view v, int64_t i, int64_t j)
{
    int64_t offset = i * v.row + j * v.col;
    const void *at =
        v.wide ? (const void *)((const real *)v.at + offset) : (const elem *)v.at + offset;
    return (struct view){at, v.row, v.col, v.wide};
}

/* C[m,n] = alpha * A[m,k] * B[k,n] + beta * C; rows of C are ldc apart. C is not read where beta is
 * 0. */
void OP(multiply)(int64_t m, int64_t n, int64_t k, real alpha, struct view a, struct view b,
                  real beta, real *c, int64_t ldc);

/* Sides of C that parts of it should be multiples of. */
int64_t OP(multiply_rows)(void);
int64_t OP(multiply_cols)(void);

#endif
