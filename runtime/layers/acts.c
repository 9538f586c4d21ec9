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

/* A piece for each kind. */
struct room {
    struct carve activations, backward, logits, summed, workspace, tables;
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

static void *carve_wide(struct carve *c, const struct model *m, int64_t n)
{
    return carve_bytes(c, (size_t)n * dtype_size(m->wide));
}

/* Room for this rank's rows of the residual stream, and for all ranks'. */
static void *carve_own(struct carve *c, const struct model *m)
{
    return carve_numbers(c, m, tp_own_room(&m->tp, m->rows) * m->hidden);
}

static void *carve_all(struct carve *c, const struct model *m)
{
    return carve_numbers(c, m, tp_all_room(&m->tp, m->rows) * m->hidden);
}

static struct norm_stats carve_stats(struct carve *c, const struct model *m, int64_t rows,
                                     bool mean)
{
    return (struct norm_stats){
        .mean = mean ? carve_wide(c, m, rows) : NULL,
        .rstd = carve_wide(c, m, rows),
    };
}

static int32_t num_residuals(const struct model *m)
{
    return m->trains ? m->num_layers + 1 : 2;
}

static void place_heads(struct carve *c, const struct model *m, struct block_acts *a)
{
    int64_t r = m->rows, q = m->heads * m->head_dim, kv = m->kv_heads * m->head_dim;
    if (m->qk_norm) {
        a->q_raw = carve_numbers(c, m, r * q);
        a->k_raw = carve_numbers(c, m, r * kv);
        a->q_stats = carve_stats(c, m, r * m->heads, false);
        a->k_stats = carve_stats(c, m, r * m->kv_heads, false);
    }
    a->o = carve_numbers(c, m, r * q);
    a->lse = carve_wide(c, m, r * m->heads);
}

/* shared: the block whose other tensors this one uses, or NULL. */
static void place_block(struct carve *c, const struct model *m, struct block_acts *a,
                        const struct block_acts *shared)
{
    int64_t r = m->rows, own = tp_own_room(&m->tp, m->rows), f = m->ffn;
    int64_t q = m->heads * m->head_dim, kv = m->kv_heads * m->head_dim;
    if (shared != NULL)
        *a = *shared;
    a->q = carve_numbers(c, m, r * q);
    a->k = carve_numbers(c, m, r * kv);
    a->v = carve_numbers(c, m, r * kv);
    if (shared != NULL)
        return;
    a->attn_normed = carve_own(c, m);
    a->attn_stats = carve_stats(c, m, own, m->layer_norm);
    place_heads(c, m, a);
    a->mid = carve_own(c, m);
    a->mlp_normed = carve_own(c, m);
    a->mlp_stats = carve_stats(c, m, own, m->layer_norm);
    a->gate = m->gated ? carve_numbers(c, m, r * f) : NULL;
    a->up = carve_numbers(c, m, r * f);
    a->act = carve_numbers(c, m, r * f);
}

static void place_gradients(struct carve *c, struct model *m)
{
    int64_t r = m->rows, q = m->heads * m->head_dim, kv = m->kv_heads * m->head_dim;
    m->d_residual = carve_own(c, m);
    m->d_residual_next = carve_own(c, m);
    /* Whole rows are summed where the parts lie. */
    m->d_normed = m->tp.size > 1 && !m->tp.sequence ? m->part : carve_own(c, m);
    m->d_normed_part = m->tp.size > 1 ? m->part : m->d_normed;
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

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static size_t workspace_bytes(const struct model *m)
{
    const struct kernels *k = m->kernels;
    int64_t own = tp_own_room(&m->tp, m->rows);
    size_t bytes = k->attention_workspace(m->dev, m->dtype, m->batch, m->seq_len, m->heads,
                                          m->kv_heads, m->head_dim);
    bytes =
        larger(bytes, m->layer_norm ? k->layernorm_bwd_workspace(m->dev, m->dtype, own, m->hidden)
                                    : k->rmsnorm_bwd_workspace(m->dev, m->dtype, own, m->hidden));
    bytes = larger(bytes, k->embed_bwd_workspace(m->dev, m->dtype, m->rows, m->vocab, m->hidden));
    if (m->num_positions > 0)
        bytes = larger(bytes,
                       k->embed_bwd_workspace(m->dev, m->dtype, own, m->num_positions, m->hidden));
    if (m->qk_norm)
        bytes = larger(bytes,
                       k->rmsnorm_bwd_workspace(m->dev, m->dtype, m->rows * m->heads, m->head_dim));
    return bytes;
}

static void place_tables(struct carve *c, struct model *m)
{
    int64_t angles = m->num_positions > 0 ? 0 : m->seq_len * (m->head_dim / 2);
    m->rope_cos = carve_wide(c, m, angles);
    m->rope_sin = carve_wide(c, m, angles);
    m->nll = carve_bytes(c, (size_t)m->rows * sizeof(double));
    m->nll_sum = carve_bytes(c, sizeof(double));
    if (!m->trains || m->num_positions > 0)
        m->positions = carve_bytes(c, (size_t)m->rows * sizeof(*m->positions));
}

static void place_activations(struct carve *c, struct model *m)
{
    for (int32_t i = 0; i < num_residuals(m); i++)
        m->residuals[i] = carve_own(c, m);
    for (int32_t l = 0; l < m->num_layers; l++)
        place_block(c, m, &m->acts[l], m->trains || l == 0 ? NULL : &m->acts[0]);
    m->final_normed = carve_own(c, m);
    m->final_stats = carve_stats(c, m, tp_own_room(&m->tp, m->rows), m->layer_norm);
}

/* Sums first: the backward pass's places may be there. */
static void place_all(struct room *room, struct model *m)
{
    if (m->tp.size > 1) {
        m->part = carve_all(&room->summed, m);
        m->ce_words = carve_bytes(&room->summed, (size_t)(3 * m->rows) * sizeof(double));
    }
    place_activations(&room->activations, m);
    m->logits = carve_numbers(&room->logits, m, m->rows * m->logits_ld);
    if (m->tp.size > 1 && m->tp.sequence) {
        m->gathered = carve_all(&room->backward, m);
        m->d_gathered = m->trains ? carve_all(&room->backward, m) : NULL;
    }
    if (m->trains)
        place_gradients(&room->backward, m);
    place_tables(&room->tables, m);
    m->workspace = carve_bytes(&room->workspace, workspace_bytes(m));
}

static int take(struct model *m, struct carve *c, ArenaKind kind, struct error *err)
{
    size_t bytes = c->used;
    *c = (struct carve){0};
    if (bytes > 0)
        c->base = arenas_take(m->arenas, kind, bytes, kind == ARENA_SUMMED, err);
    return bytes == 0 || c->base != NULL ? 0 : -1;
}

int acts_alloc(struct model *m, struct error *err)
{
    struct room room = {0};
    m->residuals = calloc((size_t)num_residuals(m), sizeof(*m->residuals));
    m->acts = calloc((size_t)m->num_layers, sizeof(*m->acts));
    if (m->residuals == NULL || m->acts == NULL)
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "no memory for the list of activations");
    place_all(&room, m);
    if (take(m, &room.activations, ARENA_ACTIVATIONS, err) != 0 ||
        take(m, &room.backward, ARENA_BACKWARD, err) != 0 ||
        take(m, &room.logits, ARENA_LOGITS, err) != 0 ||
        take(m, &room.summed, ARENA_SUMMED, err) != 0 ||
        take(m, &room.workspace, ARENA_WORKSPACE, err) != 0 ||
        take(m, &room.tables, ARENA_BATCH, err) != 0)
        return -1;
    place_all(&room, m);
    return 0;
}

void acts_free(struct model *m)
{
    if (m->owns_arenas)
        arenas_free(m->arenas);
    free(m->residuals);
    free(m->acts);
}

void *acts_residual(const struct model *m, int32_t l)
{
    return m->residuals[m->trains ? l : l % 2];
}

void *acts_from_past(const struct model *m, void *x, int64_t width)
{
    return (char *)x + (size_t)(m->past * width) * dtype_size(m->dtype);
}
