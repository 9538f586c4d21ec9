/* The table, and the operations that stand for themselves. */
#include "kernels/cuda/front.h"

#include "kernels/cuda/cudnn.h"
#include "kernels/cuda/gemm.h"

bool front_has_type(const char *op, enum dtype t, struct error *err)
{
    if (t == DTYPE_F32 || t == DTYPE_BF16) {
        return true;
    }
    error_set(err, ERR_UNIMPLEMENTED, "%s: backend cuda has no type %d", op, (int)t);
    return false;
}

/* Words of a step are doubles; they are added and scaled like anything else. */
static bool has_type_or_f64(const char *op, enum dtype t, struct error *err)
{
    return t == DTYPE_F64 || front_has_type(op, t, err);
}

static int embed_fwd(struct device *dev, struct stream *s, enum dtype t, void *y, const void *w,
                     const int32_t *ids, int64_t first, int64_t r, int64_t v, int64_t d,
                     struct error *err)
{
    if (!front_has_type("embed_fwd", t, err)) {
        return -1;
    }
    return FRONT_LAUNCH("embed_fwd", dev, cuda_embed_fwd(s->cuda, t, y, w, ids, first, r, v, d));
}

static int embed_bwd(struct device *dev, struct stream *s, enum dtype t, void *dw, const void *dy,
                     const int32_t *ids, int64_t first, int64_t r, int64_t v, int64_t d,
                     void *workspace, struct error *err)
{
    if (!front_has_type("embed_bwd", t, err)) {
        return -1;
    }
    return FRONT_LAUNCH("embed_bwd", dev,
                        cuda_embed_bwd(s->cuda, t, dw, dy, ids, first, r, v, d, workspace));
}

static size_t embed_bwd_workspace(struct device *dev, enum dtype t, int64_t r, int64_t v, int64_t d)
{
    (void)dev;
    (void)t;
    (void)v;
    return workspace_cuda_embed_bwd(r, d);
}

static int rope(struct device *dev, struct stream *s, enum dtype t, void *x, const void *cos,
                const void *sin, const int32_t *positions, int64_t r, int64_t seq_len,
                int64_t heads, int64_t e, bool backward, struct error *err)
{
    if (!front_has_type("rope", t, err)) {
        return -1;
    }
    ASSERT(e % 2 == 0 && (positions || seq_len > 0));
    return FRONT_LAUNCH(
        "rope", dev, cuda_rope(s->cuda, t, x, cos, sin, positions, r, seq_len, heads, e, backward));
}

static int attention(const char *op, struct device *dev, struct stream *s, enum dtype t,
                     const struct attention_args *a, bool backward, struct error *err)
{
    if (!front_has_type(op, t, err) || cuda_use(dev, err) != 0) {
        return -1;
    }
    if (cudnn_attention(cuda_of(dev)->cudnn, s->cuda, t, a, backward)) {
        return 0;
    }
    return front_launched(
        op, backward ? cuda_attention_bwd(s->cuda, t, a) : cuda_attention_fwd(s->cuda, t, a), err);
}

static int attention_fwd(struct device *dev, struct stream *s, enum dtype t,
                         const struct attention_args *a, struct error *err)
{
    return attention("attention_fwd", dev, s, t, a, false, err);
}

static int attention_bwd(struct device *dev, struct stream *s, enum dtype t,
                         const struct attention_args *a, struct error *err)
{
    return attention("attention_bwd", dev, s, t, a, true, err);
}

/* Asked when a model is opened: so this is where cuDNN makes its plans. Its own workspace comes on
 * top. */
static size_t attention_workspace(struct device *dev, enum dtype t, int64_t b, int64_t seq_len,
                                  int64_t h, int64_t kv, int64_t e)
{
    struct cuda_device *d = cuda_of(dev);
    struct attention_args a = {.b = b, .t = seq_len, .h = h, .kv = kv, .e = e};
    if (t == DTYPE_BF16 && cuda_use(dev, NULL) == 0) {
        if (!d->asked_for_cudnn) {
            d->asked_for_cudnn = true;
            d->cudnn = cudnn_open();
        }
        cudnn_prepare(d->cudnn, t, &a);
    }
    return workspace_cuda_attention(b, seq_len, h, kv, e);
}

static int swiglu_fwd(struct device *dev, struct stream *s, enum dtype t, void *y, const void *gate,
                      const void *up, int64_t n, struct error *err)
{
    if (!front_has_type("swiglu_fwd", t, err)) {
        return -1;
    }
    return FRONT_LAUNCH("swiglu_fwd", dev, cuda_swiglu_fwd(s->cuda, t, y, gate, up, n));
}

