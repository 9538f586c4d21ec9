/* RMS norm or layer norm over the hidden dimension, of this rank's rows. */
#include "runtime/layers/layers.h"

int norm_forward(struct model *m, void *y, const struct norm_stats *stats, const void *x,
                 const struct layer *l, struct error *err)
{
    const struct kernels *k = m->kernels;
    int64_t rows = stream_own_rows(m);
    const void *w = weight_at(m, &l->w);
    if (m->layer_norm)
        return k->layernorm_fwd(m->dev, m->stream, m->dtype, y, stats->mean, stats->rstd, x, w,
                                weight_at(m, &l->b), rows, m->hidden, m->eps, err);
    return k->rmsnorm_fwd(m->dev, m->stream, m->dtype, y, stats->rstd, x, w, rows, m->hidden,
                          m->eps, err);
}

int norm_backward(struct model *m, void *dx, const void *dy, const void *x,
                  const struct norm_stats *stats, const struct layer *l, bool accumulate,
                  struct error *err)
{
    const struct kernels *k = m->kernels;
    int64_t rows = stream_own_rows(m);
    const void *w = weight_at(m, &l->w);
    void *dw = weight_grad(m, &l->w);
    if (m->layer_norm)
        return k->layernorm_bwd(m->dev, m->stream, m->dtype, dx, dw, weight_grad(m, &l->b), dy, x,
                                w, stats->mean, stats->rstd, rows, m->hidden, accumulate,
                                m->workspace, err);
    return k->rmsnorm_bwd(m->dev, m->stream, m->dtype, dx, dw, dy, x, w, stats->rstd, rows,
                          m->hidden, accumulate, m->workspace, err);
}
