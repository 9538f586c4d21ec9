/* The fronts of the norms. */
#include "kernels/host/front.h"

int front_rmsnorm_fwd(struct device *dev, struct stream *s, enum dtype t, void *y, void *rstd,
                      const void *x, const void *w, int64_t r, int64_t d, double eps,
                      struct error *err)
{
    const struct loops *l = front_loops(dev, t);
    if (!l) {
        return front_no_such_type(dev, "rmsnorm_fwd", t, err);
    }
    struct rmsnorm_args a = {.y = y, .rstd = rstd, .x = x, .w = w, .r = r, .d = d, .eps = eps};
    return front_submit(dev, s, "rmsnorm_fwd", l->rmsnorm_fwd, &a, sizeof a, err);
}

int front_rmsnorm_bwd(struct device *dev, struct stream *s, enum dtype t, void *dx, void *dw,
                      const void *dy, const void *x, const void *w, const void *rstd, int64_t r,
                      int64_t d, bool accumulate, void *workspace, struct error *err)
{
    const struct loops *l = front_loops(dev, t);
    if (!l) {
        return front_no_such_type(dev, "rmsnorm_bwd", t, err);
    }
    ASSERT(!accumulate || dx != dy);
    struct rmsnorm_args a = {.x = x,
                             .w = w,
                             .r = r,
                             .d = d,
                             .dy = dy,
                             .rstd_in = rstd,
                             .dx = dx,
                             .dw = dw,
                             .workspace = workspace,
                             .accumulate = accumulate};
    return front_submit(dev, s, "rmsnorm_bwd", l->rmsnorm_bwd, &a, sizeof a, err);
}

size_t front_rmsnorm_bwd_workspace(struct device *dev, enum dtype t, int64_t r, int64_t d)
{
    const struct loops *l = front_loops(dev, t);
    return l ? l->rmsnorm_bwd_workspace(r, d) : 0;
}

int front_layernorm_fwd(struct device *dev, struct stream *s, enum dtype t, void *y, void *mean,
                        void *rstd, const void *x, const void *w, const void *b, int64_t r,
                        int64_t d, double eps, struct error *err)
{
    const struct loops *l = front_loops(dev, t);
    if (!l) {
        return front_no_such_type(dev, "layernorm_fwd", t, err);
    }
    ASSERT(r >= 0 && d >= 0);
    struct layernorm_args a = {
        .y = y, .mean = mean, .rstd = rstd, .x = x, .w = w, .b = b, .r = r, .d = d, .eps = eps};
    return front_submit(dev, s, "layernorm_fwd", l->layernorm_fwd, &a, sizeof a, err);
}

int front_layernorm_bwd(struct device *dev, struct stream *s, enum dtype t, void *dx, void *dw,
                        void *db, const void *dy, const void *x, const void *w, const void *mean,
                        const void *rstd, int64_t r, int64_t d, bool accumulate, void *workspace,
                        struct error *err)
{
    const struct loops *l = front_loops(dev, t);
    if (!l) {
        return front_no_such_type(dev, "layernorm_bwd", t, err);
    }
    ASSERT(r >= 0 && d >= 0);
    ASSERT(!accumulate || dx != dy);
    struct layernorm_args a = {.x = x,
                               .w = w,
                               .r = r,
                               .d = d,
                               .dy = dy,
                               .mean_in = mean,
                               .rstd_in = rstd,
                               .dx = dx,
                               .dw = dw,
                               .db = db,
                               .workspace = workspace,
                               .accumulate = accumulate};
    return front_submit(dev, s, "layernorm_bwd", l->layernorm_bwd, &a, sizeof a, err);
}

size_t front_layernorm_bwd_workspace(struct device *dev, enum dtype t, int64_t r, int64_t d)
{
    const struct loops *l = front_loops(dev, t);
    return l ? l->layernorm_bwd_workspace(r, d) : 0;
}
