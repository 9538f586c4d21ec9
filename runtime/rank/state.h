/* A rank's parts, wired together by wiring.c and used by the trainer. Private to this folder.
 *
 * The rank's own thread owns all of it and enqueues all work. Four streams: compute runs in that
 * thread; sums of gradients (store), gathers of weights (store) and checkpoints (saver) have
 * threads of their own, which touch only what they were given. */
#ifndef TANDEM_RUNTIME_RANK_STATE_H
#define TANDEM_RUNTIME_RANK_STATE_H

#include "kernels/kernels.h"
#include "plan/params.h"
#include "runtime/comm/comm_host.h"
#include "runtime/layers/model.h"
#include "runtime/parallel/axes.h"
#include "runtime/parallel/store.h"
#include "runtime/rank/commands.h"
#include "runtime/rank/feed.h"
#include "runtime/rank/rank.h"
#include "runtime/rank/report.h"
#include "runtime/rank/save.h"

/* Numbers on their way from compute to the host (words.h). */
struct reading {
    double *words;         /* pinned memory of the host */
    struct event *arrived; /* owned */
};

struct rank {
    const struct rank_options *options; /* borrowed */
    const Plan *plan;                   /* borrowed */
    const Stage *stage;                 /* this rank's, in plan */
    int32_t idx;

    struct device *dev;  /* where it computes */
    struct device *host; /* of host memory and background work; the same where that computes */
    const struct kernels *kernels;
    struct stream *compute;
    bool late; /* compute runs behind its caller: what a step came to is read in the next one */
    struct comm_host_world *host_world; /* NULL with one rank */
    struct comm_world *world;           /* what trains talks in this one; NULL with one rank */
    const char *hosts[COMM_HOST_MAX_RANKS];
    struct axes axes;
    struct arenas *arenas; /* all its memory */

    enum dtype dtype;
    int32_t num_units;
    struct param_table table;
    struct store *store;
    struct model *model;
    struct replay *replay; /* NULL: nothing is captured */
    void **grads_at;       /* by bucket: where its gradients lie whole just now; NULL = nowhere */
    double *words;         /* device memory, [WORD_RANKS + ranks] */
    double *said[2];       /* the same on the host, of even and odd steps: see words.h */
    struct reading of_steps[2], of_counts[2], at_once;

    struct feed *feed;
    struct saver *saver;
    struct report *report;
    struct commands commands;

    int64_t step;       /* finished optimizer steps */
    int64_t first_step; /* of this attempt */
    int64_t end_ns;     /* of the last step that was read */
    /* A step whose data is wrong, as its count found ahead of it; 0 = none. */
    int64_t bad_count_step;
    struct error bad_count;
};

#endif
