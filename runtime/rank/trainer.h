/* The training loop of one rank: walks the plan's action list once a step.
 *
 * A step is enqueued without waiting for anything. Where compute runs behind its caller, what step
 * n came to (loss, norm, what rank 0 decided) is read when step n + 1 has been enqueued, so that
 * compute never runs dry; a step behind which the ranks save, and an attempt's first and last, are
 * read at once. Elsewhere each step is. */
#ifndef TANDEM_RUNTIME_RANK_TRAINER_H
#define TANDEM_RUNTIME_RANK_TRAINER_H

#include "runtime/rank/state.h"

/* One step on its way. */
struct step {
    int64_t number; /* 0 = there is none */
    int64_t begin_ns, enqueued_ns;
    double dloss; /* 1 / valid targets of the whole step, over all ranks: the one divisor */
    /* Once it has been read: what is due at its end, and at the end of the next step. Late, the
     * first of them is for an attempt's first step alone. */
    enum boundary boundary, next_boundary;
    struct step_result result;
};

/* From r->step to the end, or to where a command stops it (*paused). When it returns 0, the state
 * at r->step is in a committed checkpoint. */
int trainer_run(struct rank *r, bool *paused, struct error *err);

/* One action of the list; also for nonfinite.c, which repeats a step. */
int trainer_action(struct rank *r, struct step *s, const Action *a, struct error *err);

/* Tensor ranks read the same rows and come to the same loss: one of them counts. */
static inline bool trainer_speaks_for_its_rows(const struct rank *r)
{
    return r->axes.coord.tensor == 0;
}

/* Of this attempt. */
static inline bool trainer_is_first(const struct rank *r, const struct step *s)
{
    return s->number == r->first_step;
}

#endif
