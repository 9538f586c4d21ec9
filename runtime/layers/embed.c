/* Unit 0: token ids to rows of the embedding. */
#include "runtime/layers/layers.h"

int embed_forward(struct model *m, struct error *err)
{
    return m->kernels->embed_fwd(m->dev, m->stream, m->dtype, acts_residual(m, 0),
                                 m->weights.embed.w, m->ids, 0, m->rows, m->vocab, m->hidden, err);
}

int embed_backward(struct model *m, const void *dy, struct error *err)
{
    return m->kernels->embed_bwd(m->dev, m->stream, m->dtype, m->weights.embed.g, dy, m->ids, 0,
                                 m->rows, m->vocab, m->hidden, err);
}
