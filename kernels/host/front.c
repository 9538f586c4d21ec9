/* The tables of operations of the host backends, and the fronts of most of them. */
#include "kernels/host/front.h"

static int front_gemm(struct device *dev, struct stream *s, enum dtype t, const struct gemm_args *a,
                      struct error *err)
{
    const struct loops *l = front_loops(dev, t);
    if (!l) {
        return front_no_such_type(dev, "gemm", t, err);
    }
    ASSERT(a->m >= 0 && a->n >= 0 && a->k >= 0);
    ASSERT(a->lda >= (a->trans_a ? a->m : a->k));
    ASSERT(a->ldb >= (a->trans_b ? a->k : a->n));
    ASSERT(a->ldc >= a->n);
    ASSERT(a->c_type == t || a->c_type == dtype_wide(t));
    ASSERT(!a->gelu || !a->gelu_of);
    ASSERT(a->lda <= INT32_MAX && a->ldb <= INT32_MAX && a->ldc <= INT32_MAX);
    ASSERT(a->m <= INT32_MAX && a->n <= INT32_MAX && a->k <= INT32_MAX);
    return front_submit(dev, s, "gemm", l->gemm, a, sizeof *a, err);
}

static int front_embed_fwd(struct device *dev, struct stream *s, enum dtype t, void *y,
                           const void *w, const int32_t *ids, int64_t first, int64_t r, int64_t v,
                           int64_t d, struct error *err)
{
    const struct loops *l = front_loops(dev, t);
    if (!l) {
        return front_no_such_type(dev, "embed_fwd", t, err);
    }
    struct embed_args a = {.out = y, .in = w, .ids = ids, .first = first, .r = r, .v = v, .d = d};
    return front_submit(dev, s, "embed_fwd", l->embed_fwd, &a, sizeof a, err);
}

static int front_embed_bwd(struct device *dev, struct stream *s, enum dtype t, void *dw,
                           const void *dy, const int32_t *ids, int64_t first, int64_t r, int64_t v,
                           int64_t d, void *workspace, struct error *err)
{
    (void)workspace;
    const struct loops *l = front_loops(dev, t);
    if (!l) {
        return front_no_such_type(dev, "embed_bwd", t, err);
    }
    struct embed_args a = {.out = dw, .in = dy, .ids = ids, .first = first, .r = r, .v = v, .d = d};
    return front_submit(dev, s, "embed_bwd", l->embed_bwd, &a, sizeof a, err);
}

static size_t front_embed_bwd_workspace(struct device *dev, enum dtype t, int64_t r, int64_t v,
                                        int64_t d)
{
    (void)dev;
    (void)t;
    (void)r;
    (void)v;
    (void)d;
    return 0;
}

