/* The training loop of one rank: walks the plan's action list once a step. */
#ifndef TANDEM_RUNTIME_RANK_TRAINER_H
#define TANDEM_RUNTIME_RANK_TRAINER_H

#include "runtime/rank/state.h"

/* From r->step to the end, or to where a command stops it (*paused). When it returns 0, the state
 * at r->step is in a committed checkpoint. */
int trainer_run(struct rank *r, bool *paused, struct error *err);

/* Reads micro-batch `micro_batch` of a step and computes units of it. For the trainer and for
 * nonfinite.c, which repeats a step. */
int trainer_forward(struct rank *r, int64_t step, const Action *a, double dloss, struct error *err);

#endif
