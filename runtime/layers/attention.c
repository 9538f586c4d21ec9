/* The attention half of a block: mid = x + o_proj(attention(q, k, v)). Column-parallel q, k and v,
 * attention over this tensor rank's heads, row-parallel output. */
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
        .segments = m->input.segments,
        .o = a->o,
        .lse = a->lse,
        .workspace = m->workspace,
    };
}

static int project_in(struct model *m, int32_t l, struct error *err)
{
    const struct block_weights *w = &m->weights.blocks[l];
    struct block_acts *a = &m->acts[l];
    const void *x;
    void *v = acts_from_past(m, a->v, m->kv_heads * m->head_dim);
    if (stream_gather(m, &x, m->gathered, a->attn_normed, err) != 0 ||
        linear_forward(m, heads_q_in(m, a), x, &w->q, err) != 0 ||
        linear_forward(m, heads_k_in(m, a), x, &w->k, err) != 0 ||
        linear_forward(m, v, x, &w->v, err) != 0)
        return -1;
    return heads_forward(m, l, err);
}

int attention_forward(struct model *m, int32_t l, struct error *err)
{
    const struct block_weights *w = &m->weights.blocks[l];
    struct block_acts *a = &m->acts[l];
    const void *x = acts_residual(m, l);
    if (norm_forward(m, a->attn_normed, &a->attn_stats, x, &w->attn_norm, err) != 0 ||
        project_in(m, l, err) != 0)
        return -1;
    struct attention_args args = attention_args(m, a);
    void *o = acts_from_past(m, a->o, m->heads * m->head_dim);
    if (m->kernels->attention_fwd(m->dev, m->stream, m->dtype, &args, err) != 0)
        return -1;
    return stream_project(m, a->mid, x, o, &w->o, err);
}

/* From d_mid to d_q, d_k and d_v, as the matrices put q, k and v out. */
static int backward_heads(struct model *m, int32_t l, const void *d_mid, struct error *err)
{
    const struct block_weights *w = &m->weights.blocks[l];
    const struct block_acts *a = &m->acts[l];
    const void *d_out;
    if (stream_gather(m, &d_out, m->d_gathered, d_mid, err) != 0 ||
        linear_backward_input(m, m->d_o, d_out, &w->o, false, err) != 0)
        return -1;
    struct attention_args args = attention_args(m, a);
    args.d_o = m->d_o;
    args.dq = m->d_q;
    args.dk = m->d_k;
    args.dv = m->d_v;
    if (m->kernels->attention_bwd(m->dev, m->stream, m->dtype, &args, err) != 0)
        return -1;
    return heads_backward(m, l, err);
}

int attention_backward_input(struct model *m, int32_t l, void *d_in, const void *d_mid,
                             struct error *err)
{
    const struct block_weights *w = &m->weights.blocks[l];
    const struct block_acts *a = &m->acts[l];
    if (backward_heads(m, l, d_mid, err) != 0 ||
        linear_backward_input(m, m->d_normed_part, m->d_q, &w->q, false, err) != 0 ||
        linear_backward_input(m, m->d_normed_part, m->d_k, &w->k, true, err) != 0 ||
        linear_backward_input(m, m->d_normed_part, m->d_v, &w->v, true, err) != 0 ||
        stream_sum_gradient(m, err) != 0)
        return -1;
    /* Two ways lead to x: past the attention, and through it. */
    size_t bytes = (size_t)(stream_own_rows(m) * m->hidden) * dtype_size(m->dtype);
    if (m->dev->ops->copy(m->dev, m->stream, d_in, d_mid, bytes, COPY_ON_DEVICE, err) != 0)
        return -1;
    return norm_backward(m, d_in, m->d_normed, acts_residual(m, l), &a->attn_stats, &w->attn_norm,
                         true, err);
}

int attention_backward_weight(struct model *m, int32_t l, const void *d_mid, struct error *err)
{
    const struct block_weights *w = &m->weights.blocks[l];
    const struct block_acts *a = &m->acts[l];
    const void *x, *d_out = m->d_gathered != NULL ? m->d_gathered : d_mid;
    if (linear_backward_weight(m, &w->o.w, d_out, a->o, err) != 0 ||
        stream_backward_bias(m, &w->o.b, d_mid, err) != 0 ||
        stream_gather(m, &x, m->gathered, a->attn_normed, err) != 0 ||
        linear_backward_layer(m, &w->q, m->d_q, x, err) != 0 ||
        linear_backward_layer(m, &w->k, m->d_k, x, err) != 0)
        return -1;
    return linear_backward_layer(m, &w->v, m->d_v, x, err);
}
