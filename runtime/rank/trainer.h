/* The training loop of one rank: walks the plan's action list once a step. */
#ifndef TANDEM_RUNTIME_RANK_TRAINER_H
#define TANDEM_RUNTIME_RANK_TRAINER_H

#include "runtime/rank/state.h"

/* One step on its way. */
struct step {
    int64_t number;
    double dloss; /* 1 / valid targets of the whole step, over all ranks: the one divisor */
    enum boundary boundary;
    struct step_result result;
};

/* From r->step to the end, or to where a command stops it (*paused). When it returns 0, the state
 * at r->step is in a committed checkpoint. */
int trainer_run(struct rank *r, bool *paused, struct error *err);

/* One action of the list; also for nonfinite.c, which repeats a step. */
int trainer_action(struct rank *r, struct step *s, const Action *a, struct error *err);

#endif
