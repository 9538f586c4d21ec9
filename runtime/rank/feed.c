#include "runtime/rank/feed.h"

#include <stdlib.h>

struct feed {
    struct feed_options options;
    struct loader *loader;
    int64_t num_tokens;      /* of a micro-batch */
    int64_t num_parts;       /* ids, targets; packed: positions and segments, too */
    int32_t *device;         /* [num_parts, num_tokens], in the order of struct host_batch */
    int32_t *host[2];        /* the same, of two micro-batches by turns */
    struct event *copied[2]; /* what is in that is on the device */
    int turn;
};

int feed_open(struct feed **out, const struct feed_options *options, struct error *err)
{
    const TrainingSpec *training = options->plan->spec->training;
    struct loader_options loader;
    struct feed *f = calloc(1, sizeof(*f));
    if (f == NULL)
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "no memory for a micro-batch");
    f->options = *options;
    if (loader_options_from_plan(&loader, options->plan, options->rank) != 0) {
        error_set(err, ERR_INTERNAL, "the plan names no training data");
        goto fail;
    }
    loader.roots = options->roots;
    if (loader_open(&f->loader, &loader, err) != 0)
        goto fail;
    f->num_tokens = training->micro_batch_size * training->seq_len;
    f->num_parts = loader_is_packed(f->loader) ? 4 : 2;
    size_t bytes = (size_t)(f->num_parts * f->num_tokens) * sizeof(int32_t);
    f->device = arenas_take(options->arenas, ARENA_BATCH, bytes, false, err);
    if (f->device == NULL)
        goto fail;
    for (int i = 0; i < 2; i++) {
        f->host[i] = arenas_take(options->arenas, ARENA_HOST, bytes, false, err);
        if (f->host[i] == NULL ||
            options->dev->ops->event_new(options->dev, &f->copied[i], err) != 0)
            goto fail;
    }
    *out = f;
    return 0;
fail:
    feed_close(f);
    return -1;
}

void feed_close(struct feed *f)
{
    if (f == NULL)
        return;
    loader_close(f->loader);
    for (int i = 0; i < 2; i++)
        if (f->copied[i] != NULL)
            f->options.dev->ops->event_free(f->options.dev, f->copied[i]);
    free(f);
}

int feed_read(struct feed *f, int64_t step, int64_t micro_batch, struct batch *out,
              struct error *err)
{
    struct device *dev = f->options.dev;
    int64_t n = f->num_tokens;
    bool packed = f->num_parts == 4;
    int32_t *from = f->host[f->turn];
    struct event *copied = f->copied[f->turn];
    f->turn = !f->turn;
    const struct host_batch host = {
        .ids = from,
        .targets = from + n,
        .positions = packed ? from + 2 * n : NULL,
        .segments = packed ? from + 3 * n : NULL,
    };
    if (dev->ops->event_sync(dev, copied, err) != 0 ||
        loader_read(f->loader, step, micro_batch, &host, err) != 0 ||
        dev->ops->copy(dev, f->options.compute, f->device, from,
                       (size_t)(f->num_parts * n) * sizeof(int32_t), COPY_TO_DEVICE, err) != 0 ||
        dev->ops->event_record(dev, copied, f->options.compute, err) != 0)
        return -1;
    *out = (struct batch){
        .ids = f->device,
        .targets = f->device + n,
        .positions = packed ? f->device + 2 * n : NULL,
        .segments = packed ? f->device + 3 * n : NULL,
    };
    return 0;
}

struct loader *feed_loader(const struct feed *f)
{
    return f->loader;
}
