/* Norms. */
#include "kernels/cuda/front.h"

int front_rmsnorm_fwd(struct device *dev, struct stream *s, enum dtype t, void *y, void *rstd,
                      const void *x, const void *w, int64_t r, int64_t d, double eps,
                      struct error *err)
{
    if (!front_has_type("rmsnorm_fwd", t, err)) {
        return -1;
    }
    return FRONT_LAUNCH("rmsnorm_fwd", dev, cuda_rmsnorm_fwd(s->cuda, t, y, rstd, x, w, r, d, eps));
}

int front_rmsnorm_bwd(struct device *dev, struct stream *s, enum dtype t, void *dx, void *dw,
                      const void *dy, const void *x, const void *w, const void *rstd, int64_t r,
                      int64_t d, bool accumulate, void *workspace, struct error *err)
{
    if (!front_has_type("rmsnorm_bwd", t, err)) {
        return -1;
    }
    return FRONT_LAUNCH(
        "rmsnorm_bwd", dev,
        cuda_rmsnorm_bwd(s->cuda, t, dx, dw, dy, x, w, rstd, r, d, accumulate, workspace));
}

size_t front_rmsnorm_bwd_workspace(struct device *dev, enum dtype t, int64_t r, int64_t d)
{
    (void)dev;
    (void)t;
    return workspace_cuda_rmsnorm_bwd(r, d);
}

int front_layernorm_fwd(struct device *dev, struct stream *s, enum dtype t, void *y, void *mean,
                        void *rstd, const void *x, const void *w, const void *b, int64_t r,
                        int64_t d, double eps, struct error *err)
{
    if (!front_has_type("layernorm_fwd", t, err)) {
        return -1;
    }
    return FRONT_LAUNCH("layernorm_fwd", dev,
                        cuda_layernorm_fwd(s->cuda, t, y, mean, rstd, x, w, b, r, d, eps));
}

int front_layernorm_bwd(struct device *dev, struct stream *s, enum dtype t, void *dx, void *dw,
                        void *db, const void *dy, const void *x, const void *w, const void *mean,
                        const void *rstd, int64_t r, int64_t d, bool accumulate, void *workspace,
                        struct error *err)
{
    if (!front_has_type("layernorm_bwd", t, err)) {
        return -1;
    }
    return FRONT_LAUNCH("layernorm_bwd", dev,
                        cuda_layernorm_bwd(s->cuda, t, dx, dw, db, dy, x, w, mean, rstd, r, d,
                                           accumulate, workspace));
}

size_t front_layernorm_bwd_workspace(struct device *dev, enum dtype t, int64_t r, int64_t d)
{
    (void)dev;
    (void)t;
    return workspace_cuda_layernorm_bwd(r, d);
}
