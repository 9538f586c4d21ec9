/* The MLP half of a block: out = mid + down(silu(gate) * up), or mid + down(gelu(up)) where there
 * is no gate. Column-parallel gate and up, row-parallel down. */
#include "runtime/layers/layers.h"

/* act [R,F] of x [R,D]. */
static int expand(struct model *m, const struct block_acts *a, const void *x,
                  const struct block_weights *w, struct error *err)
{
    if (!m->gated)
        return linear_forward_gelu(m, a->act, a->up, x, &w->up, err);
    if (linear_forward(m, a->gate, x, &w->gate, err) != 0 ||
        linear_forward(m, a->up, x, &w->up, err) != 0)
        return -1;
    return m->kernels->swiglu_fwd(m->dev, m->stream, m->dtype, a->act, a->gate, a->up,
                                  m->rows * m->ffn, err);
}

/* Where up's gradient is: in up's place, or where that of act would be. */
static void *d_up(const struct model *m, const struct block_acts *a)
{
    return m->gated ? a->up : m->d_act;
}

/* From d_out [R,D] to the gradients of gate and up. */
static int expand_backward(struct model *m, const struct block_acts *a, const void *d_out,
                           const struct block_weights *w, struct error *err)
{
    if (!m->gated)
        return linear_backward_gelu(m, m->d_act, d_out, &w->down, a->up, err);
    if (linear_backward_input(m, m->d_act, d_out, &w->down, false, err) != 0)
        return -1;
    return m->kernels->swiglu_bwd(m->dev, m->stream, m->dtype, a->gate, a->up, m->d_act, a->gate,
                                  a->up, m->rows * m->ffn, err);
}

int mlp_forward(struct model *m, int32_t l, struct error *err)
{
    const struct block_weights *w = &m->weights.blocks[l];
    struct block_acts *a = &m->acts[l];
    void *out = acts_residual(m, l + 1);
    const void *x;
    if (norm_forward(m, a->mlp_normed, &a->mlp_stats, a->mid, &w->mlp_norm, err) != 0 ||
        stream_gather(m, &x, m->gathered, a->mlp_normed, err) != 0 || expand(m, a, x, w, err) != 0)
        return -1;
    return stream_project(m, out, a->mid, a->act, &w->down, err);
}

int mlp_backward_input(struct model *m, int32_t l, void *d_mid, const void *d_out,
                       struct error *err)
{
    const struct block_weights *w = &m->weights.blocks[l];
    struct block_acts *a = &m->acts[l];
    const void *d_all;
    if (stream_gather(m, &d_all, m->d_gathered, d_out, err) != 0 ||
        expand_backward(m, a, d_all, w, err) != 0 ||
        (m->gated &&
         linear_backward_input(m, m->d_normed_part, a->gate, &w->gate, false, err) != 0) ||
        linear_backward_input(m, m->d_normed_part, d_up(m, a), &w->up, m->gated, err) != 0 ||
        stream_sum_gradient(m, err) != 0)
        return -1;
    /* Two ways lead to mid: past the MLP, and through it. */
    size_t bytes = (size_t)(stream_own_rows(m) * m->hidden) * dtype_size(m->dtype);
    if (m->dev->ops->copy(m->dev, m->stream, d_mid, d_out, bytes, COPY_ON_DEVICE, err) != 0)
        return -1;
    return norm_backward(m, d_mid, m->d_normed, a->mid, &a->mlp_stats, &w->mlp_norm, true, err);
}

int mlp_backward_weight(struct model *m, int32_t l, const void *d_out, struct error *err)
{
    const struct block_weights *w = &m->weights.blocks[l];
    const struct block_acts *a = &m->acts[l];
    const void *x, *d_all = m->d_gathered != NULL ? m->d_gathered : d_out;
    if (linear_backward_weight(m, &w->down.w, d_all, a->act, err) != 0 ||
        stream_backward_bias(m, &w->down.b, d_out, err) != 0 ||
        stream_gather(m, &x, m->gathered, a->mlp_normed, err) != 0 ||
        (m->gated && linear_backward_layer(m, &w->gate, a->gate, x, err) != 0))
        return -1;
    return linear_backward_layer(m, &w->up, d_up(m, a), x, err);
}
