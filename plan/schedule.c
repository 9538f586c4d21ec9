#include "plan/schedule.h"

#include <stdlib.h>

#include "base/error.h"

/* A field that has its default is left out: a plan may hold tens of thousands of actions. */
static Action *add(Stage *stage, ActionKind kind)
{
    Action *a = malloc(sizeof *a);
    ASSERT(a);
    action__init(a);
    a->has_kind = 1;
    a->kind = kind;
    stage->actions[stage->n_actions++] = a;
    return a;
}

static void add_units(Stage *stage, ActionKind kind, int32_t micro_batch, int32_t unit_begin,
                      int32_t unit_end)
{
    Action *a = add(stage, kind);
    a->has_micro_batch = micro_batch != 0;
    a->micro_batch = micro_batch;
    a->has_unit_begin = unit_begin != 0;
    a->unit_begin = unit_begin;
    a->has_unit_end = 1;
    a->unit_end = unit_end;
}

static void add_reduce(Stage *stage, int32_t bucket)
{
    Action *a = add(stage, ACTION_REDUCE_BUCKET);
    a->has_bucket = bucket != 0;
    a->bucket = bucket;
}

/* The last micro-batch: gradients are final as units pass. */
static void add_reducing_backward(Stage *stage, int32_t micro_batch, int32_t num_units)
{
    int32_t done = num_units; /* units from here up have passed */
    for (size_t b = 0; b < stage->n_buckets; b++) {
        int32_t after = stage->buckets[b]->after_unit;
        ASSERT(after >= 0 && after <= done);
        if (after < done) {
            add_units(stage, ACTION_BACKWARD, micro_batch, after, done);
            done = after;
        }
        add_reduce(stage, (int32_t)b);
    }
    ASSERT(done == 0);
}

void schedule_data_parallel(Stage *stage, int64_t micro_batches, int32_t num_units, bool reduce)
{
    ASSERT(micro_batches >= 1 && micro_batches <= SCHEDULE_MAX_MICRO_BATCHES);
    size_t max = (size_t)micro_batches * 2 + stage->n_buckets * 2 + 8;
    stage->actions = calloc(max, sizeof(Action *));
    ASSERT(stage->actions);
    int32_t last = (int32_t)micro_batches - 1;
    for (int32_t i = 0; i <= last; i++) {
        add_units(stage, ACTION_FORWARD, i, 0, num_units);
        if (i < last || !reduce) {
            add_units(stage, ACTION_BACKWARD, i, 0, num_units);
        }
    }
    if (reduce) {
        add(stage, ACTION_REDUCE_LOSS);
        add_reducing_backward(stage, last, num_units);
        add(stage, ACTION_WAIT_REDUCES);
    }
    add(stage, ACTION_NORM);
    add(stage, ACTION_OPTIMIZER);
    ASSERT(stage->n_actions <= max);
}
