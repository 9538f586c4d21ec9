/* The memory of a model: everything that a forward and backward pass writes, laid out once, reused
 * by every micro-batch.
 *
 * The layout function runs twice: with no base it measures, with one it places. A model that trains
 * keeps every block's tensors; a forward-only one keeps q, k and v, has one block's worth of the
 * others, and two residuals that take turns. */
#include "runtime/layers/layers.h"

#include <stdlib.h>

#define ACTS_ALIGN_BYTES 64

struct carve {
    char *base; /* NULL: measuring */
    size_t used;
};

static void *carve_bytes(struct carve *c, size_t bytes)
{
    void *place = c->base != NULL ? c->base + c->used : NULL;
    c->used += (bytes + ACTS_ALIGN_BYTES - 1) / ACTS_ALIGN_BYTES * ACTS_ALIGN_BYTES;
    return place;
}

static void *carve_numbers(struct carve *c, const struct model *m, int64_t n)
{
    return carve_bytes(c, (size_t)n * dtype_size(m->dtype));
}

static int32_t num_residuals(const struct model *m)
{
    return acts_keep_all(m) ? m->num_layers + 1 : 2;
}

/* shared: the block whose other tensors this one uses, or NULL. */
static void place_block(struct carve *c, const struct model *m, struct block_acts *a,
                        const struct block_acts *shared)
{
    int64_t r = m->rows, d = m->hidden, f = m->ffn;
    int64_t q = m->heads * m->head_dim, kv = m->kv_heads * m->head_dim;
    if (shared != NULL)
        *a = *shared;
    a->q = carve_numbers(c, m, r * q);
    a->k = carve_numbers(c, m, r * kv);
    a->v = carve_numbers(c, m, r * kv);
    if (shared != NULL)
        return;
    a->attn_normed = carve_numbers(c, m, r * d);
    a->attn_rstd = carve_numbers(c, m, r);
    a->o = carve_numbers(c, m, r * q);
    a->lse = carve_numbers(c, m, r * m->heads);
    a->mid = carve_numbers(c, m, r * d);
    a->mlp_normed = carve_numbers(c, m, r * d);
    a->mlp_rstd = carve_numbers(c, m, r);
    a->gate = carve_numbers(c, m, r * f);
    a->up = carve_numbers(c, m, r * f);
    a->act = carve_numbers(c, m, r * f);
}

static void place_gradients(struct carve *c, struct model *m)
{
    int64_t r = m->rows, d = m->hidden;
    int64_t q = m->heads * m->head_dim, kv = m->kv_heads * m->head_dim;
    m->d_residual = carve_numbers(c, m, r * d);
    m->d_residual_next = carve_numbers(c, m, r * d);
    m->d_normed = carve_numbers(c, m, r * d);
    /* A block is in its MLP or in its attention, never in both. */
    struct carve mlp = *c;
    m->d_act = carve_numbers(&mlp, m, r * m->ffn);
    m->d_o = carve_numbers(c, m, r * q);
    m->d_q = carve_numbers(c, m, r * q);
    m->d_k = carve_numbers(c, m, r * kv);
    m->d_v = carve_numbers(c, m, r * kv);
    if (mlp.used > c->used)
        c->used = mlp.used;
}

static size_t workspace_bytes(const struct model *m)
{
    size_t attention = m->kernels->attention_workspace(m->dev, m->dtype, m->batch, m->seq_len,
                                                       m->heads, m->kv_heads, m->head_dim);
    size_t norm = m->kernels->rmsnorm_bwd_workspace(m->dev, m->dtype, m->rows, m->hidden);
    return attention > norm ? attention : norm;
}

static void place_all(struct carve *c, struct model *m)
{
    int64_t angles = m->seq_len * (m->head_dim / 2);
    m->rope_cos = carve_numbers(c, m, angles);
    m->rope_sin = carve_numbers(c, m, angles);
    for (int32_t i = 0; i < num_residuals(m); i++)
        m->residuals[i] = carve_numbers(c, m, m->rows * m->hidden);
    for (int32_t l = 0; l < m->num_layers; l++)
        place_block(c, m, &m->acts[l], acts_keep_all(m) || l == 0 ? NULL : &m->acts[0]);
    m->final_normed = carve_numbers(c, m, m->rows * m->hidden);
    m->final_rstd = carve_numbers(c, m, m->rows);
    m->logits = carve_numbers(c, m, m->rows * m->vocab);
    m->nll = carve_bytes(c, (size_t)m->rows * sizeof(double));
    m->nll_sum = carve_bytes(c, sizeof(double));
    if (acts_keep_all(m))
        place_gradients(c, m);
    else
        m->positions = carve_bytes(c, (size_t)m->seq_len * sizeof(*m->positions));
    m->workspace = carve_bytes(c, workspace_bytes(m));
}

int acts_alloc(struct model *m, struct error *err)
{
    m->residuals = calloc((size_t)num_residuals(m), sizeof(*m->residuals));
    m->acts = calloc((size_t)m->num_layers, sizeof(*m->acts));
    struct carve c = {0};
    if (m->residuals != NULL && m->acts != NULL) {
        place_all(&c, m);
        m->memory = m->dev->ops->alloc(m->dev, c.used, MEM_DEVICE);
    }
    if (m->memory == NULL) {
        acts_free(m);
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "no memory for %zu bytes of activations",
                         c.used);
    }
    c = (struct carve){.base = m->memory};
    place_all(&c, m);
    return 0;
}

void acts_free(struct model *m)
{
    if (m->memory != NULL)
        m->dev->ops->free(m->dev, m->memory);
    free(m->residuals);
    free(m->acts);
    m->memory = NULL;
    m->residuals = NULL;
    m->acts = NULL;
}

void *acts_residual(const struct model *m, int32_t l)
{
    return m->residuals[acts_keep_all(m) ? l : l % 2];
}

void *acts_from_past(const struct model *m, void *x, int64_t width)
{
    return (char *)x + (size_t)(m->past * width) * dtype_size(m->dtype);
}
