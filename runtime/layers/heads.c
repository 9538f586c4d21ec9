/* Between the matrices of q and k and attention: each head is normed (Qwen3), then rotated (all but
 * GPT-2). */
#include "runtime/layers/layers.h"

void *heads_q_in(const struct model *m, const struct block_acts *a)
{
    return m->qk_norm ? a->q_raw : acts_from_past(m, a->q, m->heads * m->head_dim);
}

void *heads_k_in(const struct model *m, const struct block_acts *a)
{
    return m->qk_norm ? a->k_raw : acts_from_past(m, a->k, m->kv_heads * m->head_dim);
}

static int rotate(struct model *m, void *x, int64_t heads, bool backward, struct error *err)
{
    if (m->num_positions > 0)
        return 0;
    return m->kernels->rope(m->dev, m->stream, m->dtype, x, m->rope_cos, m->rope_sin,
                            positions_of_rows(m), m->rows, m->seq_len, heads, m->head_dim, backward,
                            err);
}

static int norm_heads(struct model *m, void *y, const struct norm_stats *stats, const void *x,
                      const struct layer *l, int64_t heads, struct error *err)
{
    if (!m->qk_norm)
        return 0;
    return m->kernels->rmsnorm_fwd(m->dev, m->stream, m->dtype, y, stats->rstd, x,
                                   weight_at(m, &l->w), m->rows * heads, m->head_dim, m->eps, err);
}

int heads_forward(struct model *m, int32_t l, struct error *err)
{
    const struct block_weights *w = &m->weights.blocks[l];
    const struct block_acts *a = &m->acts[l];
    void *q = acts_from_past(m, a->q, m->heads * m->head_dim);
    void *k = acts_from_past(m, a->k, m->kv_heads * m->head_dim);
    if (norm_heads(m, q, &a->q_stats, a->q_raw, &w->q_norm, m->heads, err) != 0 ||
        norm_heads(m, k, &a->k_stats, a->k_raw, &w->k_norm, m->kv_heads, err) != 0 ||
        rotate(m, q, m->heads, false, err) != 0)
        return -1;
    return rotate(m, k, m->kv_heads, false, err);
}

static int norm_heads_backward(struct model *m, void *dx, const struct norm_stats *stats,
                               const void *x, const struct layer *l, int64_t heads,
                               struct error *err)
{
    if (!m->qk_norm)
        return 0;
    return m->kernels->rmsnorm_bwd(m->dev, m->stream, m->dtype, dx, weight_grad(m, &l->w), dx, x,
                                   weight_at(m, &l->w), stats->rstd, m->rows * heads, m->head_dim,
                                   false, m->workspace, err);
}

int heads_backward(struct model *m, int32_t l, struct error *err)
{
    const struct block_weights *w = &m->weights.blocks[l];
    const struct block_acts *a = &m->acts[l];
    if (rotate(m, m->d_q, m->heads, true, err) != 0 ||
        rotate(m, m->d_k, m->kv_heads, true, err) != 0 ||
        norm_heads_backward(m, m->d_q, &a->q_stats, a->q_raw, &w->q_norm, m->heads, err) != 0)
        return -1;
    return norm_heads_backward(m, m->d_k, &a->k_stats, a->k_raw, &w->k_norm, m->kv_heads, err);
}
