/* The table of operations on a CUDA device: each entry checks what the caller passes and makes the
 * launches. What the files of it share, and what front.c's table takes from the others. */
#ifndef TANDEM_KERNELS_CUDA_FRONT_H
#define TANDEM_KERNELS_CUDA_FRONT_H

#include "kernels/cuda/device.h"
#include "kernels/cuda/launch.h"
#include "kernels/front.h"

extern const struct kernels cuda_kernels;

/* Is t one that activations may have here? If not: words, and false. */
bool front_has_type(const char *op, enum dtype t, struct error *err);

/* `return FRONT_LAUNCH(...)`: 0, or -1 and words with the operation's name. */
#define FRONT_LAUNCH(op, dev, launch)                                                              \
    (cuda_use(dev, err) == 0 ? front_launched(op, (launch), err) : -1)

static inline int front_launched(const char *op, cudaError_t e, struct error *err)
{
    return e == cudaSuccess ? 0 : cuda_error(err, e, "%s", op);
}

#endif
