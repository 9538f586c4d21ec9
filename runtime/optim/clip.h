/* The global gradient norm and the factor that clips it. */
#ifndef TANDEM_RUNTIME_OPTIM_CLIP_H
#define TANDEM_RUNTIME_OPTIM_CLIP_H

#include <stdint.h>

#include "kernels/kernels.h"

/* *out (host) = L2 norm of the flat gradients [n]. Each logical element lies there once: a tied
 * embedding has one place, padding is zero. Every data rank holds the same sums and computes the
 * same bits. scratch: one double in device memory. Waits for the stream. */
int clip_norm(struct device *dev, const struct kernels *kernels, struct stream *stream,
              enum dtype dtype, const void *grads, int64_t n, double *scratch, double *out,
              struct error *err);

/* max_norm / (norm + 1e-6) where that is below 1, else 1. max_norm 0 = off. */
double clip_factor(double norm, double max_norm);

#endif
