/* The front of every operation on a host device: checks what the caller passes, packs it, and puts
 * the loop of the right type into the stream. */
#include "kernels/host/device.h"
#include "kernels/host/stream.h"

#include <string.h>

static const struct loops *loops_of(struct device *dev, enum dtype t)
{
    const struct host_device *d = (const struct host_device *)dev;
    return t == DTYPE_F32 ? d->f32 : t == DTYPE_F64 ? d->f64 : NULL;
}

static int no_such_type(struct device *dev, const char *op, enum dtype t, struct error *err)
{
    return error_set(err, ERR_UNIMPLEMENTED, "%s: backend %s has no type %d", op, dev->ops->name,
                     (int)t);
}

static int submit(struct device *dev, struct stream *s, const char *op, loop_fn loop,
                  const void *args, size_t bytes, struct error *err)
{
    struct host_work work = {.op = op,
                             .loop = loop,
                             .pool = ((struct host_device *)dev)->pool,
                             .args = args,
                             .bytes = bytes};
    return host_stream_submit(s, &work, err);
}

static int front_gemm(struct device *dev, struct stream *s, enum dtype t, const struct gemm_args *a,
                      struct error *err)
{
    const struct loops *l = loops_of(dev, t);
    if (!l) {
        return no_such_type(dev, "gemm", t, err);
    }
    ASSERT(a->m >= 0 && a->n >= 0 && a->k >= 0);
    ASSERT(a->lda >= (a->trans_a ? a->m : a->k));
    ASSERT(a->ldb >= (a->trans_b ? a->k : a->n));
    ASSERT(a->ldc >= a->n);
    ASSERT(a->lda <= INT32_MAX && a->ldb <= INT32_MAX && a->ldc <= INT32_MAX);
    ASSERT(a->m <= INT32_MAX && a->n <= INT32_MAX && a->k <= INT32_MAX);
    return submit(dev, s, "gemm", l->gemm, a, sizeof *a, err);
}

static int front_embed_fwd(struct device *dev, struct stream *s, enum dtype t, void *y,
                           const void *w, const int32_t *ids, int64_t r, int64_t v, int64_t d,
                           struct error *err)
{
    const struct loops *l = loops_of(dev, t);
    if (!l) {
        return no_such_type(dev, "embed_fwd", t, err);
    }
    struct embed_args a = {.out = y, .in = w, .ids = ids, .r = r, .v = v, .d = d};
    return submit(dev, s, "embed_fwd", l->embed_fwd, &a, sizeof a, err);
}

static int front_embed_bwd(struct device *dev, struct stream *s, enum dtype t, void *dw,
                           const void *dy, const int32_t *ids, int64_t r, int64_t v, int64_t d,
                           struct error *err)
{
    const struct loops *l = loops_of(dev, t);
    if (!l) {
        return no_such_type(dev, "embed_bwd", t, err);
    }
    struct embed_args a = {.out = dw, .in = dy, .ids = ids, .r = r, .v = v, .d = d};
    return submit(dev, s, "embed_bwd", l->embed_bwd, &a, sizeof a, err);
}

static int front_rmsnorm_fwd(struct device *dev, struct stream *s, enum dtype t, void *y,
                             void *rstd, const void *x, const void *w, int64_t r, int64_t d,
                             double eps, struct error *err)
{
    const struct loops *l = loops_of(dev, t);
    if (!l) {
        return no_such_type(dev, "rmsnorm_fwd", t, err);
    }
    struct rmsnorm_args a = {.y = y, .rstd = rstd, .x = x, .w = w, .r = r, .d = d, .eps = eps};
    return submit(dev, s, "rmsnorm_fwd", l->rmsnorm_fwd, &a, sizeof a, err);
}

