/* A store's life, what it shows of itself, and the waits between its streams. */
#include "runtime/parallel/store.h"

#include <stdlib.h>

#include "runtime/parallel/store_private.h"

/* ---- life ------------------------------------------------------------------------------------ */

static int open_streams(struct store *s, struct error *err)
{
    struct device *dev = s->o.dev;
    const struct device_ops *ops = dev->ops;
    const struct axes *axes = s->o.axes;
    if (axes->world == NULL)
        return 0;
    if (ops->stream_new(dev, STREAM_QUEUE, &s->reduce, err) != 0 ||
        ops->event_new(dev, &s->computed, err) != 0 || ops->event_new(dev, &s->reduced, err) != 0)
        return -1;
    if (s->zero_stage == 0)
        return 0;
    if (ops->stream_new(dev, STREAM_QUEUE, &s->gather, err) != 0 ||
        ops->event_new(dev, &s->updated, err) != 0)
        return -1;
    for (int32_t i = 0; i < s->num_buckets; i++)
        if (ops->event_new(dev, &s->buckets[i].gathered, err) != 0)
            return -1;
    return 0;
}

static int check_axes(const struct axes *a, struct error *err)
{
    bool sound = a->shard_size >= 1 && a->shard_idx >= 0 && a->shard_idx < a->shard_size &&
                 a->num_replicas >= 1 && a->replica_idx >= 0 && a->replica_idx < a->num_replicas &&
                 (a->shard_size == 1) == (a->shard == NULL) &&
                 (a->shard_size == 1) == (a->gather == NULL) &&
                 (a->num_replicas == 1) == (a->replicas == NULL);
    return sound ? 0 : error_set(err, ERR_INTERNAL, "the axes and their communicators disagree");
}

static int store_open(struct store *s, const struct store_options *options, struct error *err)
{
    const ParallelSpec *layout = options->plan->spec->parallel->layout;
    s->o = *options;
    if (check_axes(options->axes, err) != 0)
        return -1;
    s->wide = dtype_wide(options->dtype);
    s->num_shards = options->axes->shard_size;
    s->zero_stage = s->num_shards == 1 ? 0 : (int32_t)layout->zero_stage;
    s->num_buckets = (int32_t)options->stage->n_buckets;
    ASSERT(s->zero_stage >= 0 && s->zero_stage <= 3);
    if (store_lay_out(s, err) != 0 || store_open_memory(s, err) != 0 || open_streams(s, err) != 0 ||
        store_open_optimizer(s, err) != 0)
        return -1;
    return store_open_norm(s, err);
}

int store_new(struct store **out, const struct store_options *options, struct error *err)
{
    struct store *s = calloc(1, sizeof(*s));
    if (s == NULL)
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "no memory for the store");
    if (store_open(s, options, err) != 0) {
        store_free(s);
        return -1;
    }
    *out = s;
    return 0;
}

/* Streams first: they end their work, or fail it, and touch the rest until then. They wait for
 * compute alone, which has done all that it was given. */
void store_free(struct store *s)
{
    if (s == NULL)
        return;
    struct device *dev = s->o.dev;
    struct stream *streams[] = {s->reduce, s->gather};
    for (int i = 0; i < 2; i++)
        if (streams[i] != NULL)
            dev->ops->stream_free(dev, streams[i]);
    struct event *events[] = {s->computed, s->reduced, s->updated};
    for (int i = 0; i < 3; i++)
        if (events[i] != NULL)
            dev->ops->event_free(dev, events[i]);
    for (int32_t i = 0; s->buckets != NULL && i < s->num_buckets; i++)
        if (s->buckets[i].gathered != NULL)
            dev->ops->event_free(dev, s->buckets[i].gathered);
    optimizer_free(s->optimizer);
    store_close_memory(s);
    free(s->buckets);
    free(s->units);
    free(s->owned);
    free(s->sums);
    free(s->counts);
    free(s);
}

/* ---- views ----------------------------------------------------------------------------------- */

void store_tell_weights(struct store *s, int32_t bucket, void *base)
{
    if (s->bind_weights != NULL)
        s->bind_weights(s->bind_arg, bucket, base);
}

void store_tell_grads(struct store *s, int32_t bucket, void *base)
{
    if (s->bind_grads != NULL)
        s->bind_grads(s->bind_arg, bucket, base);
}

void store_bind(struct store *s, store_bind_fn weights, store_bind_fn grads, void *arg)
{
    s->bind_weights = weights;
    s->bind_grads = grads;
    s->bind_arg = arg;
    for (int32_t i = 0; i < s->num_buckets; i++) {
        int64_t offset = s->buckets[i].offset;
        if (s->zero_stage < 3)
            store_tell_weights(s, i, store_weight_at(s, s->weights, offset));
        if (s->zero_stage < 2)
            store_tell_grads(s, i, store_wide_at(s, s->grads, offset));
    }
}

struct store_view store_view(const struct store *s, enum store_part part)
{
    if (part == STORE_MASTERS && s->masters == NULL)
        part = STORE_WEIGHTS;
    char *const data[] = {s->weights, s->grads, s->exp_avg, s->exp_avg_sq, s->masters};
    static const int32_t shared_from[] = {3, 2, 1, 1, 1};
    int64_t whole = s->o.table->flat_numel;
    struct store_view view = {data[part], &s->whole, 1, whole};
    if (s->zero_stage >= shared_from[part]) {
        view.ranges = s->owned;
        view.num_ranges = s->num_owned;
        view.numel = whole / s->num_shards;
    } else if (part == STORE_GRADS) {
        view.ranges = s->sums;
        view.num_ranges = s->num_owned;
    }
    return view;
}

const struct flat_range *store_owned(const struct store *s, int32_t *num)
{
    *num = s->num_owned;
    return s->owned;
}

/* ---- waits ----------------------------------------------------------------------------------- */

int store_follow(struct store *s, struct event *e, struct stream *from, struct stream *to,
                 struct error *err)
{
    struct device *dev = s->o.dev;
    if (dev->ops->event_record(dev, e, from, err) != 0)
        return -1;
    return dev->ops->stream_wait(dev, to, e, err);
}

int store_begin_step(struct store *s, struct error *err)
{
    for (int32_t i = 0; i < s->num_buckets; i++)
        s->buckets[i].is_fresh = true;
    if (s->zero_stage >= 2) /* the first sum of a bucket is written, not added */
        return 0;
    return store_zero_sums(s, s->grads, 0, s->o.table->flat_numel, err);
}

/* By an event, so that compute alone waits: its error is the first failed collective's. */
int store_wait(struct store *s, struct error *err)
{
    if (s->reduce == NULL)
        return 0;
    return store_follow(s, s->reduced, s->reduce, s->o.compute, err);
}
