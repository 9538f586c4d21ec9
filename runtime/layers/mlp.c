/* The MLP half of a block: out = mid + down(silu(gate) * up). */
#include "runtime/layers/layers.h"

int mlp_forward(struct model *m, int32_t l, struct error *err)
{
    const struct block_weights *w = &m->weights.blocks[l];
    struct block_acts *a = &m->acts[l];
    void *out = acts_residual(m, l + 1);
    if (norm_forward(m, a->mlp_normed, a->mlp_rstd, a->mid, &w->mlp_norm, err) != 0 ||
        linear_forward(m, a->gate, a->mlp_normed, &w->gate, err) != 0 ||
        linear_forward(m, a->up, a->mlp_normed, &w->up, err) != 0 ||
        m->kernels->swiglu_fwd(m->dev, m->stream, m->dtype, a->act, a->gate, a->up,
                               m->rows * m->ffn, err) != 0 ||
        linear_forward(m, out, a->act, &w->down, err) != 0)
        return -1;
    return m->kernels->add(m->dev, m->stream, m->dtype, out, out, a->mid, m->rows * m->hidden, err);
}

int mlp_backward_input(struct model *m, int32_t l, void *d_mid, const void *d_out,
                       struct error *err)
{
    const struct block_weights *w = &m->weights.blocks[l];
    struct block_acts *a = &m->acts[l];
    if (linear_backward_input(m, m->d_act, d_out, &w->down, false, err) != 0 ||
        m->kernels->swiglu_bwd(m->dev, m->stream, m->dtype, a->gate, a->up, m->d_act, a->gate,
                               a->up, m->rows * m->ffn, err) != 0 ||
        linear_backward_input(m, m->d_normed, a->gate, &w->gate, false, err) != 0 ||
        linear_backward_input(m, m->d_normed, a->up, &w->up, true, err) != 0)
        return -1;
    /* Two ways lead to mid: past the MLP, and through it. */
    size_t bytes = (size_t)(m->rows * m->hidden) * dtype_size(m->dtype);
    if (m->dev->ops->copy(m->dev, m->stream, d_mid, d_out, bytes, COPY_ON_DEVICE, err) != 0)
        return -1;
    return norm_backward(m, d_mid, m->d_normed, a->mid, a->mlp_rstd, &w->mlp_norm, true, err);
}

int mlp_backward_weight(struct model *m, int32_t l, const void *d_out, struct error *err)
{
    const struct block_weights *w = &m->weights.blocks[l];
    const struct block_acts *a = &m->acts[l];
    if (linear_backward_weight(m, &w->down, d_out, a->act, err) != 0 ||
        linear_backward_weight(m, &w->gate, a->gate, a->mlp_normed, err) != 0)
        return -1;
    return linear_backward_weight(m, &w->up, a->up, a->mlp_normed, err);
}
