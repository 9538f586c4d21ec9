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

struct rank {
    const struct rank_options *options; /* borrowed */
    const Plan *plan;                   /* borrowed */
    const Stage *stage;                 /* this rank's, in plan */
    int32_t idx;

    struct device *dev;
    const struct kernels *kernels;
    struct stream *compute;
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
    void **grads_at; /* by bucket: where its gradients lie whole just now; NULL = nowhere */
    double *words;   /* device memory, [WORD_RANKS + ranks] */
    double *said;    /* owned; the same on the host: what words_put has still to bring there */

    struct feed *feed;
    struct saver *saver;
    struct report *report;
    struct commands commands;

    int64_t step; /* finished optimizer steps */
};

#endif
