/* Blocks that stay in the first-level cache: a block of every member is read once, folded, and
 * written where it goes while its lines are still near. Blocks don't change the order of a fold, so
 * they don't change its bits. bf16 is folded in fp32 and rounded once, when it is written. */
#include "runtime/comm/comm_host_reduce.h"

#include <string.h>

#include "kernels/host/bf16.h"

#define BLOCK_BYTES 16384

static float load_f32(float x)
{
    return x;
}

static double load_f64(double x)
{
    return x;
}

static float load_bf16(uint16_t x)
{
    return bf16_float(x);
}

/* X: as the members have it; T: as it is folded. */
#define REDUCE(NAME, X, T)                                                                         \
    static void NAME##_sum(T *restrict acc, const X *restrict x, size_t n)                         \
    {                                                                                              \
        for (size_t i = 0; i < n; i++) {                                                           \
            acc[i] += load_##NAME(x[i]);                                                           \
        }                                                                                          \
    }                                                                                              \
    static void NAME##_max(T *restrict acc, const X *restrict x, size_t n)                         \
    {                                                                                              \
        for (size_t i = 0; i < n; i++) {                                                           \
            T v = load_##NAME(x[i]);                                                               \
            acc[i] = v > acc[i] || v != v ? v : acc[i];                                            \
        }                                                                                          \
    }

REDUCE(f32, float, float)
REDUCE(f64, double, double)
REDUCE(bf16, uint16_t, float)

static void begin(void *acc, const void *x, size_t n, enum dtype t)
{
    if (t != DTYPE_BF16) {
        memcpy(acc, x, n * dtype_size(t));
        return;
    }
    for (size_t i = 0; i < n; i++) {
        ((float *)acc)[i] = bf16_float(((const uint16_t *)x)[i]);
    }
}

static void fold(void *acc, const void *x, size_t n, enum dtype t, enum comm_op op)
{
    if (t == DTYPE_F64) {
        (op == COMM_SUM ? f64_sum : f64_max)(acc, x, n);
    } else if (t == DTYPE_BF16) {
        (op == COMM_SUM ? bf16_sum : bf16_max)(acc, x, n);
    } else {
        (op == COMM_SUM ? f32_sum : f32_max)(acc, x, n);
    }
}

/* What is to be written: acc itself, or low with its numbers rounded. */
static const void *end(const void *acc, uint16_t *restrict low, size_t n, enum dtype t)
{
    if (t != DTYPE_BF16) {
        return acc;
    }
    for (size_t i = 0; i < n; i++) {
        low[i] = bf16_of(((const float *)acc)[i]);
    }
    return low;
}

void comm_host_reduce(void *const *dsts, int32_t num_dsts, const void *const *srcs, int32_t num,
                      size_t n, enum dtype t, enum comm_op op)
{
    _Alignas(64) char acc[BLOCK_BYTES];
    _Alignas(64) uint16_t low[BLOCK_BYTES / sizeof(float)];
    size_t elem = dtype_size(t);
    size_t block = BLOCK_BYTES / dtype_size(dtype_wide(t));
    for (size_t i = 0; i < n; i += block) {
        size_t count = n - i < block ? n - i : block;
        begin(acc, (const char *)srcs[0] + i * elem, count, t);
        for (int32_t r = 1; r < num; r++) {
            fold(acc, (const char *)srcs[r] + i * elem, count, t, op);
        }
        const void *done = end(acc, low, count, t);
        for (int32_t r = 0; r < num_dsts; r++) {
            memcpy((char *)dsts[r] + i * elem, done, count * elem);
        }
    }
}
