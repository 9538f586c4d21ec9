/* The end of a step: the norm of the whole model's gradients, and the optimizer over what is this
 * rank's. */
#include "runtime/parallel/store_private.h"

int store_norm(struct store *s, double max_norm, double *out, struct error *err)
{
    struct device *dev = s->o.dev;
    const struct kernels *k = s->o.kernels;
    struct stream *compute = s->o.compute;
    if (k->sum_squares(dev, compute, s->o.dtype, s->norm, s->grads, s->counts, s->num_counts,
                       s->norm_workspace, err) != 0 ||
        store_reduce_words(s, s->norm, 1, "norm", err) != 0 || store_wait(s, err) != 0 ||
        k->clip(dev, compute, s->norm, s->scale, s->norm, max_norm, err) != 0 ||
        dev->ops->copy(dev, compute, out, s->norm, sizeof(*out), COPY_TO_HOST, err) != 0 ||
        dev->ops->stream_sync(dev, compute, err) != 0)
        return error_wrap(err, "gradient norm");
    return 0;
}

/* No gather may still be reading the slices that are written now. */
static int await_all(struct store *s, struct error *err)
{
    return store_await_weights(s, 0, s->num_units, err);
}

int store_optimizer_step(struct store *s, int64_t n, double lr, struct error *err)
{
    if (await_all(s, err) != 0 || optimizer_step(s->optimizer, n, lr, s->scale, err) != 0)
        return -1;
    if (s->gather == NULL)
        return 0;
    s->has_updated = true;
    return s->o.dev->ops->event_record(s->o.dev, s->updated, s->o.compute, err);
}
