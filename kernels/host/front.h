/* The front of every operation on a host device: checks what the caller passes, packs it, and puts
 * the loop of the right type into the stream. What they share, and those that front.c's tables take
 * from other files. */
#ifndef TANDEM_KERNELS_HOST_FRONT_H
#define TANDEM_KERNELS_HOST_FRONT_H

#include "kernels/host/device.h"
#include "kernels/host/stream.h"

static inline const struct loops *front_loops(struct device *dev, enum dtype t)
{
    const struct host_device *d = (const struct host_device *)dev;
    return (unsigned)t < HOST_DTYPES ? d->loops[t] : NULL;
}

static inline int front_no_such_type(struct device *dev, const char *op, enum dtype t,
                                     struct error *err)
{
    return error_set(err, ERR_UNIMPLEMENTED, "%s: backend %s has no type %d", op, dev->ops->name,
                     (int)t);
}

static inline int front_submit(struct device *dev, struct stream *s, const char *op, loop_fn loop,
                               const void *args, size_t bytes, struct error *err)
{
    struct host_work work = {.op = op,
                             .loop = loop,
                             .pool = ((struct host_device *)dev)->pool,
                             .args = args,
                             .bytes = bytes};
    return host_stream_submit(s, &work, err);
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
int front_swiglu_fwd(struct device *dev, struct stream *s, enum dtype t, void *y, const void *gate,
                     const void *up, int64_t n, struct error *err);
int front_swiglu_bwd(struct device *dev, struct stream *s, enum dtype t, void *dgate, void *dup,
                     const void *dy, const void *gate, const void *up, int64_t n,
                     struct error *err);
int front_gelu_fwd(struct device *dev, struct stream *s, enum dtype t, void *y, const void *x,
                   int64_t n, struct error *err);
int front_gelu_bwd(struct device *dev, struct stream *s, enum dtype t, void *dx, const void *dy,
                   const void *x, int64_t n, struct error *err);
int front_add_bias(struct device *dev, struct stream *s, enum dtype t, void *y, const void *b,
                   int64_t r, int64_t n, struct error *err);
int front_column_sum(struct device *dev, struct stream *s, enum dtype t, void *db, const void *dy,
                     int64_t r, int64_t n, struct error *err);
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
