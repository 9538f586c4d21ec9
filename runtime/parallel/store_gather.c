/* Weights that are gathered for use: into slots (ZeRO-3), or in place behind the optimizer (ZeRO-1
 * and 2). The gather stream runs ahead of compute. It waits for compute where it would overwrite
 * what compute still reads, or read what compute is still to write; compute waits for it bucket by
 * bucket, when a unit needs one. */
#include "runtime/parallel/store_private.h"

static int check_bucket(const struct store *s, int32_t bucket, struct error *err)
{
    if (bucket >= 0 && bucket < s->num_buckets)
        return 0;
    return error_set(err, ERR_INVALID_ARGUMENT, "the plan has no bucket %d", bucket);
}

static int gather(struct store *s, struct store_bucket *b, void *whole, const void *slice,
                  struct error *err)
{
    struct device *dev = s->o.dev;
    struct comm *comm = s->o.axes->gather;
    if (s->has_updated && dev->ops->stream_wait(dev, s->gather, s->updated, err) != 0)
        return -1;
    b->is_gathering = true;
    comm_say(comm, "weights of bucket %d", (int)(b - s->buckets));
    if (comm->ops->all_gather(comm, s->gather, whole, slice, b->slice.numel, s->o.dtype, err) != 0)
        return -1;
    return dev->ops->event_record(dev, b->gathered, s->gather, err);
}

int store_gather_in_place(struct store *s, int32_t bucket, struct error *err)
{
    struct store_bucket *b = &s->buckets[bucket];
    return gather(s, b, store_weight_at(s, s->weights, b->offset),
                  store_weight_at(s, s->weights, b->slice.begin), err);
}

static int check_slot(const struct store *s, const struct store_bucket *b, int32_t bucket,
                      int32_t slot, struct error *err)
{
    if (slot < 0 || slot >= s->num_weight_slots || s->weight_slots[slot].numel < b->numel)
        return error_set(err, ERR_INVALID_ARGUMENT, "bucket %d has no room in slot %d", bucket,
                         slot);
    if (s->weight_slots[slot].bucket != -1 || b->weight_slot != -1)
        return error_set(err, ERR_INVALID_ARGUMENT,
                         "bucket %d is in slot %d already, or slot %d holds bucket %d", bucket,
                         b->weight_slot, slot, s->weight_slots[slot].bucket);
    return 0;
}

static int gather_into_slot(struct store *s, struct store_bucket *b, int32_t bucket, int32_t idx,
                            struct error *err)
{
    struct device *dev = s->o.dev;
    if (check_slot(s, b, bucket, idx, err) != 0)
        return -1;
    struct store_slot *slot = &s->weight_slots[idx];
    if (slot->has_free && dev->ops->stream_wait(dev, s->gather, slot->free, err) != 0)
        return -1;
    slot->bucket = bucket;
    b->weight_slot = idx;
    if (gather(s, b, slot->mem, store_weight_at(s, s->weights, b->slice.at), err) != 0)
        return -1;
    store_tell_weights(s, bucket, slot->mem);
    return 0;
}

int store_gather(struct store *s, int32_t bucket, int32_t slot, struct error *err)
{
    if (check_bucket(s, bucket, err) != 0)
        return error_wrap(err, "gather");
    struct store_bucket *b = &s->buckets[bucket];
    int rc;
    if (s->zero_stage == 0)
        rc = error_set(err, ERR_INVALID_ARGUMENT, "the weights are whole already");
    else if (s->zero_stage == 3)
        rc = gather_into_slot(s, b, bucket, slot, err);
    else
        rc = store_gather_in_place(s, bucket, err);
    return rc == 0 ? 0 : error_wrap(err, "gather of bucket %d", bucket);
}

int store_release(struct store *s, int32_t bucket, struct error *err)
{
    if (check_bucket(s, bucket, err) != 0)
        return error_wrap(err, "release");
    struct store_bucket *b = &s->buckets[bucket];
    if (b->weight_slot < 0)
        return error_set(err, ERR_INVALID_ARGUMENT, "release of bucket %d, which is in no slot",
                         bucket);
    struct store_slot *slot = &s->weight_slots[b->weight_slot];
    struct device *dev = s->o.dev;
    if (dev->ops->event_record(dev, slot->free, s->o.compute, err) != 0)
        return error_wrap(err, "release of bucket %d", bucket);
    slot->has_free = true;
    slot->bucket = -1;
    b->weight_slot = -1;
    store_tell_weights(s, bucket, NULL);
    return 0;
}

static int await_bucket(struct store *s, int32_t bucket, struct error *err)
{
    struct store_bucket *b = &s->buckets[bucket];
    if (!b->is_gathering)
        return 0;
    struct device *dev = s->o.dev;
    b->is_gathering = false;
    return dev->ops->stream_wait(dev, s->o.compute, b->gathered, err);
}

int store_await_weights(struct store *s, int32_t unit_begin, int32_t unit_end, struct error *err)
{
    for (int32_t u = unit_begin > 0 ? unit_begin : 0; u < unit_end && u < s->num_units; u++) {
        const struct store_unit *unit = &s->units[u];
        for (int32_t i = unit->first_bucket; i < unit->end_bucket; i++)
            if (await_bucket(s, i, err) != 0)
                return -1;
        if (unit->tied_bucket >= 0 && await_bucket(s, unit->tied_bucket, err) != 0)
            return -1;
    }
    return 0;
}
