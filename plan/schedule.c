#include "plan/schedule.h"

#include <stdlib.h>

#include "base/error.h"
#include "plan/schedule_list.h"

/* ---- adding to the list --------------------------------------------------------------------- */

static Action *add(struct schedule_list *l, ActionKind kind)
{
    Stage *stage = l->stage;
    if (stage->n_actions == l->room) {
        l->room = l->room ? 2 * l->room : 64;
        stage->actions = realloc(stage->actions, l->room * sizeof *stage->actions);
        ASSERT(stage->actions);
    }
    Action *a = malloc(sizeof *a);
    ASSERT(a);
    action__init(a);
    a->has_kind = 1;
    a->kind = kind;
    stage->actions[stage->n_actions++] = a;
    return a;
}

void schedule_add(struct schedule_list *l, ActionKind kind)
{
    add(l, kind);
}

void schedule_add_units(struct schedule_list *l, ActionKind kind, int32_t micro_batch,
                        int32_t unit_begin, int32_t unit_end)
{
    Action *a = add(l, kind);
    a->has_micro_batch = micro_batch != 0;
    a->micro_batch = micro_batch;
    a->has_unit_begin = unit_begin != 0;
    a->unit_begin = unit_begin;
    a->has_unit_end = 1;
    a->unit_end = unit_end;
}

void schedule_add_bucket(struct schedule_list *l, ActionKind kind, int32_t bucket, int32_t slot)
{
    Action *a = add(l, kind);
    a->has_bucket = bucket != 0;
    a->bucket = bucket;
    a->has_slot = slot >= 0;
    a->slot = slot;
}

void schedule_add_reduce(struct schedule_list *l, int32_t bucket, bool final)
{
    Action *a = add(l, ACTION_REDUCE_BUCKET);
    a->has_bucket = bucket != 0;
    a->bucket = bucket;
    a->has_final = final;
    a->final = final;
}

void schedule_add_partial(struct schedule_list *l, int32_t unit)
{
    if (l->partial[unit]) {
        Action *a = add(l, ACTION_REDUCE_PARTIAL);
        a->has_unit_begin = unit != 0;
        a->unit_begin = unit;
    }
}

/* ---- the step ------------------------------------------------------------------------------- */

static void find_units(struct schedule_list *l)
{
    const struct param_table *t = l->rule->table;
    l->partial = calloc((size_t)l->rule->num_units, sizeof *l->partial);
    l->buckets = calloc((size_t)l->rule->num_units, sizeof *l->buckets);
    ASSERT(l->partial && l->buckets);
    for (int32_t i = 0; i < t->num_params; i++) {
        const struct param *p = &t->params[i];
        l->partial[p->unit] = l->partial[p->unit] || p->sum != PARAM_SUM_NONE;
        l->buckets[p->unit] = p->bucket;
        l->tied = l->tied || p->tied;
    }
}

/* Micro-batches 1 .. last - 1 are one and the same. */
static void add_micros(struct schedule_list *l, schedule_micro_fn add_micro)
{
    int32_t last = (int32_t)l->rule->micro_batches - 1;
    add_micro(l, 0, true, last == 0);
    if (last > 1) {
        size_t begin = l->stage->n_actions;
        add_micro(l, 1, false, false);
        if (last > 2) {
            Action *a = add(l, ACTION_REPEAT);
            a->has_length = a->has_times = 1;
            a->length = (int32_t)(l->stage->n_actions - 1 - begin);
            a->times = last - 2;
        }
    }
    if (last > 0) {
        add_micro(l, last, false, true);
    }
}

/* ZeRO-1 and 2: the weights that each rank has made go to all others; what the next step uses
 * first goes first. */
static void add_gathers(struct schedule_list *l)
{
    for (int32_t b = (int32_t)l->stage->n_buckets - 1; b >= 0; b--) {
        schedule_add_bucket(l, ACTION_GATHER, b, -1);
    }
}

void schedule_build(Stage *stage, const struct schedule_rule *rule)
{
    struct schedule_list l = {.stage = stage, .rule = rule};
    ASSERT(rule->micro_batches >= 1 && rule->micro_batches <= SCHEDULE_MAX_MICRO_BATCHES);
    ASSERT(rule->num_units >= 3 && stage->n_actions == 0);
    find_units(&l);
    if (rule->counts_targets) {
        schedule_add(&l, ACTION_COUNT_TARGETS);
    }
    if (rule->zero_stage >= 2) {
        schedule_sharded_slots(&l);
    }
    add_micros(&l, rule->zero_stage >= 2 ? schedule_sharded_micro : schedule_data_micro);
    if (rule->sums_words) {
        schedule_add(&l, ACTION_WAIT_REDUCES);
    }
    schedule_add(&l, ACTION_NORM);
    schedule_add(&l, ACTION_OPTIMIZER);
    if (rule->zero_stage == 1 || rule->zero_stage == 2) {
        add_gathers(&l);
    }
    free(l.partial);
    free(l.buckets);
}
