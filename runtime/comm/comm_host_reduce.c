/* Blocks that stay in the first-level cache: a block of every member is read once, folded, and
 * written where it goes while its lines are still near. Blocks don't change the order of a fold, so
 * they don't change its bits. */
#include "runtime/comm/comm_host_reduce.h"

#include <string.h>

#define BLOCK_BYTES 16384

#define REDUCE(NAME, T)                                                                            \
    static void NAME##_sum(T *restrict acc, const T *restrict x, size_t n)                         \
    {                                                                                              \
        for (size_t i = 0; i < n; i++) {                                                           \
            acc[i] += x[i];                                                                        \
        }                                                                                          \
    }                                                                                              \
    static void NAME##_max(T *restrict acc, const T *restrict x, size_t n)                         \
    {                                                                                              \
        for (size_t i = 0; i < n; i++) {                                                           \
            acc[i] = x[i] > acc[i] || x[i] != x[i] ? x[i] : acc[i];                                \
        }                                                                                          \
    }

REDUCE(f32, float)
REDUCE(f64, double)

static void fold(void *acc, const void *x, size_t n, enum dtype t, enum comm_op op)
{
    if (t == DTYPE_F64) {
        (op == COMM_SUM ? f64_sum : f64_max)(acc, x, n);
    } else {
        (op == COMM_SUM ? f32_sum : f32_max)(acc, x, n);
    }
}

void comm_host_reduce(void *const *dsts, int32_t num_dsts, const void *const *srcs, int32_t num,
                      size_t n, enum dtype t, enum comm_op op)
{
    _Alignas(64) char acc[BLOCK_BYTES];
    size_t elem = dtype_size(t);
    size_t block = BLOCK_BYTES / elem;
    for (size_t i = 0; i < n; i += block) {
        size_t count = n - i < block ? n - i : block;
        memcpy(acc, (const char *)srcs[0] + i * elem, count * elem);
        for (int32_t r = 1; r < num; r++) {
            fold(acc, (const char *)srcs[r] + i * elem, count, t, op);
        }
        for (int32_t r = 0; r < num_dsts; r++) {
            memcpy((char *)dsts[r] + i * elem, acc, count * elem);
        }
    }
}
