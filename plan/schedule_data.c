/* Whole gradients (data parallel, ZeRO-1): they add up over the micro-batches, and each bucket's
 * sum over the ranks starts right after the last backward pass of the unit that completes it. */
#include "base/error.h"
#include "plan/schedule_list.h"

/* Backward of units begin <= u < end, then what is left to be summed over their tensor ranks. */
static void add_backward(struct schedule_list *l, int32_t micro_batch, int32_t begin, int32_t end)
{
    schedule_add_units(l, ACTION_BACKWARD, micro_batch, begin, end);
    for (int32_t u = end - 1; u >= begin; u--) {
        schedule_add_partial(l, u);
    }
}

static void add_last_backward(struct schedule_list *l, int32_t micro_batch)
{
    const Stage *stage = l->stage;
    int32_t done = l->rule->num_units; /* units from here up have passed */
    for (size_t b = 0; l->rule->sums_data && b < stage->n_buckets; b++) {
        int32_t after = stage->buckets[b]->after_unit;
        ASSERT(after >= 0 && after <= done);
        if (after < done) {
            add_backward(l, micro_batch, after, done);
            done = after;
        }
        schedule_add_reduce(l, (int32_t)b, true);
    }
    if (done > 0) {
        add_backward(l, micro_batch, 0, done);
    }
}

void schedule_data_micro(struct schedule_list *l, int32_t micro_batch, bool first, bool last)
{
    int32_t units = l->rule->num_units;
    /* Unit by unit: each waits for its own weights of the step before, no more. */
    int32_t each = first && l->rule->zero_stage == 1 ? 1 : units;
    for (int32_t u = 0; u < units; u += each) {
        schedule_add_units(l, ACTION_FORWARD, micro_batch, u, u + each);
    }
    if (!last) {
        schedule_add_units(l, ACTION_BACKWARD, micro_batch, 0, units);
        return;
    }
    if (l->rule->sums_words) {
        schedule_add(l, ACTION_REDUCE_LOSS);
    }
    add_last_backward(l, micro_batch);
}
