/* Where a device's time goes, by operation: TANDEM_CUDA_TIMES=FILE in a process's environment has
 * the table of operations put an event before and behind each call, and writes FILE.PID when the
 * device is closed: a line of JSON for each kind of call (products and attention: for each shape)
 *   {"op": "gemm", "what": "bf16 1024x768x768 nt fused", "count": 24,
 *    "first_ms": 2.5, "ms": 1.5, "flops": 3e10}
 * where ms is of all calls but the first, which loads and chooses, and flops of all; and one, with
 * op "", of the calls that weren't timed because they were captured in a graph.
 *
 * Not set, nothing is in the way: the table is another one. Set, the host waits for the device
 * every TIMES_PENDING calls. Copies, fills and communication are no operations of the table. */
#ifndef TANDEM_KERNELS_CUDA_TIMES_H
#define TANDEM_KERNELS_CUDA_TIMES_H

#include "kernels/kernels.h"

#define TIMES_PENDING 1024

/* cuda_kernels, or the same with times. */
const struct kernels *times_kernels(void);
/* Nothing where no times are taken. Streams of dev have been synchronised. */
void times_write(struct device *dev);

#endif
