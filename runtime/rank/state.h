/* A rank's parts, wired together by rank.c and used by the trainer. Private to this folder.
 *
 * The rank's own thread owns all of it. Two streams have threads of their own: dp's (sums of
 * gradients) and the saver's (checkpoints); they touch only what they were given. */
#ifndef TANDEM_RUNTIME_RANK_STATE_H
#define TANDEM_RUNTIME_RANK_STATE_H

#include "kernels/kernels.h"
#include "plan/params.h"
#include "runtime/comm/comm_host.h"
#include "runtime/data/loader.h"
#include "runtime/layers/model.h"
#include "runtime/optim/optimizer.h"
#include "runtime/parallel/dp.h"
#include "runtime/rank/commands.h"
#include "runtime/rank/rank.h"
#include "runtime/rank/report.h"
#include "runtime/rank/save.h"

/* Doubles in device memory. */
enum {
    /* Summed over the data ranks in one exchange each step. */
    WORD_LOSS,     /* negative log likelihoods */
    WORD_BOUNDARY, /* what rank 0 decided for the end of this step (enum boundary); others add 0 */
    NUM_STEP_WORDS,
    WORD_SCRATCH = NUM_STEP_WORDS,
    /* One for each data rank: what it found wrong, when a step isn't finite. */
    WORD_RANKS,
};

struct rank {
    const struct rank_options *options; /* borrowed */
    const Plan *plan;                   /* borrowed */
    const Stage *stage;                 /* this rank's, in plan */
    int32_t idx, data_idx, data_size;

    struct device *dev;
    const struct kernels *kernels;
    struct stream *compute;
    struct comm_host_world *world; /* NULL with one rank */
    struct comm *grad_comm, *save_comm;

    enum dtype dtype;
    struct param_table table;
    void *weights, *grads, *exp_avg, *exp_avg_sq; /* flat, device memory */
    double *words;                                /* device memory, [num_words] */
    int64_t num_words;
    int32_t *batch_host, *batch; /* one micro-batch: ids, then targets */

    struct loader *loader;
    struct model *model;
    struct dp *dp;
    struct optimizer *optimizer;
    struct saver *saver;
    struct report *report;
    struct commands commands;

    int64_t step; /* finished optimizer steps */
};

#endif
