/* Unit 0: token ids to rows of the embedding, and learned positions where the family has them. A
 * rank's part of the vocabulary gives zero rows for the ids of the others. */
#include "runtime/layers/layers.h"

/* The positions' rows, added to sum. */
static int add_positions(struct model *m, void *out, const void *sum, struct error *err)
{
    int64_t rows = stream_own_rows(m);
    const int32_t *ids = positions_of_rows(m) + tp_first_row(&m->tp, m->rows);
    void *own = m->acts[0].attn_normed; /* block 0 comes next and hasn't begun */
    if (m->kernels->embed_fwd(m->dev, m->stream, m->dtype, own, weight_at(m, &m->weights.positions),
                              ids, 0, rows, m->num_positions, m->hidden, err) != 0)
        return -1;
    return m->kernels->add(m->dev, m->stream, m->dtype, out, sum, own, rows * m->hidden, err);
}

int embed_forward(struct model *m, struct error *err)
{
    void *out = acts_residual(m, 0), *sum;
    if (m->kernels->embed_fwd(m->dev, m->stream, m->dtype, stream_part(m, out),
                              weight_at(m, &m->weights.embed), m->input.ids, m->vocab_first,
                              m->rows, m->vocab, m->hidden, err) != 0 ||
        stream_sum(m, out, &sum, err) != 0)
        return -1;
    if (m->num_positions > 0)
        return add_positions(m, out, sum, err);
    if (sum == out)
        return 0;
    size_t bytes = (size_t)(m->rows * m->hidden) * dtype_size(m->dtype);
    return m->dev->ops->copy(m->dev, m->stream, out, sum, bytes, COPY_ON_DEVICE, err);
}

int embed_backward(struct model *m, const void *dy, struct error *err)
{
    const void *all;
    if (m->num_positions > 0) {
        const int32_t *ids = positions_of_rows(m) + tp_first_row(&m->tp, m->rows);
        if (m->kernels->embed_bwd(
                m->dev, m->stream, m->dtype, weight_grad(m, &m->weights.positions), dy, ids, 0,
                stream_own_rows(m), m->num_positions, m->hidden, m->workspace, err) != 0)
            return -1;
    }
    if (stream_gather(m, &all, m->d_gathered, dy, err) != 0)
        return -1;
    return m->kernels->embed_bwd(m->dev, m->stream, m->dtype, weight_grad(m, &m->weights.embed),
                                 all, m->input.ids, m->vocab_first, m->rows, m->vocab, m->hidden,
                                 m->workspace, err);
}