static int front_rmsnorm_bwd(struct device *dev, struct stream *s, enum dtype t, void *dx, void *dw,
                             const void *dy, const void *x, const void *w, const void *rstd,
                             int64_t r, int64_t d, bool accumulate, void *workspace,
                             struct error *err)
{
    const struct loops *l = loops_of(dev, t);
    if (!l) {
        return no_such_type(dev, "rmsnorm_bwd", t, err);
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
    return submit(dev, s, "rmsnorm_bwd", l->rmsnorm_bwd, &a, sizeof a, err);
}

static size_t front_rmsnorm_bwd_workspace(struct device *dev, enum dtype t, int64_t r, int64_t d)
{
    const struct loops *l = loops_of(dev, t);
    return l ? l->rmsnorm_bwd_workspace(r, d) : 0;
}

static int front_rope(struct device *dev, struct stream *s, enum dtype t, void *x, const void *cos,
                      const void *sin, const int32_t *positions, int64_t r, int64_t seq_len,
                      int64_t heads, int64_t e, bool backward, struct error *err)
{
    const struct loops *l = loops_of(dev, t);
    if (!l) {
        return no_such_type(dev, "rope", t, err);
    }
    ASSERT(e % 2 == 0 && (positions || seq_len > 0));
    struct rope_args a = {.x = x,
                          .cos = cos,
                          .sin = sin,
                          .positions = positions,
                          .r = r,
                          .seq_len = seq_len,
                          .heads = heads,
                          .e = e,
                          .backward = backward};
    return submit(dev, s, "rope", l->rope, &a, sizeof a, err);
}

static void check_attention(const struct attention_args *a)
{
    ASSERT(a->b >= 0 && a->t >= 0 && a->e > 0 && a->kv > 0 && a->h % a->kv == 0);
    ASSERT(a->t <= INT32_MAX && a->h * a->e <= INT32_MAX);
}

static int front_attention_fwd(struct device *dev, struct stream *s, enum dtype t,
                               const struct attention_args *a, struct error *err)
{
    const struct loops *l = loops_of(dev, t);
    if (!l) {
        return no_such_type(dev, "attention_fwd", t, err);
    }
    check_attention(a);
    return submit(dev, s, "attention_fwd", l->attention_fwd, a, sizeof *a, err);
}

static int front_attention_bwd(struct device *dev, struct stream *s, enum dtype t,
                               const struct attention_args *a, struct error *err)
{
    const struct loops *l = loops_of(dev, t);
    if (!l) {
        return no_such_type(dev, "attention_bwd", t, err);
    }
    check_attention(a);
    return submit(dev, s, "attention_bwd", l->attention_bwd, a, sizeof *a, err);
}

static size_t front_attention_workspace(struct device *dev, enum dtype t, int64_t b,
                                        int64_t seq_len, int64_t h, int64_t kv, int64_t e)
{
    const struct loops *l = loops_of(dev, t);
    return l ? l->attention_workspace(dev->ops->num_threads(dev), b, seq_len, h, kv, e) : 0;
}

static int front_swiglu_fwd(struct device *dev, struct stream *s, enum dtype t, void *y,
                            const void *gate, const void *up, int64_t n, struct error *err)
{
    const struct loops *l = loops_of(dev, t);
    if (!l) {
        return no_such_type(dev, "swiglu_fwd", t, err);
    }
    struct swiglu_args a = {.y = y, .gate = gate, .up = up, .n = n};
    return submit(dev, s, "swiglu_fwd", l->swiglu_fwd, &a, sizeof a, err);
}

static int front_swiglu_bwd(struct device *dev, struct stream *s, enum dtype t, void *dgate,
                            void *dup, const void *dy, const void *gate, const void *up, int64_t n,
                            struct error *err)
{
    const struct loops *l = loops_of(dev, t);
    if (!l) {
        return no_such_type(dev, "swiglu_bwd", t, err);
    }
    struct swiglu_args a = {.gate = gate, .up = up, .dy = dy, .dgate = dgate, .dup = dup, .n = n};
    return submit(dev, s, "swiglu_bwd", l->swiglu_bwd, &a, sizeof a, err);
}

static int front_add(struct device *dev, struct stream *s, enum dtype t, void *y, const void *x,
                     const void *z, int64_t n, struct error *err)
{
    const struct loops *l = loops_of(dev, t);
    if (!l) {
        return no_such_type(dev, "add", t, err);
    }
    struct add_args a = {.y = y, .a = x, .b = z, .n = n};
    return submit(dev, s, "add", l->add, &a, sizeof a, err);
}

static int front_scale(struct device *dev, struct stream *s, enum dtype t, void *x, double factor,
                       int64_t n, struct error *err)
{
    const struct loops *l = loops_of(dev, t);
    if (!l) {
        return no_such_type(dev, "scale", t, err);
    }
    struct scale_args a = {.x = x, .factor = factor, .n = n};
    return submit(dev, s, "scale", l->scale, &a, sizeof a, err);
}

static int front_cross_entropy(struct device *dev, struct stream *s, enum dtype t, double *nll,
                               void *dlogits, const void *logits, const int32_t *targets,
                               double dloss, int64_t r, int64_t v, struct error *err)
{
    const struct loops *l = loops_of(dev, t);
    if (!l) {
        return no_such_type(dev, "cross_entropy", t, err);
    }
    struct cross_entropy_args a = {.nll = nll,
                                   .dlogits = dlogits,
                                   .logits = logits,
                                   .targets = targets,
                                   .dloss = dloss,
                                   .r = r,
                                   .v = v};
    return submit(dev, s, "cross_entropy", l->cross_entropy, &a, sizeof a, err);
}

static int front_sum_squares(struct device *dev, struct stream *s, enum dtype t, double *out,
                             const void *x, int64_t n, struct error *err)
{
    const struct loops *l = loops_of(dev, t);
    if (!l) {
        return no_such_type(dev, "sum_squares", t, err);
    }
    struct sum_args a = {.out = out, .x = x, .n = n};
    return submit(dev, s, "sum_squares", l->sum_squares, &a, sizeof a, err);
}

/* A step sums a few thousand losses: one plain order for every backend. */
static void sum_double_loop(struct pool *pool, const void *args)
{
    (void)pool;
    const struct sum_args *a = args;
    const double *x = a->x;
    double sum = 0;
    for (int64_t i = 0; i < a->n; i++) {
        sum += x[i];
    }
    *a->out = sum;
}

static int front_sum_double(struct device *dev, struct stream *s, double *out, const double *x,
                            int64_t n, struct error *err)
{
    struct sum_args a = {.out = out, .x = x, .n = n};
    return submit(dev, s, "sum_double", sum_double_loop, &a, sizeof a, err);
}

static int front_adamw(struct device *dev, struct stream *s, enum dtype t,
                       const struct adamw_args *a, struct error *err)
{
    const struct loops *l = loops_of(dev, t);
    if (!l) {
        return no_such_type(dev, "adamw", t, err);
    }
    return submit(dev, s, "adamw", l->adamw, a, sizeof *a, err);
}

static int front_sgd(struct device *dev, struct stream *s, enum dtype t, void *w, const void *g,
                     double lr, double decay, double grad_scale, int64_t n, struct error *err)
{
    const struct loops *l = loops_of(dev, t);
    if (!l) {
        return no_such_type(dev, "sgd", t, err);
    }
    struct sgd_args a = {
        .w = w, .g = g, .lr = lr, .decay = decay, .grad_scale = grad_scale, .n = n};
    return submit(dev, s, "sgd", l->sgd, &a, sizeof a, err);
}

static int front_cast(struct device *dev, struct stream *s, void *dst, enum dtype dst_t,
                      const void *src, enum dtype src_t, int64_t n, struct error *err)
{
    if (!cast_is_known(dst_t, src_t)) {
        return error_set(err, ERR_UNIMPLEMENTED, "cast: no conversion of type %d to type %d",
                         (int)src_t, (int)dst_t);
    }
    struct cast_args a = {.dst = dst, .src = src, .dst_t = dst_t, .src_t = src_t, .n = n};
    return submit(dev, s, "cast", cast_loop, &a, sizeof a, err);
}

/* One table a backend: the fronts are the same, the device brings the loops. */
#define HOST_KERNELS(backend)                                                                      \
    {                                                                                              \
        .name = backend, .gemm = front_gemm, .embed_fwd = front_embed_fwd,                         \
        .embed_bwd = front_embed_bwd, .rmsnorm_fwd = front_rmsnorm_fwd,                            \
        .rmsnorm_bwd = front_rmsnorm_bwd, .rmsnorm_bwd_workspace = front_rmsnorm_bwd_workspace,    \
        .rope = front_rope, .attention_fwd = front_attention_fwd,                                  \
        .attention_bwd = front_attention_bwd, .attention_workspace = front_attention_workspace,    \
        .swiglu_fwd = front_swiglu_fwd, .swiglu_bwd = front_swiglu_bwd, .add = front_add,          \
        .scale = front_scale, .cross_entropy = front_cross_entropy,                                \
        .sum_squares = front_sum_squares, .sum_double = front_sum_double, .adamw = front_adamw,    \
        .sgd = front_sgd, .cast = front_cast,                                                      \
    }

const struct kernels host_kernels_ref = HOST_KERNELS("ref");
const struct kernels host_kernels_cpu = HOST_KERNELS("cpu");
