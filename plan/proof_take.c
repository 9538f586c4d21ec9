/* What each action does, and what has to hold before it may. */
#include "plan/plan.h"
#include "plan/proof_parts.h"

static bool is_last(const struct proof *p)
{
    return p->micro_batch == (int32_t)p->plan->micro_batches - 1;
}

/* From ZeRO-2 on a micro-batch's gradients are summed at its end, else those of the step. */
static bool sums_each(const struct proof *p)
{
    return p->zero_stage >= 2;
}

/* Is the gradient of the unit final, but for sums? */
static bool is_complete(const struct proof *p, int32_t unit)
{
    return p->backward && p->pos <= unit && p->micro_batch >= 0 && (sums_each(p) || is_last(p));
}

static bool has_bucket(const struct proof *p, int32_t bucket)
{
    return bucket >= 0 && bucket < p->num_buckets;
}

/* ---- units ---------------------------------------------------------------------------------- */

/* Are the weights that the unit uses here? Of two uses of a tied embedding one is the head's; the
 * backward pass of an embedding needs ids alone. */
static int check_weights(struct proof *p, int32_t unit, bool backward)
{
    if (p->zero_stage < 3 || (backward && unit == 0)) {
        return 0;
    }
    bool uses_tied = p->tied && unit == p->num_units - 1;
    if (p->buckets[p->units[unit].first_bucket].weight_slot < 0 ||
        (uses_tied && p->buckets[p->units[0].first_bucket].weight_slot < 0)) {
        return proof_refuse(p, "the weights of unit %d are not here", unit);
    }
    return 0;
}

/* May gradients be added where the unit's lie? */
static int check_grads(struct proof *p, int32_t unit)
{
    const struct proof_unit *u = &p->units[unit];
    for (int32_t b = u->first_bucket; b <= u->last_bucket; b++) {
        if (p->buckets[b].reduced || (sums_each(p) && p->buckets[b].grad_slot < 0)) {
            return proof_refuse(p, "the gradients of unit %d are not open", unit);
        }
    }
    return u->summed ? proof_refuse(p, "the gradients of unit %d are summed already", unit) : 0;
}

/* The next micro-batch: what is summed in each begins anew. */
static int begin_micro(struct proof *p)
{
    if (proof_end_micro(p) != 0) {
        return -1;
    }
    for (int32_t u = 0; sums_each(p) && u < p->num_units; u++) {
        p->units[u].summed = false;
    }
    for (int32_t b = 0; sums_each(p) && b < p->num_buckets; b++) {
        p->buckets[b].reduced = false;
    }
    p->micro_batch++;
    p->backward = false;
    return 0;
}

static int take_forward(struct proof *p, const Action *a)
{
    if (p->backward && p->pos == 0 && a->micro_batch == p->micro_batch + 1 &&
        p->micro_batch + 1 < (int32_t)p->plan->micro_batches && begin_micro(p) != 0) {
        return -1;
    }
    if (p->backward || a->micro_batch != p->micro_batch || a->unit_begin != p->pos ||
        a->unit_end <= p->pos || a->unit_end > p->num_units) {
        return proof_refuse(p, "the forward pass is at unit %d of micro-batch %d",
                            p->backward ? 0 : p->pos, p->micro_batch + p->backward);
    }
    for (int32_t u = a->unit_begin; u < a->unit_end; u++) {
        if (check_weights(p, u, false) != 0) {
            return -1;
        }
    }
    p->pos = a->unit_end;
    return 0;
}

static int take_backward(struct proof *p, const Action *a)
{
    if (!p->backward && p->pos == p->num_units) {
        p->backward = true;
    }
    if (!p->backward || a->micro_batch != p->micro_batch || a->unit_end != p->pos ||
        a->unit_begin < 0 || a->unit_begin >= p->pos) {
        return proof_refuse(p, "the %s pass is at unit %d of micro-batch %d",
                            p->backward ? "backward" : "forward", p->pos, p->micro_batch);
    }
    for (int32_t u = a->unit_end - 1; u >= a->unit_begin; u--) {
        bool uses_tied = p->tied && u == p->num_units - 1;
        if (check_weights(p, u, true) != 0 || check_grads(p, u) != 0 ||
            (uses_tied && check_grads(p, 0) != 0)) {
            return -1;
        }
    }
    p->pos = a->unit_begin;
    return 0;
}

/* ---- slots ---------------------------------------------------------------------------------- */

static int take_slot(struct proof *p, const Action *a, int32_t *slots, const int64_t *sizes,
                     size_t num, int32_t *slot_of_bucket)
{
    if (!has_bucket(p, a->bucket) || *slot_of_bucket >= 0) {
        return proof_refuse(p, "bucket %d lies in a slot already, or isn't one", a->bucket);
    }
    if (a->slot < 0 || (size_t)a->slot >= num || slots[a->slot] >= 0) {
        return proof_refuse(p, "slot %d is taken, or isn't one", a->slot);
    }
    if (p->stage->buckets[a->bucket]->numel > sizes[a->slot]) {
        return proof_refuse(p, "bucket %d is larger than slot %d", a->bucket, a->slot);
    }
    slots[a->slot] = a->bucket;
    *slot_of_bucket = a->slot;
    return 0;
}

