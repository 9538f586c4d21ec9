/* Cross entropy over the logits; where the vocabulary is cut over the tensor ranks, in three parts
 * between which the ranks' maxima and sums meet. The gradient takes the logits' place. */
#include "runtime/layers/layers.h"

static int of_whole_vocabulary(struct model *m, void *d_logits, double dloss, struct error *err)
{
    return m->kernels->cross_entropy(m->dev, m->stream, m->dtype, m->nll, d_logits, m->logits,
                                     m->input.targets, dloss, m->rows, m->vocab, m->logits_ld, err);
}

static int of_cut_vocabulary(struct model *m, void *d_logits, double dloss, struct error *err)
{
    const struct kernels *k = m->kernels;
    const struct logits_part part = {
        .logits = m->logits,
        .r = m->rows,
        .ld = m->logits_ld,
        .valid = m->vocab_valid,
        .first = m->vocab_first,
        .targets = m->input.targets,
    };
    double *max = m->ce_words, *sums = max + m->rows;
    stream_say(m);
    if (k->ce_max(m->dev, m->stream, m->dtype, max, &part, err) != 0 ||
        tp_reduce_words(&m->tp, max, m->rows, COMM_MAX, err) != 0 ||
        k->ce_sum(m->dev, m->stream, m->dtype, sums, max, &part, err) != 0)
        return -1;
    stream_say(m);
    if (tp_reduce_words(&m->tp, sums, 2 * m->rows, COMM_SUM, err) != 0)
        return -1;
    return k->ce_finish(m->dev, m->stream, m->dtype, m->nll, d_logits, max, sums, dloss, &part,
                        err);
}

int loss_forward(struct model *m, double dloss, double *loss_sum, struct error *err)
{
    void *d_logits = m->trains ? m->logits : NULL;
    int rc = m->tp.size > 1 ? of_cut_vocabulary(m, d_logits, dloss, err)
                            : of_whole_vocabulary(m, d_logits, dloss, err);
    if (rc != 0 || m->kernels->sum_double(m->dev, m->stream, m->nll_sum, m->nll, m->rows, err) != 0)
        return -1;
    return m->kernels->add(m->dev, m->stream, DTYPE_F64, loss_sum, loss_sum, m->nll_sum, 1, err);
}
