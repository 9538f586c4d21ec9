/* Gradients: their slots (ZeRO-2 and 3), sums over tensor ranks, sums over data ranks.
 *
 * Sums over tensor ranks are made on compute, before the bucket goes to the reduce stream. There a
 * bucket is summed over the ranks that share the shard (each gets its slice), and with `final` the
 * slice over those that hold the same one. From ZeRO-2 on the first slice of a step is written to
 * the shard, the following micro-batches' are added. */
#include "runtime/parallel/store_private.h"

static int check_bucket(const struct store *s, int32_t bucket, struct error *err)
{
    if (bucket >= 0 && bucket < s->num_buckets)
        return 0;
    return error_set(err, ERR_INVALID_ARGUMENT, "the plan has no bucket %d", bucket);
}

/* ---- beginnings ------------------------------------------------------------------------------ */

int store_zero_sums(struct store *s, char *mem, int64_t begin, int64_t end, struct error *err)
{
    struct device *dev = s->o.dev;
    struct params_sums walk = {.table = s->o.table, .at = begin, .end = end};
    for (int64_t at, numel; params_next_sums(&walk, &at, &numel);) {
        size_t bytes = (size_t)numel * dtype_size(s->wide);
        if (dev->ops->zero(dev, s->o.compute, store_wide_at(s, mem, at - begin), bytes, err) != 0)
            return -1;
    }
    return 0;
}

/* What lies whole all the time adds up over a step, a slot over one micro-batch. */
bool store_grads_are_new(const struct store *s, int32_t micro_batch)
{
    return s->zero_stage >= 2 || micro_batch == 0;
}

/* ---- slots ----------------------------------------------------------------------------------- */

static int check_slot(const struct store *s, int32_t bucket, int32_t slot, struct error *err)
{
    const struct store_bucket *b = &s->buckets[bucket];
    if (slot < 0 || slot >= s->num_grad_slots || s->grad_slots[slot].numel < b->numel)
        return error_set(err, ERR_INVALID_ARGUMENT,
                         "gradients of bucket %d have no room in slot %d", bucket, slot);
    if (s->grad_slots[slot].bucket != -1 || b->grad_slot != -1)
        return error_set(
            err, ERR_INVALID_ARGUMENT,
            "gradients of bucket %d are in slot %d already, or slot %d holds bucket %d", bucket,
            b->grad_slot, slot, s->grad_slots[slot].bucket);
    return 0;
}

int store_open_grads(struct store *s, int32_t bucket, int32_t slot_idx, struct error *err)
{
    if (check_bucket(s, bucket, err) != 0 || check_slot(s, bucket, slot_idx, err) != 0)
        return -1;
    struct store_slot *slot = &s->grad_slots[slot_idx];
    struct store_bucket *b = &s->buckets[bucket];
    const struct device_ops *ops = s->o.dev->ops;
    if ((slot->has_free && ops->stream_wait(s->o.dev, s->o.compute, slot->free, err) != 0) ||
        store_zero_sums(s, slot->mem, b->offset, b->offset + b->numel, err) != 0)
        return -1;
    slot->bucket = bucket;
    b->grad_slot = slot_idx;
    store_tell_grads(s, bucket, slot->mem);
    return 0;
}

/* Where the gradients of a bucket lie whole; NULL = nowhere just now. */
static char *whole_grads(const struct store *s, const struct store_bucket *b)
{
    if (s->zero_stage < 2)
        return store_wide_at(s, s->grads, b->offset);
    return b->grad_slot < 0 ? NULL : s->grad_slots[b->grad_slot].mem;
}

/* ---- sums over tensor ranks ------------------------------------------------------------------ */

/* A unit's parameters of one sum lie side by side, also where they are in several buckets (whose
 * padding is zero everywhere). */
static int reduce_run(struct store *s, struct comm *comm, int32_t unit, enum param_sum sum,
                      struct error *err)
{
    int64_t begin, end;
    if (!params_unit_run(s->o.table, unit, sum, &begin, &end))
        return 0;
    const struct store_bucket *b = &s->buckets[s->units[unit].first_bucket];
    while (begin >= b->offset + b->numel)
        b++;
    char *grads = whole_grads(s, b);
    if (comm == NULL || grads == NULL)
        return error_set(err, ERR_INVALID_ARGUMENT, "the plan sums gradients of unit %d that %s",
                         unit, comm == NULL ? "one rank has alone" : "are nowhere");
    comm_say(comm, "gradients of unit %d", unit);
    return comm->ops->all_reduce(comm, s->o.compute, store_wide_at(s, grads, begin - b->offset),
                                 end - begin, s->wide, COMM_SUM, err);
}

