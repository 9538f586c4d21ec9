/* Types of numbers, and a view of memory with a shape. Row-major, dense. */
#ifndef TANDEM_KERNELS_TENSOR_H
#define TANDEM_KERNELS_TENSOR_H

#include <stddef.h>
#include <stdint.h>

enum dtype { DTYPE_F32, DTYPE_F64, DTYPE_BF16, DTYPE_I32 };

static inline size_t dtype_size(enum dtype t)
{
    return t == DTYPE_F64 ? 8 : t == DTYPE_BF16 ? 2 : 4;
}

/* What sums over numbers of type t are computed in, and what statistics and gradients of parameters
 * have: at least fp32. */
static inline enum dtype dtype_wide(enum dtype t)
{
    return t == DTYPE_BF16 ? DTYPE_F32 : t;
}

#endif
