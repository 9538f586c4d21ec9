/* Unit L+1: final norm, logits of this tensor rank's part of the vocabulary, and the loss where
 * there are targets. */
#include "runtime/layers/layers.h"

int head_forward(struct model *m, double dloss, double *loss_sum, struct error *err)
{
    const struct layer head = {.w = m->weights.head};
    const void *x;
    if (norm_forward(m, m->final_normed, &m->final_stats, acts_residual(m, m->num_layers),
                     &m->weights.final_norm, err) != 0 ||
        stream_gather(m, &x, m->gathered, m->final_normed, err) != 0 ||
        linear_forward(m, m->logits, x, &head, err) != 0)
        return -1;
    return m->input.targets != NULL ? loss_forward(m, dloss, loss_sum, err) : 0;
}

int head_backward_input(struct model *m, void *d_in, struct error *err)
{
    const struct layer head = {.w = m->weights.head};
    if (linear_backward_input(m, m->d_normed_part, m->logits, &head, false, err) != 0 ||
        stream_sum_gradient(m, err) != 0)
        return -1;
    return norm_backward(m, d_in, m->d_normed, acts_residual(m, m->num_layers), &m->final_stats,
                         &m->weights.final_norm, false, err);
}

int head_backward_weight(struct model *m, struct error *err)
{
    const void *x;
    if (stream_gather(m, &x, m->gathered, m->final_normed, err) != 0)
        return -1;
    return linear_backward_weight(m, &m->weights.head, m->logits, x, err);
}