static int swiglu_bwd(struct device *dev, struct stream *s, enum dtype t, void *dgate, void *dup,
                      const void *dy, const void *gate, const void *up, int64_t n,
                      struct error *err)
{
    if (!front_has_type("swiglu_bwd", t, err)) {
        return -1;
    }
    return FRONT_LAUNCH("swiglu_bwd", dev,
                        cuda_swiglu_bwd(s->cuda, t, dgate, dup, dy, gate, up, n));
}

static int gelu_fwd(struct device *dev, struct stream *s, enum dtype t, void *y, const void *x,
                    int64_t n, struct error *err)
{
    if (!front_has_type("gelu_fwd", t, err)) {
        return -1;
    }
    return FRONT_LAUNCH("gelu_fwd", dev, cuda_gelu_fwd(s->cuda, t, y, x, n));
}

static int gelu_bwd(struct device *dev, struct stream *s, enum dtype t, void *dx, const void *dy,
                    const void *x, int64_t n, struct error *err)
{
    if (!front_has_type("gelu_bwd", t, err)) {
        return -1;
    }
    return FRONT_LAUNCH("gelu_bwd", dev, cuda_gelu_bwd(s->cuda, t, dx, dy, x, n));
}

static int add_bias(struct device *dev, struct stream *s, enum dtype t, void *y, const void *b,
                    int64_t r, int64_t n, struct error *err)
{
    if (!front_has_type("add_bias", t, err)) {
        return -1;
    }
    return FRONT_LAUNCH("add_bias", dev, cuda_add_bias(s->cuda, t, y, b, r, n));
}

static int column_sum(struct device *dev, struct stream *s, enum dtype t, void *db, const void *dy,
                      int64_t r, int64_t n, struct error *err)
{
    if (!front_has_type("column_sum", t, err)) {
        return -1;
    }
    return FRONT_LAUNCH("column_sum", dev,
                        cuda_column_sum(s->cuda, t, db, dy, r, n, s->column_parts));
}

static int add(struct device *dev, struct stream *s, enum dtype t, void *y, const void *a,
               const void *b, int64_t n, struct error *err)
{
    if (!has_type_or_f64("add", t, err)) {
        return -1;
    }
    return FRONT_LAUNCH("add", dev, cuda_add(s->cuda, t, y, a, b, n));
}

static int scale(struct device *dev, struct stream *s, enum dtype t, void *x, double factor,
                 int64_t n, struct error *err)
{
    if (!has_type_or_f64("scale", t, err)) {
        return -1;
    }
    return FRONT_LAUNCH("scale", dev, cuda_scale(s->cuda, t, x, factor, n));
}

static int cast(struct device *dev, struct stream *s, void *dst, enum dtype dst_t, const void *src,
                enum dtype src_t, int64_t n, struct error *err)
{
    cudaError_t e;
    if (cuda_use(dev, err) != 0) {
        return -1;
    }
    e = cuda_cast(s->cuda, dst, dst_t, src, src_t, n);
    if (e == cudaErrorInvalidValue) {
        cudaGetLastError();
        return error_set(err, ERR_UNIMPLEMENTED, "cast: no conversion of type %d to type %d",
                         (int)src_t, (int)dst_t);
    }
    return front_launched("cast", e, err);
}

const struct kernels cuda_kernels = {
    .name = "cuda",
    .gemm = cuda_gemm,
    .embed_fwd = embed_fwd,
    .embed_bwd = embed_bwd,
    .embed_bwd_workspace = embed_bwd_workspace,
    .rmsnorm_fwd = front_rmsnorm_fwd,
    .rmsnorm_bwd = front_rmsnorm_bwd,
    .rmsnorm_bwd_workspace = front_rmsnorm_bwd_workspace,
    .layernorm_fwd = front_layernorm_fwd,
    .layernorm_bwd = front_layernorm_bwd,
    .layernorm_bwd_workspace = front_layernorm_bwd_workspace,
    .rope = rope,
    .attention_fwd = attention_fwd,
    .attention_bwd = attention_bwd,
    .attention_workspace = attention_workspace,
    .swiglu_fwd = swiglu_fwd,
    .swiglu_bwd = swiglu_bwd,
    .gelu_fwd = gelu_fwd,
    .gelu_bwd = gelu_bwd,
    .add_bias = add_bias,
    .column_sum = column_sum,
    .add = add,
    .scale = scale,
    .cross_entropy = front_cross_entropy,
    .ce_max = front_ce_max,
    .ce_sum = front_ce_sum,
    .ce_finish = front_ce_finish,
    .sum_squares = front_sum_squares,
    .sum_squares_workspace = front_sum_squares_workspace,
    .sum_double = front_sum_double,
    .clip = front_clip,
    .adamw = front_adamw,
    .sgd = front_sgd,
    .cast = cast,
};
