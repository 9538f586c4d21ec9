/* One rank: a struct, not a process. tandem-rank runs one; tests run many as threads of one
 * process. It obeys its plan: opens device, communicator, data and model, walks the action list
 * once a step, reports through its link. No globals. */
#ifndef TANDEM_RUNTIME_RANK_RANK_H
#define TANDEM_RUNTIME_RANK_RANK_H

#include "base/error.h"
#include "proto/names.h"
#include "runtime/link/link.h"

struct rank_options {
    const RankStart *start; /* borrowed: plan, rank, attempt, resume, job folder */
    struct link *link;      /* reports and commands */
    int segment_fd;         /* the gang's shared segment; -1 with a single rank */
    int64_t deadline_ms;    /* of a collective */
};

/* Trains to the end (or to where a command stops it). 0: done or paused, as reported on the link;
 * -1: err says why; *retryable is false where the same would happen again. */
int rank_run(const struct rank_options *options, bool *retryable, struct error *err);

#endif
