/* Fills one parameter's place in a flat buffer from a tensor of a file. */
#ifndef TANDEM_RUNTIME_CKPT_FILL_H
#define TANDEM_RUNTIME_CKPT_FILL_H

#include "kernels/tensor.h"
#include "plan/params.h"
#include "runtime/ckpt/safetensors.h"

/* Checks the shape (the error names tensor and both shapes), then reads and converts. flat: the
 * buffer's start, of dtype F32 or F64. */
int fill_param(const struct param *p, const struct st_file *file, const struct st_tensor *t,
               void *flat, enum dtype dtype, struct error *err);

#endif