static int take_gather(struct proof *p, const Action *a)
{
    if (p->zero_stage == 0 || !has_bucket(p, a->bucket)) {
        return proof_refuse(p, "there is nothing to gather");
    }
    struct proof_bucket *b = &p->buckets[a->bucket];
    if (p->zero_stage == 3) {
        return p->optimizer ? proof_refuse(p, "the step is over")
                            : take_slot(p, a, p->weight_slots, p->stage->weight_slots,
                                        p->stage->n_weight_slots, &b->weight_slot);
    }
    if (!p->optimizer || b->gathered || a->slot != -1) {
        return proof_refuse(p, "the new weights of a bucket are gathered once, in place, after the "
                               "optimizer");
    }
    b->gathered = true;
    return 0;
}

static int take_release(struct proof *p, const Action *a)
{
    if (!has_bucket(p, a->bucket) || p->buckets[a->bucket].weight_slot < 0) {
        return proof_refuse(p, "bucket %d lies in no slot", a->bucket);
    }
    p->weight_slots[p->buckets[a->bucket].weight_slot] = -1;
    p->buckets[a->bucket].weight_slot = -1;
    return 0;
}

static int take_open(struct proof *p, const Action *a)
{
    if (!sums_each(p) || !has_bucket(p, a->bucket) || p->buckets[a->bucket].reduced) {
        return proof_refuse(p, "bucket %d can't be opened, or is summed already", a->bucket);
    }
    return take_slot(p, a, p->grad_slots, p->stage->grad_slots, p->stage->n_grad_slots,
                     &p->buckets[a->bucket].grad_slot);
}

/* ---- sums ----------------------------------------------------------------------------------- */

static int take_partial(struct proof *p, const Action *a)
{
    int32_t unit = a->unit_begin;
    if (unit < 0 || unit >= p->num_units || !p->units[unit].partial) {
        return proof_refuse(p, "unit %d has no partial gradients", unit);
    }
    struct proof_unit *u = &p->units[unit];
    if (!is_complete(p, unit) || u->summed || p->waited) {
        return proof_refuse(p, "the gradients of unit %d are not complete, or summed already",
                            unit);
    }
    for (int32_t b = u->first_bucket; b <= u->last_bucket; b++) {
        if (p->buckets[b].reduced) {
            return proof_refuse(p, "bucket %d is reduced already", b);
        }
    }
    u->summed = true;
    return 0;
}

static int take_reduce(struct proof *p, const Action *a)
{
    if (!p->sums_data || !has_bucket(p, a->bucket) || p->buckets[a->bucket].reduced || p->waited) {
        return proof_refuse(p, "bucket %d has nothing to be summed", a->bucket);
    }
    struct proof_bucket *b = &p->buckets[a->bucket];
    for (int32_t u = b->first_unit; u <= b->last_unit; u++) {
        if (!is_complete(p, u) || (p->units[u].partial && !p->units[u].summed)) {
            return proof_refuse(p, "the gradients of unit %d are not complete", u);
        }
    }
    if (a->final != is_last(p)) {
        return proof_refuse(p, "it is final in the last micro-batch and in no other");
    }
    b->reduced = true;
    if (sums_each(p)) {
        if (b->grad_slot < 0) {
            return proof_refuse(p, "bucket %d is not open", a->bucket);
        }
        p->grad_slots[b->grad_slot] = -1;
        b->grad_slot = -1;
    }
    return 0;
}

static int take_once(struct proof *p, bool may, bool *done, const char *rule)
{
    if (!may || *done) {
        return proof_refuse(p, "%s", rule);
    }
    *done = true;
    return 0;
}

static bool all_passed(const struct proof *p)
{
    return is_last(p) && p->backward && p->pos == 0;
}

static int take_wait(struct proof *p)
{
    if (!p->sums_words || !p->loss || !all_passed(p) || p->waited) {
        return proof_refuse(p, "it comes once, after all sums");
    }
    p->waited = true;
    return 0;
}

static int take_norm(struct proof *p)
{
    if (!all_passed(p) || (p->sums_words && !p->waited) || p->norm) {
        return proof_refuse(p, "it comes once, after all sums");
    }
    p->norm = true;
    return proof_end_micro(p);
}

int proof_take(struct proof *p)
{
    const Action *a = p->stage->actions[p->action];
    bool last_forward = is_last(p) && (p->backward || p->pos == p->num_units);
    if (a->chunk != 0) {
        return proof_refuse(p, "there is one chunk");
    }
    switch (a->kind) {
    case ACTION_FORWARD:
        return take_forward(p, a);
    case ACTION_BACKWARD:
        return take_backward(p, a);
    case ACTION_REDUCE_BUCKET:
        return take_reduce(p, a);
    case ACTION_REDUCE_LOSS:
        return take_once(p, p->sums_words && last_forward && !p->waited, &p->loss,
                         "the loss is summed once, after the last forward pass");
    case ACTION_WAIT_REDUCES:
        return take_wait(p);
    case ACTION_NORM:
        return take_norm(p);
    case ACTION_OPTIMIZER:
        return take_once(p, p->norm, &p->optimizer, "it comes once, after the norm");
    case ACTION_COUNT_TARGETS:
        return take_once(p, p->action == 0 && plan_can_ignore_targets(p->plan), &p->counted,
                         "targets are counted first, where some can be ignored");
    case ACTION_GATHER:
        return take_gather(p, a);
    case ACTION_RELEASE:
        return take_release(p, a);
    case ACTION_OPEN_GRADS:
        return take_open(p, a);
    case ACTION_REDUCE_PARTIAL:
        return take_partial(p, a);
    default:
        return proof_refuse(p, "no such action");
    }
}
