/* Unit L+1: final norm, logits, and the loss where there are targets. */
#include "runtime/layers/layers.h"

int head_forward(struct model *m, double dloss, double *loss_sum, struct error *err)
{
    if (norm_forward(m, m->final_normed, m->final_rstd, acts_residual(m, m->num_layers),
                     &m->weights.final_norm, err) != 0 ||
        linear_forward(m, m->logits, m->final_normed, &m->weights.head, err) != 0)
        return -1;
    if (m->targets == NULL)
        return 0;
    /* The gradient takes the logits' place. */
    void *d_logits = acts_keep_all(m) ? m->logits : NULL;
    if (m->kernels->cross_entropy(m->dev, m->stream, m->dtype, m->nll, d_logits, m->logits,
                                  m->targets, dloss, m->rows, m->vocab, err) != 0 ||
        m->kernels->sum_double(m->dev, m->stream, m->nll_sum, m->nll, m->rows, err) != 0)
        return -1;
    return m->kernels->add(m->dev, m->stream, DTYPE_F64, loss_sum, loss_sum, m->nll_sum, 1, err);
}

int head_backward_input(struct model *m, void *d_in, struct error *err)
{
    if (linear_backward_input(m, m->d_normed, m->logits, &m->weights.head, false, err) != 0)
        return -1;
    return norm_backward(m, d_in, m->d_normed, acts_residual(m, m->num_layers), m->final_rstd,
                         &m->weights.final_norm, false, err);
}

int head_backward_weight(struct model *m, struct error *err)
{
    return linear_backward_weight(m, &m->weights.head, m->logits, m->final_normed, err);
}
