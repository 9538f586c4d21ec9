/* The end of a step: the norm of the whole model's gradients, and the optimizer over what is this
 * rank's. */
#include <math.h>

#include "runtime/parallel/store_private.h"

/* This rank's share of the sum of squares, in squares[0]; always in the same order. */
static int sum_own_squares(struct store *s, struct error *err)
{
    struct device *dev = s->o.dev;
    const struct kernels *k = s->o.kernels;
    if (s->num_counts == 0)
        return dev->ops->zero(dev, s->o.compute, s->squares, sizeof(*s->squares), err);
    for (int32_t i = 0; i < s->num_counts; i++) {
        const struct store_count *c = &s->counts[i];
        if (k->sum_squares(dev, s->o.compute, s->o.dtype, &s->squares[i + 1],
                           store_at(s, s->grads, c->at), c->numel, err) != 0)
            return -1;
    }
    return k->sum_double(dev, s->o.compute, s->squares, s->squares + 1, s->num_counts, err);
}

int store_norm(struct store *s, double *out, struct error *err)
{
    struct device *dev = s->o.dev;
    double sum = 0.0;
    if (sum_own_squares(s, err) != 0 || store_reduce_words(s, s->squares, 1, "norm", err) != 0 ||
        store_wait(s, err) != 0 ||
        dev->ops->copy(dev, s->o.compute, &sum, s->squares, sizeof(sum), COPY_TO_HOST, err) != 0 ||
        dev->ops->stream_sync(dev, s->o.compute, err) != 0)
        return error_wrap(err, "gradient norm");
    *out = sqrt(sum);
    return 0;
}

/* No gather may still be reading the slices that are written now. */
static int await_all(struct store *s, struct error *err)
{
    return store_await_weights(s, 0, s->num_units, err);
}

int store_optimizer_step(struct store *s, int64_t n, double lr, double grad_scale,
                         struct error *err)
{
    if (await_all(s, err) != 0 || optimizer_step(s->optimizer, n, lr, grad_scale, err) != 0)
        return -1;
    if (s->gather == NULL)
        return 0;
    s->has_updated = true;
    return s->o.dev->ops->event_record(s->o.dev, s->updated, s->o.compute, err);
}
