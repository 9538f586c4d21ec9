/* The residual stream over the tensor ranks: what goes from it into a layer is gathered, what comes
 * back is summed. With one rank layers read and write it in place, and nothing here copies. */
#include "runtime/layers/layers.h"

static bool is_cut(const struct model *m)
{
    return m->tp.size > 1 && m->tp.sequence;
}

int64_t stream_own_rows(const struct model *m)
{
    return tp_own_rows(&m->tp, m->rows);
}

void stream_say(const struct model *m)
{
    const char *way = m->backward ? "backward" : "forward";
    if (m->unit == 0)
        comm_say(m->tp.comm, "%s of the embedding", way);
    else if (m->unit > m->num_layers)
        comm_say(m->tp.comm, "%s of the head", way);
    else
        comm_say(m->tp.comm, "%s of block %d", way, m->unit - 1);
}

int stream_gather(struct model *m, const void **all, void *room, const void *own, struct error *err)
{
    stream_say(m);
    *all = is_cut(m) ? room : own;
    return is_cut(m) ? tp_gather(&m->tp, room, own, m->rows, m->hidden, err) : 0;
}

void *stream_part(const struct model *m, void *out)
{
    return m->tp.size > 1 ? m->part : out;
}

int stream_sum(struct model *m, void *out, void **sum, struct error *err)
{
    void *part = stream_part(m, out);
    *sum = is_cut(m) ? out : part;
    stream_say(m);
    return tp_sum(&m->tp, *sum, part, m->rows, m->hidden, err);
}

int stream_project(struct model *m, void *out, const void *x, const void *in, const struct layer *l,
                   struct error *err)
{
    int64_t rows = stream_own_rows(m);
    void *sum;
    if (m->tp.size == 1)
        return linear_forward_onto(m, out, x, in, l, err);
    if (linear_forward_part(m, m->part, in, l, err) != 0 || stream_sum(m, out, &sum, err) != 0)
        return -1;
    if (weight_exists(&l->b) &&
        m->kernels->add_bias(m->dev, m->stream, m->dtype, sum, weight_at(m, &l->b), rows, m->hidden,
                             err) != 0)
        return -1;
    return m->kernels->add(m->dev, m->stream, m->dtype, out, sum, x, rows * m->hidden, err);
}

int stream_backward_bias(struct model *m, const struct weight *bias, const void *dy,
                         struct error *err)
{
    if (!weight_exists(bias))
        return 0;
    return m->kernels->column_sum(m->dev, m->stream, m->dtype, weight_grad(m, bias), dy,
                                  stream_own_rows(m), m->hidden, err);
}

int stream_sum_gradient(struct model *m, struct error *err)
{
    stream_say(m);
    return tp_sum(&m->tp, m->d_normed, m->d_normed_part, m->rows, m->hidden, err);
}
