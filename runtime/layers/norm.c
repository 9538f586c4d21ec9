/* RMS norm over the hidden dimension. */
#include "runtime/layers/layers.h"

int norm_forward(struct model *m, void *y, void *rstd, const void *x, const struct weight *w,
                 struct error *err)
{
    return m->kernels->rmsnorm_fwd(m->dev, m->stream, m->dtype, y, rstd, x, w->w, m->rows,
                                   m->hidden, m->eps, err);
}

int norm_backward(struct model *m, void *dx, const void *dy, const void *x, const void *rstd,
                  const struct weight *w, bool accumulate, struct error *err)
{
    return m->kernels->rmsnorm_bwd(m->dev, m->stream, m->dtype, dx, w->g, dy, x, w->w, rstd,
                                   m->rows, m->hidden, accumulate, m->workspace, err);
}
