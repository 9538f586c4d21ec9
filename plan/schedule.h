/* Schedules are data: the list of all that a stage's ranks do in one step, communication included,
 * in the order in which they start it. A rank walks the list and knows no schedule by name. The
 * micro-batches between the first, which begins the step, and the last, which ends it, are alike:
 * they stand in the list once, with a repeat behind them. plan/proof.h proves a list. */
#ifndef TANDEM_PLAN_SCHEDULE_H
#define TANDEM_PLAN_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

#include "plan/params.h"
#include "proto/names.h"

/* Micro-batches of one rank and step. */
#define SCHEDULE_MAX_MICRO_BATCHES 16384

/* What the list of a stage that holds the whole model is made from. */
struct schedule_rule {
    const struct param_table *table; /* with the stage's buckets */
    int64_t micro_batches;
    int32_t num_units;
    int64_t zero_stage; /* 0 where nothing is shared */
    bool sums_data;     /* more than one data rank */
    bool sums_words;    /* more than one rank */
    bool counts_targets;
};

/* Fills stage->actions, weight_slots and grad_slots (owned by the stage). Forward and backward of
 * each micro-batch in turn; sums, gathers and releases as early as they can start, so that they
 * overlap with the rest (schedule_data.c, schedule_sharded.c). */
void schedule_build(Stage *stage, const struct schedule_rule *rule);

/* A walk over a stage's list that follows its repeats: {.stage = s} is at the start. */
struct schedule_walk {
    const Stage *stage;
    size_t next;
    int32_t round; /* of the repeat that it is in */
};

/* *out = the next action, with its own micro_batch; never a repeat. False: the list is done. Of a
 * list that plan_prove has passed. */
bool schedule_next(struct schedule_walk *w, Action *out);

/* Elements of buckets, padding included, that go through each kind of collective in a step. */
struct schedule_volume {
    double reduced;  /* over the ranks that share a shard; without sharding over all data ranks */
    double final;    /* of these the last ones, which go over the shards' replicas, too */
    double gathered; /* weights */
};
struct schedule_volume schedule_volume(const Stage *stage);

#endif
