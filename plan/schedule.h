/* Schedules are data: the list of all that a stage's ranks do in one step, communication included,
 * in the order in which they start it. A rank walks the list and knows no schedule by name. */
#ifndef TANDEM_PLAN_SCHEDULE_H
#define TANDEM_PLAN_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/names.h"

/* Micro-batches of one rank and step: the list has two actions for each. */
#define SCHEDULE_MAX_MICRO_BATCHES 16384

/* One stage that holds the whole model: forward and backward of each micro-batch in turn. With
 * reduce, each bucket's sum starts right after the last micro-batch's backward pass of the unit
 * that completes it, so that it overlaps with the rest; the loss is summed while that pass runs.
 * stage->buckets are there already; fills stage->actions (owned by the stage). */
void schedule_data_parallel(Stage *stage, int64_t micro_batches, int32_t num_units, bool reduce);

/* A walk over a stage's list that follows its repeats: {.stage = s} is at the start. */
struct schedule_walk {
    const Stage *stage;
    size_t next;
    int32_t round; /* of the repeat that it is in */
};

/* *out = the next action, with its own micro_batch; never a repeat. False: the list is done. Of a
 * list that plan_prove has passed. */
bool schedule_next(struct schedule_walk *w, Action *out);

#endif
