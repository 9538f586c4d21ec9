/* Fills what of one parameter lies here from a tensor of a file. */
#ifndef TANDEM_RUNTIME_CKPT_FILL_H
#define TANDEM_RUNTIME_CKPT_FILL_H

#include "runtime/ckpt/safetensors.h"
#include "runtime/ckpt/state.h"

/* Is the tensor's shape the parameter's true one? The error names tensor and both shapes. */
int fill_check_shape(const struct param *p, const struct st_file *file, const struct st_tensor *t,
                     struct error *err);
/* Checks the shape, then reads and converts what lies in
 * part: no more of the file than that, but for small gaps (columns of other tensor ranks), through
 * a buffer of fixed size. */
int fill_param(const struct ckpt_state *s, const struct ckpt_part *part, const struct param *p,
               const struct st_file *file, const struct st_tensor *t, struct error *err);

#endif
