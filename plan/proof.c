#include "plan/proof.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/plan.h"
#include "plan/proof_parts.h"

int proof_refuse(struct proof *p, const char *fmt, ...)
{
    char why[160];
    const char *name = "end";
    va_list args;
    va_start(args, fmt);
    vsnprintf(why, sizeof why, fmt, args);
    va_end(args);
    if (p->action < p->stage->n_actions) {
        const ProtobufCEnumValue *v = protobuf_c_enum_descriptor_get_value(
            &action_kind__descriptor, (int)p->stage->actions[p->action]->kind);
        name = v ? v->name : "unknown";
    }
    return error_set(p->err, ERR_INVALID_ARGUMENT, "plan: action %zu (%s): %s", p->action, name,
                     why);
}

/* ---- ends ----------------------------------------------------------------------------------- */

/* A unit or bucket whose sums of this micro-batch, or step, are not all there; -1: none. */
static int32_t find_unsummed_unit(const struct proof *p)
{
    for (int32_t u = 0; u < p->num_units; u++) {
        if (p->units[u].partial && !p->units[u].summed) {
            return u;
        }
    }
    return -1;
}

static int32_t find_unsummed_bucket(const struct proof *p)
{
    for (int32_t b = 0; p->sums_data && b < p->num_buckets; b++) {
        if (!p->buckets[b].reduced) {
            return b;
        }
    }
    return -1;
}

static bool sums_here(const struct proof *p)
{
    bool last = p->micro_batch == (int32_t)p->plan->micro_batches - 1;
    return p->micro_batch >= 0 && (p->zero_stage >= 2 || last);
}

int proof_end_micro(struct proof *p)
{
    int32_t unit = sums_here(p) ? find_unsummed_unit(p) : -1;
    int32_t bucket = sums_here(p) ? find_unsummed_bucket(p) : -1;
    if (unit >= 0) {
        return proof_refuse(p, "the partial gradients of unit %d are not summed", unit);
    }
    return bucket >= 0 ? proof_refuse(p, "bucket %d is not summed", bucket) : 0;
}

static int proof_end_step(struct proof *p)
{
    if (!p->optimizer) {
        return proof_refuse(p, "the step has no end");
    }
    if (plan_can_ignore_targets(p->plan) && !p->counted) {
        return proof_refuse(p, "targets are not counted");
    }
    for (int32_t b = 0; b < p->num_buckets; b++) {
        bool gathers = p->zero_stage == 1 || p->zero_stage == 2;
        if (p->buckets[b].weight_slot >= 0 || p->buckets[b].grad_slot >= 0 ||
            (gathers && !p->buckets[b].gathered)) {
            return proof_refuse(p, "bucket %d lies in a slot, or its weights are not gathered", b);
        }
    }
    return 0;
}

/* ---- repeats -------------------------------------------------------------------------------- */

/* What a repeat has to leave as it found it, but for the count of micro-batches. */
struct still {
    int32_t micro_batch;
    bool loss;
    int32_t *weight_slots;
};

/* Between two micro-batches, with nothing left to be summed: then no gradients are open, either. */
static bool between_micros(const struct proof *p)
{
    return p->backward && p->pos == 0 && p->micro_batch >= 0 &&
           (!sums_here(p) || (find_unsummed_unit(p) < 0 && find_unsummed_bucket(p) < 0));
}

static bool is_still(const struct proof *p, const struct still *s)
{
    return s->micro_batch >= 0 && between_micros(p) && p->micro_batch == s->micro_batch + 1 &&
           p->loss == s->loss &&
           memcmp(p->weight_slots, s->weight_slots,
                  p->stage->n_weight_slots * sizeof *s->weight_slots) == 0;
}

/* The next repeat at or behind an action. */
static size_t find_repeat(const Stage *stage, size_t from)
{
    while (from < stage->n_actions && stage->actions[from]->kind != ACTION_REPEAT) {
        from++;
    }
    return from;
}

/* In the last round it is still not the last micro-batch: then all rounds are alike. */
static int take_repeat(struct proof *p, const struct still *s, size_t last_repeat)
{
    const Action *a = p->stage->actions[p->action];
    if (a->length < 1 || (size_t)a->length > p->action ||
        last_repeat > p->action - (size_t)a->length) {
        return proof_refuse(p, "what it repeats isn't there, or has a repeat in it");
    }
    if (a->times < 1 || a->times >= (int32_t)p->plan->micro_batches - 1 - p->micro_batch) {
        return proof_refuse(p, "it repeats the last micro-batch, or none");
    }
    if (!is_still(p, s)) {
        return proof_refuse(p, "a round doesn't end as it began");
    }
    p->micro_batch += a->times;
    return 0;
}

static void look_at(const struct proof *p, struct still *s)
{
    s->micro_batch = between_micros(p) ? p->micro_batch : -2;
    s->loss = p->loss;
    memcpy(s->weight_slots, p->weight_slots, p->stage->n_weight_slots * sizeof *s->weight_slots);
}

static int walk(struct proof *p, struct still *s)
{
    const Stage *stage = p->stage;
    size_t repeat = find_repeat(stage, 0), last = 0;
    for (p->action = 0; p->action < stage->n_actions; p->action++) {
        if (repeat < stage->n_actions &&
            p->action + (size_t)stage->actions[repeat]->length == repeat) {
            look_at(p, s);
        }
        if (p->action != repeat) {
            if (proof_take(p) != 0) {
                return -1;
            }
            continue;
        }
        if (take_repeat(p, s, last) != 0) {
            return -1;
        }
        last = repeat + 1;
        repeat = find_repeat(stage, repeat + 1);
    }
    return proof_end_step(p);
}

int plan_prove(const Plan *plan, struct error *err)
{
    struct proof p;
    if (proof_open(&p, plan, err) != 0) {
        return -1;
    }
    struct still s = {.micro_batch = -2};
    s.weight_slots = calloc(p.stage->n_weight_slots + 1, sizeof *s.weight_slots);
    ASSERT(s.weight_slots);
    int rc = walk(&p, &s);
    free(s.weight_slots);
    proof_close(&p);
    return rc;
}
