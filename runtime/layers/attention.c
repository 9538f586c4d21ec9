/* The attention half of a block: mid = x + o_proj(attention(rope(q), rope(k), v)). */
#include "runtime/layers/layers.h"

#include <math.h>

static struct attention_args attention_args(const struct model *m, const struct block_acts *a)
{
    return (struct attention_args){
        .b = m->batch,
        /* All positions so far. A span wants its own rows only, but has the older queries answered
         * again: next to the matrix products that is little. */
        .t = (m->past + m->rows) / m->batch,
        .h = m->heads,
        .kv = m->kv_heads,
        .e = m->head_dim,
        .scale = 1.0 / sqrt((double)m->head_dim),
        .q = a->q,
        .k = a->k,
        .v = a->v,
        .o = a->o,
        .lse = a->lse,
        .workspace = m->workspace,
    };
}

/* q [R,H,E] and k [R,K,E], in place; backward turns gradients the other way. */
static int rotate(struct model *m, void *q, void *k, bool backward, struct error *err)
{
    const int32_t *positions = m->past > 0 ? m->positions + m->past : NULL;
    if (m->kernels->rope(m->dev, m->stream, m->dtype, q, m->rope_cos, m->rope_sin, positions,
                         m->rows, m->seq_len, m->heads, m->head_dim, backward, err) != 0)
        return -1;
    return m->kernels->rope(m->dev, m->stream, m->dtype, k, m->rope_cos, m->rope_sin, positions,
                            m->rows, m->seq_len, m->kv_heads, m->head_dim, backward, err);
}

int attention_forward(struct model *m, int32_t l, struct error *err)
{
    const struct block_weights *w = &m->weights.blocks[l];
    struct block_acts *a = &m->acts[l];
    const void *x = acts_residual(m, l);
    int64_t q_width = m->heads * m->head_dim, kv_width = m->kv_heads * m->head_dim;
    void *q = acts_from_past(m, a->q, q_width);
    void *k = acts_from_past(m, a->k, kv_width);
    void *v = acts_from_past(m, a->v, kv_width);
    void *o = acts_from_past(m, a->o, q_width);
    if (norm_forward(m, a->attn_normed, a->attn_rstd, x, &w->attn_norm, err) != 0 ||
        linear_forward(m, q, a->attn_normed, &w->q, err) != 0 ||
        linear_forward(m, k, a->attn_normed, &w->k, err) != 0 ||
        linear_forward(m, v, a->attn_normed, &w->v, err) != 0 || rotate(m, q, k, false, err) != 0)
        return -1;
    struct attention_args args = attention_args(m, a);
    if (m->kernels->attention_fwd(m->dev, m->stream, m->dtype, &args, err) != 0 ||
        linear_forward(m, a->mid, o, &w->o, err) != 0)
        return -1;
    return m->kernels->add(m->dev, m->stream, m->dtype, a->mid, a->mid, x, m->rows * m->hidden,
                           err);
}

int attention_backward_input(struct model *m, int32_t l, void *d_in, const void *d_mid,
                             struct error *err)
{
    const struct block_weights *w = &m->weights.blocks[l];
    const struct block_acts *a = &m->acts[l];
    if (linear_backward_input(m, m->d_o, d_mid, &w->o, false, err) != 0)
        return -1;
    struct attention_args args = attention_args(m, a);
    args.d_o = m->d_o;
    args.dq = m->d_q;
    args.dk = m->d_k;
    args.dv = m->d_v;
    if (m->kernels->attention_bwd(m->dev, m->stream, m->dtype, &args, err) != 0 ||
        rotate(m, m->d_q, m->d_k, true, err) != 0 ||
        linear_backward_input(m, m->d_normed, m->d_q, &w->q, false, err) != 0 ||
        linear_backward_input(m, m->d_normed, m->d_k, &w->k, true, err) != 0 ||
        linear_backward_input(m, m->d_normed, m->d_v, &w->v, true, err) != 0)
        return -1;
    /* Two ways lead to x: past the attention, and through it. */
    size_t bytes = (size_t)(m->rows * m->hidden) * dtype_size(m->dtype);
    if (m->dev->ops->copy(m->dev, m->stream, d_in, d_mid, bytes, COPY_ON_DEVICE, err) != 0)
        return -1;
    return norm_backward(m, d_in, m->d_normed, acts_residual(m, l), a->attn_rstd, &w->attn_norm,
                         true, err);
}

int attention_backward_weight(struct model *m, int32_t l, const void *d_mid, struct error *err)
{
    const struct block_weights *w = &m->weights.blocks[l];
    const struct block_acts *a = &m->acts[l];
    if (linear_backward_weight(m, &w->o, d_mid, a->o, err) != 0 ||
        linear_backward_weight(m, &w->q, m->d_q, a->attn_normed, err) != 0 ||
        linear_backward_weight(m, &w->k, m->d_k, a->attn_normed, err) != 0)
        return -1;
    return linear_backward_weight(m, &w->v, m->d_v, a->attn_normed, err);
}
