#include "runtime/parallel/dp.h"

#include <stdlib.h>

struct dp {
    struct dp_options options;
    struct stream *stream; /* owned; communication */
    struct event *ready;   /* owned: the compute stream has got this far */
};

int dp_new(struct dp **out, const struct dp_options *options, struct error *err)
{
    struct dp *dp = calloc(1, sizeof(*dp));
    if (dp == NULL)
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "no memory for the gradient reduction");
    dp->options = *options;
    const struct device_ops *ops = options->dev->ops;
    if (options->comm != NULL &&
        (ops->stream_new(options->dev, STREAM_QUEUE, &dp->stream, err) != 0 ||
         ops->event_new(options->dev, &dp->ready, err) != 0)) {
        dp_free(dp);
        return -1;
    }
    *out = dp;
    return 0;
}

void dp_free(struct dp *dp)
{
    if (dp == NULL)
        return;
    struct device *dev = dp->options.dev;
    if (dp->stream != NULL)
        dev->ops->stream_free(dev, dp->stream);
    if (dp->ready != NULL)
        dev->ops->event_free(dev, dp->ready);
    free(dp);
}

/* What comes next on the communication stream sees all that compute has written so far. */
static int follow_compute(struct dp *dp, struct error *err)
{
    struct device *dev = dp->options.dev;
    if (dev->ops->event_record(dev, dp->ready, dp->options.compute, err) != 0)
        return -1;
    return dev->ops->stream_wait(dev, dp->stream, dp->ready, err);
}

int dp_reduce_bucket(struct dp *dp, int32_t bucket, struct error *err)
{
    const struct dp_options *o = &dp->options;
    ASSERT(bucket >= 0 && (size_t)bucket < o->stage->n_buckets);
    if (o->comm == NULL)
        return 0;
    const Bucket *b = o->stage->buckets[bucket];
    void *place = (char *)o->grads + (size_t)b->offset * dtype_size(o->dtype);
    if (follow_compute(dp, err) != 0 ||
        o->comm->ops->all_reduce(o->comm, dp->stream, place, b->numel, o->dtype, COMM_SUM, err) !=
            0)
        return error_wrap(err, "reduce of bucket %d", bucket);
    return 0;
}

int dp_reduce_words(struct dp *dp, double *words, int64_t n, struct error *err)
{
    const struct dp_options *o = &dp->options;
    if (o->comm == NULL)
        return 0;
    if (follow_compute(dp, err) != 0 ||
        o->comm->ops->all_reduce(o->comm, dp->stream, words, n, DTYPE_F64, COMM_SUM, err) != 0)
        return error_wrap(err, "reduce of the loss");
    return 0;
}

int dp_wait(struct dp *dp, struct error *err)
{
    if (dp->options.comm == NULL)
        return 0;
    /* The stream's own sync, not an event: it is what brings a failed collective's error. */
    struct device *dev = dp->options.dev;
    return dev->ops->stream_sync(dev, dp->stream, err);
}
