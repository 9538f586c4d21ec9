/* Entries of the table of operations that a backend defines beside its front.c, in front_*.c. Each
 * family of backends (kernels/host, kernels/cuda) has its own of these names; they are never linked
 * together. What they do: kernels.h. */
#ifndef TANDEM_KERNELS_FRONT_H
#define TANDEM_KERNELS_FRONT_H

#include "kernels/kernels.h"

/* ---- norms ---- */

int front_rmsnorm_fwd(struct device *dev, struct stream *s, enum dtype t, void *y, void *rstd,
                      const void *x, const void *w, int64_t r, int64_t d, double eps,
                      struct error *err);
int front_rmsnorm_bwd(struct device *dev, struct stream *s, enum dtype t, void *dx, void *dw,
                      const void *dy, const void *x, const void *w, const void *rstd, int64_t r,
                      int64_t d, bool accumulate, void *workspace, struct error *err);
size_t front_rmsnorm_bwd_workspace(struct device *dev, enum dtype t, int64_t r, int64_t d);
int front_layernorm_fwd(struct device *dev, struct stream *s, enum dtype t, void *y, void *mean,
                        void *rstd, const void *x, const void *w, const void *b, int64_t r,
                        int64_t d, double eps, struct error *err);
int front_layernorm_bwd(struct device *dev, struct stream *s, enum dtype t, void *dx, void *dw,
                        void *db, const void *dy, const void *x, const void *w, const void *mean,
                        const void *rstd, int64_t r, int64_t d, bool accumulate, void *workspace,
                        struct error *err);
size_t front_layernorm_bwd_workspace(struct device *dev, enum dtype t, int64_t r, int64_t d);

/* ---- losses ---- */

static inline void front_check_part(const struct logits_part *p)
{
    ASSERT(p->r >= 0 && p->ld >= 0 && p->valid >= 0 && p->valid <= p->ld && p->first >= 0);
    ASSERT(p->r == 0 || p->targets);
}

int front_cross_entropy(struct device *dev, struct stream *s, enum dtype t, double *nll,
                        void *dlogits, const void *logits, const int32_t *targets, double dloss,
                        int64_t r, int64_t v, int64_t ld, struct error *err);
int front_ce_max(struct device *dev, struct stream *s, enum dtype t, double *max,
                 const struct logits_part *p, struct error *err);
int front_ce_sum(struct device *dev, struct stream *s, enum dtype t, double *sums,
                 const double *max, const struct logits_part *p, struct error *err);
int front_ce_finish(struct device *dev, struct stream *s, enum dtype t, double *nll, void *dlogits,
                    const double *max, const double *sums, double dloss,
                    const struct logits_part *p, struct error *err);

/* ---- a step ---- */

int front_sum_squares(struct device *dev, struct stream *s, enum dtype t, double *out,
                      const void *x, const struct span *spans, int32_t num_spans, void *workspace,
                      struct error *err);
size_t front_sum_squares_workspace(struct device *dev, enum dtype t, int32_t num_spans);
int front_sum_double(struct device *dev, struct stream *s, double *out, const double *x, int64_t n,
                     struct error *err);
int front_clip(struct device *dev, struct stream *s, double *norm, double *scale,
               const double *squares, double max_norm, struct error *err);
int front_adamw(struct device *dev, struct stream *s, enum dtype t, const struct step_args *a,
                struct error *err);
int front_sgd(struct device *dev, struct stream *s, enum dtype t, const struct step_args *a,
              struct error *err);

#endif
