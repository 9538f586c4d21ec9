/* What is done with gradients: their norm, clipping, the optimizer's step. */
#include "kernels/cuda/front.h"

int front_sum_squares(struct device *dev, struct stream *s, enum dtype t, double *out,
                      const void *x, const struct span *spans, int32_t num_spans, void *workspace,
                      struct error *err)
{
    if (!front_has_type("sum_squares", t, err)) {
        return -1;
    }
    return FRONT_LAUNCH("sum_squares", dev,
                        cuda_sum_squares(s->cuda, t, out, x, spans, num_spans, workspace));
}

size_t front_sum_squares_workspace(struct device *dev, enum dtype t, int32_t num_spans)
{
    (void)dev;
    (void)t;
    return workspace_cuda_sum_squares(num_spans);
}

int front_sum_double(struct device *dev, struct stream *s, double *out, const double *x, int64_t n,
                     struct error *err)
{
    return FRONT_LAUNCH("sum_double", dev, cuda_sum_double(s->cuda, out, x, n));
}

int front_clip(struct device *dev, struct stream *s, double *norm, double *scale,
               const double *squares, double max_norm, struct error *err)
{
    return FRONT_LAUNCH("clip", dev, cuda_clip(s->cuda, norm, scale, squares, max_norm));
}

/* Weights that are stepped are fp32: with bf16 these are the masters. */
static bool steps(const char *op, enum dtype t, struct error *err)
{
    if (t != DTYPE_F32) {
        error_set(err, ERR_UNIMPLEMENTED, "%s: backend cuda steps fp32 weights alone", op);
        return false;
    }
    return true;
}

int front_adamw(struct device *dev, struct stream *s, enum dtype t, const struct step_args *a,
                struct error *err)
{
    if (!steps("adamw", t, err)) {
        return -1;
    }
    return FRONT_LAUNCH("adamw", dev, cuda_adamw(s->cuda, a));
}

int front_sgd(struct device *dev, struct stream *s, enum dtype t, const struct step_args *a,
              struct error *err)
{
    if (!steps("sgd", t, err)) {
        return -1;
    }
    return FRONT_LAUNCH("sgd", dev, cuda_sgd(s->cuda, a));
}
