/* What of the model lies on this rank, where it comes from and where it goes. */
#ifndef TANDEM_RUNTIME_RANK_WEIGHTS_H
#define TANDEM_RUNTIME_RANK_WEIGHTS_H

#include "runtime/rank/state.h"

/* The live buffers, as checkpoints see them, in the device's memory. Borrows from the store. */
struct ckpt_state weights_state(const struct rank *r);
/* From a checkpoint (then r->step is its), a Hugging Face folder, or the seed. */
int weights_fill(struct rank *r, struct error *err);
/* Rank 0, at the end: JOB/export. */
int weights_export(struct rank *r, struct error *err);

#endif