int store_reduce_partial(struct store *s, int32_t unit, struct error *err)
{
    if (unit < 0 || unit >= s->num_units)
        return error_set(err, ERR_INVALID_ARGUMENT, "the plan has no unit %d", unit);
    const struct axes *axes = s->o.axes;
    if (reduce_run(s, axes->kv_replicas, unit, PARAM_SUM_REPLICAS, err) != 0 ||
        reduce_run(s, axes->tensor, unit, PARAM_SUM_TENSOR, err) != 0)
        return error_wrap(err, "tensor ranks' gradients of unit %d", unit);
    return 0;
}

/* ---- sums over data ranks -------------------------------------------------------------------- */

/* Over the ranks that share the shard. *slice: where this rank's then lies. */
static int reduce_scatter(struct store *s, struct store_bucket *b, char **slice, struct error *err)
{
    struct comm *comm = s->o.axes->shard;
    char *whole = whole_grads(s, b);
    char *part = store_wide_at(s, whole, b->slice.begin - b->offset);
    *slice = part;
    if (comm == NULL)
        return 0;
    if (s->zero_stage >= 2) {
        *slice = store_wide_at(s, s->grads, b->slice.at);
        if (b->is_fresh)
            part = *slice;
    }
    comm_say(comm, "bucket %d", (int)(b - s->buckets));
    if (comm->ops->reduce_scatter(comm, s->reduce, part, whole, b->slice.numel, s->wide, err) != 0)
        return -1;
    if (part == *slice)
        return 0;
    return s->o.kernels->add(s->o.dev, s->reduce, s->wide, *slice, *slice, part, b->slice.numel,
                             err);
}

/* The slot is free for its next bucket when the reduce stream is done with it. */
static int leave_slot(struct store *s, struct store_bucket *b, int32_t bucket, struct error *err)
{
    if (b->grad_slot < 0)
        return 0;
    struct store_slot *slot = &s->grad_slots[b->grad_slot];
    if (s->o.dev->ops->event_record(s->o.dev, slot->free, s->reduce, err) != 0)
        return -1;
    slot->has_free = true;
    slot->bucket = -1;
    b->grad_slot = -1;
    store_tell_grads(s, bucket, NULL);
    return 0;
}

static int reduce_bucket(struct store *s, struct store_bucket *b, int32_t bucket, bool final,
                         struct error *err)
{
    struct comm *replicas = s->o.axes->replicas;
    char *slice;
    if (whole_grads(s, b) == NULL)
        return error_set(err, ERR_INVALID_ARGUMENT, "its gradients are nowhere");
    if (s->zero_stage < 2 && !final)
        return error_set(err, ERR_INVALID_ARGUMENT, "whole gradients are reduced once in a step");
    if (store_follow(s, s->computed, s->o.compute, s->reduce, err) != 0 ||
        reduce_scatter(s, b, &slice, err) != 0 || leave_slot(s, b, bucket, err) != 0)
        return -1;
    b->is_fresh = false;
    if (!final || replicas == NULL)
        return 0;
    comm_say(replicas, "bucket %d", bucket);
    return replicas->ops->all_reduce(replicas, s->reduce, slice, b->slice.numel, s->wide, COMM_SUM,
                                     err);
}

int store_reduce_bucket(struct store *s, int32_t bucket, bool final, struct error *err)
{
    if (check_bucket(s, bucket, err) != 0)
        return error_wrap(err, "reduce");
    const struct axes *axes = s->o.axes;
    if (axes->shard == NULL && axes->replicas == NULL)
        return 0;
    if (reduce_bucket(s, &s->buckets[bucket], bucket, final, err) != 0)
        return error_wrap(err, "reduce of bucket %d", bucket);
    return 0;
}

int store_reduce_words(struct store *s, double *words, int64_t n, const char *what,
                       struct error *err)
{
    struct comm *world = s->o.axes->world;
    if (world == NULL)
        return 0;
    comm_say(world, "%s", what);
    if (store_follow(s, s->computed, s->o.compute, s->reduce, err) != 0 ||
        world->ops->all_reduce(world, s->reduce, words, n, DTYPE_F64, COMM_SUM, err) != 0)
        return error_wrap(err, "reduce of the %s", what);
    return 0;
}
