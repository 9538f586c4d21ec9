/* The end of a step: the norm of the whole model's gradients, the factor that clips them, and the
 * optimizer over what is this rank's. All of it is enqueued; no number comes to the host. */
#include "runtime/parallel/store_private.h"

/* ---- norm ------------------------------------------------------------------------------------ */

int store_sum_squares(struct store *s, double *out, const void *x, int64_t n, struct error *err)
{
    const struct span all = {0, n};
    return s->o.kernels->sum_squares(s->o.dev, s->o.compute, s->wide, out, x, &all, 1, s->scratch,
                                     err);
}

/* This rank's share, always in the same order. */
static int sum_own_squares(struct store *s, struct error *err)
{
    return s->o.kernels->sum_squares(s->o.dev, s->o.compute, s->wide, &s->words[STORE_SQUARES],
                                     s->grads, s->counts, s->num_counts, s->scratch, err);
}

/* STORE_CHECKED = the squares, or NaN where the loss isn't finite or the last factor was NaN: 0
 * times a number is 0, but 0 times one that isn't finite is NaN. */
static int check(struct store *s, const double *loss, struct error *err)
{
    struct device *dev = s->o.dev;
    struct stream *c = s->o.compute;
    const struct kernels *k = s->o.kernels;
    double *w = s->words, *checks = &w[STORE_CHECKS];
    if (loss != NULL &&
        dev->ops->copy(dev, c, &checks[0], loss, sizeof(*w), COPY_ON_DEVICE, err) != 0)
        return -1;
    if (dev->ops->copy(dev, c, &checks[1], &w[STORE_SCALE], sizeof(*w), COPY_ON_DEVICE, err) != 0 ||
        k->scale(dev, c, DTYPE_F64, checks, 0.0, 2, err) != 0)
        return -1;
    return k->sum_double(dev, c, &w[STORE_CHECKED], &w[STORE_SQUARES], 3, err);
}

/* The norm as it is; the factor as the checks say. */
static int clip(struct store *s, struct error *err)
{
    struct device *dev = s->o.dev;
    double *w = s->words, max_norm = s->o.plan->spec->training->clip_grad_norm;
    double *unused = &w[STORE_CHECKS];
    if (s->o.kernels->clip(dev, s->o.compute, unused, &w[STORE_SCALE], &w[STORE_CHECKED], max_norm,
                           err) != 0)
        return -1;
    return s->o.kernels->clip(dev, s->o.compute, &w[STORE_NORM], unused, &w[STORE_SQUARES],
                              max_norm, err);
}

int store_norm(struct store *s, const double *loss, struct error *err)
{
    if (sum_own_squares(s, err) != 0 ||
        store_reduce_words(s, &s->words[STORE_SQUARES], 1, "norm", err) != 0 ||
        store_wait(s, err) != 0 || check(s, loss, err) != 0 || clip(s, err) != 0)
        return error_wrap(err, "gradient norm");
    return 0;
}

const double *store_norm_words(const struct store *s)
{
    return &s->words[STORE_NORM];
}

/* ---- weights --------------------------------------------------------------------------------- */

/* No gather may still be reading the slices that are written now. */
static int await_all(struct store *s, struct error *err)
{
    return store_await_weights(s, 0, s->num_units, err);
}

/* Gathers from now on see what compute has written. */
static int tell_updated(struct store *s, struct error *err)
{
    if (s->gather == NULL)
        return 0;
    s->has_updated = true;
    return s->o.dev->ops->event_record(s->o.dev, s->updated, s->o.compute, err);
}

int store_optimizer_step(struct store *s, int64_t n, double lr, struct error *err)
{
    if (await_all(s, err) != 0 ||
        optimizer_step(s->optimizer, n, lr, &s->words[STORE_SCALE], err) != 0)
        return -1;
    return tell_updated(s, err);
}

/* Elements of the masters to where the weights have them. */
static int cast(struct store *s, int64_t master, int64_t weight, int64_t n, struct error *err)
{
    return s->o.kernels->cast(s->o.dev, s->o.compute, store_weight_at(s, s->weights, weight),
                              s->o.dtype, store_wide_at(s, s->masters, master), s->wide, n, err);
}

/* Weights that are whole here, of which this rank updates a slice. */
static bool are_whole_weights_shared(const struct store *s)
{
    return s->zero_stage == 1 || s->zero_stage == 2;
}

static int publish(struct store *s, struct error *err)
{
    bool whole = are_whole_weights_shared(s); /* but masters are not */
    if (await_all(s, err) != 0)
        return -1;
    for (int32_t i = 0; s->masters != NULL && i < s->num_owned; i++) {
        const struct flat_range *own = &s->owned[i];
        if (cast(s, own->at, whole ? own->begin : own->at, own->numel, err) != 0)
            return -1;
    }
    if (tell_updated(s, err) != 0)
        return -1;
    for (int32_t i = 0; whole && i < s->num_buckets; i++)
        if (store_gather_in_place(s, i, err) != 0)
            return -1;
    return 0;
}

int store_publish(struct store *s, struct error *err)
{
    bool fills_slices = !DEVICE_IS_HOST(s->o.dev) && are_whole_weights_shared(s);
    if ((s->masters == NULL && !fills_slices) || publish(s, err) == 0)
        return 0;
    return error_wrap(err, "publishing the weights");
}
