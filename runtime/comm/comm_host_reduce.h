/* Sums and maxima over the members' buffers, in rank order (private to comm_host*.c). */
#ifndef TANDEM_RUNTIME_COMM_HOST_REDUCE_H
#define TANDEM_RUNTIME_COMM_HOST_REDUCE_H

#include <stddef.h>

#include "runtime/comm/comm.h"

/* For each of n elements: the fold of srcs[0..num) from the left, into all of dsts[0..num_dsts).
 * srcs and dsts may be the same buffers. t is F32, F64, or BF16: folded in fp32,
 * rounded once. COMM_MAX: a NaN stays. */
void comm_host_reduce(void *const *dsts, int32_t num_dsts, const void *const *srcs, int32_t num,
                      size_t n, enum dtype t, enum comm_op op);

#endif
