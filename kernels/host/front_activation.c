/* The fronts of activations and biases. */
#include "kernels/host/front.h"

int front_swiglu_fwd(struct device *dev, struct stream *s, enum dtype t, void *y, const void *gate,
                     const void *up, int64_t n, struct error *err)
{
    const struct loops *l = front_loops(dev, t);
    if (!l) {
        return front_no_such_type(dev, "swiglu_fwd", t, err);
    }
    struct swiglu_args a = {.y = y, .gate = gate, .up = up, .n = n};
    return front_submit(dev, s, "swiglu_fwd", l->swiglu_fwd, &a, sizeof a, err);
}

int front_swiglu_bwd(struct device *dev, struct stream *s, enum dtype t, void *dgate, void *dup,
                     const void *dy, const void *gate, const void *up, int64_t n, struct error *err)
{
    const struct loops *l = front_loops(dev, t);
    if (!l) {
        return front_no_such_type(dev, "swiglu_bwd", t, err);
    }
    struct swiglu_args a = {.gate = gate, .up = up, .dy = dy, .dgate = dgate, .dup = dup, .n = n};
    return front_submit(dev, s, "swiglu_bwd", l->swiglu_bwd, &a, sizeof a, err);
}

int front_gelu_fwd(struct device *dev, struct stream *s, enum dtype t, void *y, const void *x,
                   int64_t n, struct error *err)
{
    const struct loops *l = front_loops(dev, t);
    if (!l) {
        return front_no_such_type(dev, "gelu_fwd", t, err);
    }
    ASSERT(n >= 0);
    struct gelu_args a = {.out = y, .x = x, .n = n};
    return front_submit(dev, s, "gelu_fwd", l->gelu_fwd, &a, sizeof a, err);
}

int front_gelu_bwd(struct device *dev, struct stream *s, enum dtype t, void *dx, const void *dy,
                   const void *x, int64_t n, struct error *err)
{
    const struct loops *l = front_loops(dev, t);
    if (!l) {
        return front_no_such_type(dev, "gelu_bwd", t, err);
    }
    ASSERT(n >= 0);
    struct gelu_args a = {.out = dx, .x = x, .dy = dy, .n = n};
    return front_submit(dev, s, "gelu_bwd", l->gelu_bwd, &a, sizeof a, err);
}

int front_add_bias(struct device *dev, struct stream *s, enum dtype t, void *y, const void *b,
                   int64_t r, int64_t n, struct error *err)
{
    const struct loops *l = front_loops(dev, t);
    if (!l) {
        return front_no_such_type(dev, "add_bias", t, err);
    }
    ASSERT(r >= 0 && n >= 0);
    struct bias_args a = {.out = y, .in = b, .r = r, .n = n};
    return front_submit(dev, s, "add_bias", l->add_bias, &a, sizeof a, err);
}

int front_column_sum(struct device *dev, struct stream *s, enum dtype t, void *db, const void *dy,
                     int64_t r, int64_t n, struct error *err)
{
    const struct loops *l = front_loops(dev, t);
    if (!l) {
        return front_no_such_type(dev, "column_sum", t, err);
    }
    ASSERT(r >= 0 && n >= 0);
    struct bias_args a = {.out = db, .in = dy, .r = r, .n = n};
    return front_submit(dev, s, "column_sum", l->column_sum, &a, sizeof a, err);
}
