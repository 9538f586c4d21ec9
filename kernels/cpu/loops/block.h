/* How the cpu loops share out their work: into blocks whose size follows from the shape alone, so
 * that no result depends on the number of threads. */
#ifndef TANDEM_KERNELS_CPU_LOOPS_BLOCK_H
#define TANDEM_KERNELS_CPU_LOOPS_BLOCK_H

#include <stdint.h>

/* Elements of a block of an elementwise operation: some tens of microseconds of work. */
#define ELEMENT_BLOCK INT64_C(16384)

static inline int64_t min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t max_i64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static inline int64_t num_blocks(int64_t n, int64_t block)
{
    return (n + block - 1) / block;
}

/* Rows of width d that make a block of about ELEMENT_BLOCK elements. */
static inline int64_t row_block(int64_t d)
{
    return max_i64(1, ELEMENT_BLOCK / max_i64(1, d));
}

#endif
