/* Sharded gradients (ZeRO-2) and weights, too (ZeRO-3). A bucket is a unit. Gradients lie whole for
 * a unit at a time, and their sum over the ranks starts right after its backward pass, in each
 * micro-batch. Weights lie whole for two units, the one at work and the one that comes next.
 *
 * Unit u has slot u % 2: neighbours never share one. A tied embedding has slot 2 to itself, as its
 * weights are used at both ends of the pass and its gradients are complete at the very end; its
 * weights stay from the first use of the step to the last. The two units at which the pass turns
 * (the last ones between forward and backward, the first ones between micro-batches) stay, too. */
#include <stdlib.h>

#include "base/error.h"
#include "plan/schedule_list.h"

#define TIED_SLOT 2

static int32_t slot_of(const struct schedule_list *l, int32_t unit)
{
    return unit == 0 && l->tied ? TIED_SLOT : unit % 2;
}

static int64_t *slots_new(const struct schedule_list *l, size_t *num)
{
    *num = l->tied ? TIED_SLOT + 1 : 2;
    int64_t *slots = calloc(*num, sizeof *slots);
    ASSERT(slots);
    for (int32_t u = 0; u < l->rule->num_units; u++) {
        int64_t numel = l->stage->buckets[l->buckets[u]]->numel;
        int64_t *slot = &slots[slot_of(l, u)];
        *slot = numel > *slot ? numel : *slot;
    }
    return slots;
}

void schedule_sharded_slots(struct schedule_list *l)
{
    l->stage->grad_slots = slots_new(l, &l->stage->n_grad_slots);
    if (l->rule->zero_stage >= 3) {
        l->stage->weight_slots = slots_new(l, &l->stage->n_weight_slots);
    }
}

static void gather(struct schedule_list *l, int32_t unit)
{
    schedule_add_bucket(l, ACTION_GATHER, l->buckets[unit], slot_of(l, unit));
}

static void release(struct schedule_list *l, int32_t unit)
{
    schedule_add_bucket(l, ACTION_RELEASE, l->buckets[unit], -1);
}

/* ---- forward -------------------------------------------------------------------------------- */

/* low: the first unit whose weights take turns in the two slots. */
static void add_forward(struct schedule_list *l, int32_t micro_batch, bool first)
{
    int32_t units = l->rule->num_units, low = l->tied ? 1 : 0;
    bool gathers = l->rule->zero_stage >= 3;
    for (int32_t u = 0; u < units; u++) {
        if (gathers && first && u == 0) {
            gather(l, 0);
        }
        if (gathers && u + 1 < units && (first || u + 1 > low + 1)) {
            gather(l, u + 1);
        }
        schedule_add_units(l, ACTION_FORWARD, micro_batch, u, u + 1);
        if (gathers && u >= low && u < units - 2) {
            release(l, u);
        }
    }
}

/* ---- backward ------------------------------------------------------------------------------- */

static void open_grads(struct schedule_list *l, int32_t unit)
{
    schedule_add_bucket(l, ACTION_OPEN_GRADS, l->buckets[unit], slot_of(l, unit));
}

/* The unit whose turn is next, while u runs backward; the last ones are there from the forward
 * pass. No weights are needed to run an embedding backward, but to begin the next micro-batch. */
static void prefetch(struct schedule_list *l, int32_t u, bool last)
{
    int32_t low = l->tied || last ? 1 : 0;
    if (u - 1 >= low && u - 1 < l->rule->num_units - 2) {
        gather(l, u - 1);
    }
}

static void release_used(struct schedule_list *l, int32_t u, bool last)
{
    int32_t head = l->rule->num_units - 1, low = l->tied ? 1 : 0;
    if (u >= 1 && (last || u > low + 1)) {
        release(l, u);
    }
    if (u == head && last && l->tied) {
        release(l, 0);
    }
}

static void add_backward(struct schedule_list *l, int32_t micro_batch, bool last)
{
    int32_t head = l->rule->num_units - 1;
    bool gathers = l->rule->zero_stage >= 3;
    for (int32_t u = head; u >= 0; u--) {
        if (gathers) {
            prefetch(l, u, last);
        }
        if (u > 0 || !l->tied) {
            open_grads(l, u);
        }
        if (u == head && l->tied) {
            open_grads(l, 0);
        }
        schedule_add_units(l, ACTION_BACKWARD, micro_batch, u, u + 1);
        if (gathers) {
            release_used(l, u, last);
        }
        schedule_add_partial(l, u);
        schedule_add_reduce(l, l->buckets[u], last);
    }
}

void schedule_sharded_micro(struct schedule_list *l, int32_t micro_batch, bool first, bool last)
{
    add_forward(l, micro_batch, first);
    if (last && l->rule->sums_words) {
        schedule_add(l, ACTION_REDUCE_LOSS);
    }
    add_backward(l, micro_batch, last);
}