static int front_rope(struct device *dev, struct stream *s, enum dtype t, void *x, const void *cos,
                      const void *sin, const int32_t *positions, int64_t r, int64_t seq_len,
                      int64_t heads, int64_t e, bool backward, struct error *err)
{
    const struct loops *l = front_loops(dev, t);
    if (!l) {
        return front_no_such_type(dev, "rope", t, err);
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
    return front_submit(dev, s, "rope", l->rope, &a, sizeof a, err);
}

static void check_attention(const struct attention_args *a)
{
    ASSERT(a->b >= 0 && a->t >= 0 && a->e > 0 && a->kv > 0 && a->h % a->kv == 0);
    ASSERT(a->t <= INT32_MAX && a->h * a->e <= INT32_MAX);
}

static int front_attention_fwd(struct device *dev, struct stream *s, enum dtype t,
                               const struct attention_args *a, struct error *err)
{
    const struct loops *l = front_loops(dev, t);
    if (!l) {
        return front_no_such_type(dev, "attention_fwd", t, err);
    }
    check_attention(a);
    return front_submit(dev, s, "attention_fwd", l->attention_fwd, a, sizeof *a, err);
}

static int front_attention_bwd(struct device *dev, struct stream *s, enum dtype t,
                               const struct attention_args *a, struct error *err)
{
    const struct loops *l = front_loops(dev, t);
    if (!l) {
        return front_no_such_type(dev, "attention_bwd", t, err);
    }
    check_attention(a);
    return front_submit(dev, s, "attention_bwd", l->attention_bwd, a, sizeof *a, err);
}

static size_t front_attention_workspace(struct device *dev, enum dtype t, int64_t b,
                                        int64_t seq_len, int64_t h, int64_t kv, int64_t e)
{
    const struct loops *l = front_loops(dev, t);
    return l ? l->attention_workspace(dev->ops->num_threads(dev), b, seq_len, h, kv, e) : 0;
}

static int front_add(struct device *dev, struct stream *s, enum dtype t, void *y, const void *x,
                     const void *z, int64_t n, struct error *err)
{
    const struct loops *l = front_loops(dev, t);
    if (!l) {
        return front_no_such_type(dev, "add", t, err);
    }
    struct add_args a = {.y = y, .a = x, .b = z, .n = n};
    return front_submit(dev, s, "add", l->add, &a, sizeof a, err);
}

static int front_scale(struct device *dev, struct stream *s, enum dtype t, void *x, double factor,
                       int64_t n, struct error *err)
{
    const struct loops *l = front_loops(dev, t);
    if (!l) {
        return front_no_such_type(dev, "scale", t, err);
    }
    struct scale_args a = {.x = x, .factor = factor, .n = n};
    return front_submit(dev, s, "scale", l->scale, &a, sizeof a, err);
}

static int front_cast(struct device *dev, struct stream *s, void *dst, enum dtype dst_t,
                      const void *src, enum dtype src_t, int64_t n, struct error *err)
{
    if (!cast_is_known(dst_t, src_t)) {
        return error_set(err, ERR_UNIMPLEMENTED, "cast: no conversion of type %d to type %d",
                         (int)src_t, (int)dst_t);
    }
    struct cast_args a = {.dst = dst, .src = src, .dst_t = dst_t, .src_t = src_t, .n = n};
    return front_submit(dev, s, "cast", cast_loop, &a, sizeof a, err);
}

/* One table a backend: the fronts are the same, the device brings the loops. */
#define HOST_KERNELS(backend)                                                                      \
    {                                                                                              \
        .name = backend, .gemm = front_gemm, .embed_fwd = front_embed_fwd,                         \
        .embed_bwd = front_embed_bwd, .embed_bwd_workspace = front_embed_bwd_workspace,            \
        .rmsnorm_fwd = front_rmsnorm_fwd, .rmsnorm_bwd = front_rmsnorm_bwd,                        \
        .rmsnorm_bwd_workspace = front_rmsnorm_bwd_workspace,                                      \
        .layernorm_fwd = front_layernorm_fwd, .layernorm_bwd = front_layernorm_bwd,                \
        .layernorm_bwd_workspace = front_layernorm_bwd_workspace, .rope = front_rope,              \
        .attention_fwd = front_attention_fwd, .attention_bwd = front_attention_bwd,                \
        .attention_workspace = front_attention_workspace, .swiglu_fwd = front_swiglu_fwd,          \
        .swiglu_bwd = front_swiglu_bwd, .gelu_fwd = front_gelu_fwd, .gelu_bwd = front_gelu_bwd,    \
        .add_bias = front_add_bias, .column_sum = front_column_sum, .add = front_add,              \
        .scale = front_scale, .cross_entropy = front_cross_entropy, .ce_max = front_ce_max,        \
        .ce_sum = front_ce_sum, .ce_finish = front_ce_finish, .sum_squares = front_sum_squares,    \
        .sum_squares_workspace = front_sum_squares_workspace, .sum_double = front_sum_double,      \
        .clip = front_clip, .adamw = front_adamw, .sgd = front_sgd, .cast = front_cast,            \
    }

const struct kernels host_kernels_ref = HOST_KERNELS("ref");
const struct kernels host_kernels_cpu = HOST_KERNELS("cpu");
