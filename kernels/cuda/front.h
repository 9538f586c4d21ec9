/* The table of operations on a CUDA device: each entry checks what the caller passes and makes the
 * launches. What the files of it share, and what front.c's table takes from the others. */
#ifndef TANDEM_KERNELS_CUDA_FRONT_H
#define TANDEM_KERNELS_CUDA_FRONT_H

#include "kernels/cuda/device.h"
#include "kernels/cuda/launch.h"
#include "kernels/kernels.h"

extern const struct kernels cuda_kernels;

/* Is t one that activations may have here? If not: words, and false. */
bool front_has_type(const char *op, enum dtype t, struct error *err);

/* `return FRONT_LAUNCH(...)`: 0, or -1 and words with the operation's name. */
#define FRONT_LAUNCH(op, dev, launch)                                                              \
    (cuda_use(dev, err) == 0 ? front_launched(op, (launch), err) : -1)

static inline int front_launched(const char *op, cudaError_t e, struct error *err)
{
    return e == cudaSuccess ? 0 : cuda_error(err, e, "%s", op);
}

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
