/* One rank: a struct, not a process. tandem-rank runs one; tests run many as threads of one
 * process. It obeys its plan: opens device, communicator, data and model, walks the action list
 * once a step, reports through its link. No globals. */
#ifndef TANDEM_RUNTIME_RANK_RANK_H
#define TANDEM_RUNTIME_RANK_RANK_H

#include "base/error.h"
#include "proto/names.h"
#include "plan/params.h"
#include "runtime/link/link.h"
#include "runtime/parallel/axes.h"
#include "runtime/parallel/store.h"

/* For tests, which look at what is elsewhere only summed up. Called on the rank's own thread with
 * all work of it done. NULL = not wanted. */
struct rank_observer {
    void *arg;
    /* Each step behind the norm: the gradients are summed, not clipped. */
    void (*gradients)(void *arg, int32_t rank, int64_t step, const struct param_table *table,
                      const struct axes *axes, const struct store *store);
    /* Behind each step, with the plan's estimate in use. */
    void (*memory)(void *arg, int32_t rank, int64_t step, const struct arenas *arenas,
                   const MemoryUse *use);
    /* Behind the last step: weights and moments. */
    void (*state)(void *arg, int32_t rank, int64_t step, const struct param_table *table,
                  const struct axes *axes, const struct store *store);
};

struct rank_options {
    const RankStart *start;               /* borrowed: plan, rank, attempt, resume, job folder */
    struct link *link;                    /* reports and commands */
    int segment_fd;                       /* the gang's shared segment; -1 with a single rank */
    int64_t deadline_ms;                  /* of a collective */
    const struct rank_observer *observer; /* borrowed; NULL in production */
    /* For tests: compute on a host device runs behind its caller too, as on an accelerator. */
    bool queued_compute;
};

/* Trains to the end (or to where a command stops it). 0: done or paused, as reported on the link;
 * -1: err says why; *retryable is false where the same would happen again. */
int rank_run(const struct rank_options *options, bool *retryable, struct error *err);

#endif
