/* Which parameter of the table is which weight of the model: found by role, never by name. */
#include "runtime/layers/layers.h"

#include <stdlib.h>

/* Sizes that shapes are made of; of heads, ffn and vocabulary this tensor rank's part. */
enum size {
    SIZE_ONE,
    SIZE_D,
    SIZE_E,
    SIZE_Q,
    SIZE_KV,
    SIZE_QKV,
    SIZE_F,
    SIZE_V,
    SIZE_P,
    NUM_SIZES
};

/* What a role is: its shape, and where its weight stands in struct model_weights, or in struct
 * block_weights. */
struct role_line {
    ParamRole role;
    enum size rows, cols;
    size_t at;
};
#define MODEL(field) offsetof(struct model_weights, field)
#define BLOCK(field) offsetof(struct block_weights, field)

static const struct role_line model_lines[] = {
    {ROLE_EMBED, SIZE_V, SIZE_D, MODEL(embed)},
    {ROLE_POSITIONS, SIZE_P, SIZE_D, MODEL(positions)},
    {ROLE_FINAL_NORM, SIZE_ONE, SIZE_D, MODEL(final_norm.w)},
    {ROLE_FINAL_NORM_BIAS, SIZE_ONE, SIZE_D, MODEL(final_norm.b)},
    {ROLE_HEAD, SIZE_V, SIZE_D, MODEL(head)},
};
/* QKV and its bias: the first of three, one behind the other. */
static const struct role_line block_lines[] = {
    {ROLE_ATTN_NORM, SIZE_ONE, SIZE_D, BLOCK(attn_norm.w)},
    {ROLE_ATTN_NORM_BIAS, SIZE_ONE, SIZE_D, BLOCK(attn_norm.b)},
    {ROLE_Q, SIZE_Q, SIZE_D, BLOCK(q.w)},
    {ROLE_K, SIZE_KV, SIZE_D, BLOCK(k.w)},
    {ROLE_V, SIZE_KV, SIZE_D, BLOCK(v.w)},
    {ROLE_QKV, SIZE_QKV, SIZE_D, BLOCK(q.w)},
    {ROLE_Q_BIAS, SIZE_ONE, SIZE_Q, BLOCK(q.b)},
    {ROLE_K_BIAS, SIZE_ONE, SIZE_KV, BLOCK(k.b)},
    {ROLE_V_BIAS, SIZE_ONE, SIZE_KV, BLOCK(v.b)},
    {ROLE_QKV_BIAS, SIZE_ONE, SIZE_QKV, BLOCK(q.b)},
    {ROLE_Q_NORM, SIZE_ONE, SIZE_E, BLOCK(q_norm.w)},
    {ROLE_K_NORM, SIZE_ONE, SIZE_E, BLOCK(k_norm.w)},
    {ROLE_O, SIZE_D, SIZE_Q, BLOCK(o.w)},
    {ROLE_O_BIAS, SIZE_ONE, SIZE_D, BLOCK(o.b)},
    {ROLE_MLP_NORM, SIZE_ONE, SIZE_D, BLOCK(mlp_norm.w)},
    {ROLE_MLP_NORM_BIAS, SIZE_ONE, SIZE_D, BLOCK(mlp_norm.b)},
    {ROLE_GATE, SIZE_F, SIZE_D, BLOCK(gate.w)},
    {ROLE_UP, SIZE_F, SIZE_D, BLOCK(up.w)},
    {ROLE_UP_BIAS, SIZE_ONE, SIZE_F, BLOCK(up.b)},
    {ROLE_DOWN, SIZE_D, SIZE_F, BLOCK(down.w)},
    {ROLE_DOWN_BIAS, SIZE_ONE, SIZE_D, BLOCK(down.b)},
};
#define NUM_LINES(lines) (sizeof(lines) / sizeof((lines)[0]))

static int64_t size_of(const struct model *m, enum size size)
{
    int64_t q = m->heads * m->head_dim, kv = m->kv_heads * m->head_dim;
    const int64_t sizes[NUM_SIZES] = {
        [SIZE_ONE] = 1,    [SIZE_D] = m->hidden, [SIZE_E] = m->head_dim,
        [SIZE_Q] = q,      [SIZE_KV] = kv,       [SIZE_QKV] = q + 2 * kv,
        [SIZE_F] = m->ffn, [SIZE_V] = m->vocab,  [SIZE_P] = m->num_positions,
    };
    return sizes[size];
}

static const struct role_line *find_line(ParamRole role, bool block)
{
    const struct role_line *lines = block ? block_lines : model_lines;
    size_t num = block ? NUM_LINES(block_lines) : NUM_LINES(model_lines);
    for (size_t i = 0; i < num; i++)
        if (lines[i].role == role)
            return &lines[i];
    return NULL;
}

/* Three views of one matrix, or of one vector, by outputs. */
static void split_qkv(const struct model *m, const struct weight *whole, bool matrix,
                      struct block_weights *b)
{
    struct layer *parts[] = {&b->q, &b->k, &b->v};
    int64_t at = 0;
    for (int i = 0; i < 3; i++) {
        int64_t outputs = size_of(m, i == 0 ? SIZE_Q : SIZE_KV);
        struct weight *w = matrix ? &parts[i]->w : &parts[i]->b;
        *w = *whole;
        w->offset += at * (matrix && !whole->in_out ? whole->distance : 1);
        *(matrix ? &w->rows : &w->cols) = outputs;
        at += outputs;
    }
}

static int add_param(struct model *m, const struct param *p, struct error *err)
{
    bool block = p->layer >= 0 && p->layer < m->num_layers;
    const struct role_line *line = find_line(p->role, block);
    if (line == NULL)
        return error_set(err, ERR_UNIMPLEMENTED, "%s is nothing that the layers know", p->name);
    struct weight w = {
        .bucket = p->bucket,
        .offset = p->offset - m->table->bucket_offsets[p->bucket],
        .rows = size_of(m, line->rows),
        .cols = size_of(m, line->cols),
        .in_out = p->in_out,
    };
    if (p->numel != w.rows * w.cols)
        return error_set(err, ERR_INTERNAL, "%s has %lld elements in the plan, not %lld x %lld",
                         p->name, (long long)p->numel, (long long)w.rows, (long long)w.cols);
    w.distance = w.in_out ? w.rows : w.cols;
    struct block_weights *b = block ? &m->weights.blocks[p->layer] : NULL;
    if (p->role == ROLE_QKV || p->role == ROLE_QKV_BIAS)
        split_qkv(m, &w, p->role == ROLE_QKV, b);
    else
        *(struct weight *)((char *)(block ? (void *)b : (void *)&m->weights) + line->at) = w;
    return 0;
}

/* All blocks have the same parts, and those that every family has. */
static int check_blocks(const struct model *m, struct error *err)
{
    const struct block_weights *first = &m->weights.blocks[0];
    for (int32_t l = 0; l < m->num_layers; l++) {
        const struct block_weights *b = &m->weights.blocks[l];
        for (size_t i = 0; i < NUM_LINES(block_lines); i++) {
            size_t at = block_lines[i].at;
            const struct weight *w = (const struct weight *)((const char *)b + at);
            const struct weight *w0 = (const struct weight *)((const char *)first + at);
            if (weight_exists(w) != weight_exists(w0))
                return error_set(err, ERR_INTERNAL, "the plan's block %d isn't like the others", l);
        }
        const struct weight *needed[] = {&b->attn_norm.w, &b->q.w,        &b->k.w,  &b->v.w,
                                         &b->o.w,         &b->mlp_norm.w, &b->up.w, &b->down.w};
        for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++)
            if (!weight_exists(needed[i]))
                return error_set(err, ERR_INTERNAL, "the plan's block %d isn't complete", l);
    }
    return 0;
}

int weights_find(struct model *m, const ModelConfig *config, struct error *err)
{
    struct model_weights *w = &m->weights;
    m->num_buckets = m->table->num_buckets;
    w->blocks = calloc((size_t)m->num_layers, sizeof(*w->blocks));
    m->weights_at = calloc((size_t)m->num_buckets, sizeof(*m->weights_at));
    m->grads_at = calloc((size_t)m->num_buckets, sizeof(*m->grads_at));
    if (w->blocks == NULL || m->weights_at == NULL || m->grads_at == NULL)
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "no memory for the list of weights");
    for (int32_t i = 0; i < m->table->num_params; i++)
        if (add_param(m, &m->table->params[i], err) != 0)
            return -1;
    if (config->tie_word_embeddings)
        w->head = w->embed;
    w->head.apart = m->logits_ld;
    if (!weight_exists(&w->embed) || !weight_exists(&w->head) || !weight_exists(&w->final_norm.w))
        return error_set(err, ERR_INTERNAL, "the plan has no embedding, head or final norm");
    if (check_blocks(m, err) != 0)
        return -1;
    m->layer_norm = weight_exists(&w->final_norm.b);
    m->qk_norm = weight_exists(&w->blocks[0].q_norm.w);
    m->gated = weight_exists(&w->blocks[0].gate.w);
    return 0;
}

void weights_free(struct model *m)
{
    free(m->weights.blocks);
    free(m->weights_at);
    free(m->grads_at);
}

void *weight_at(const struct model *m, const struct weight *w)
{
    ASSERT(m->weights_at[w->bucket] != NULL);
    return m->weights_at[w->bucket] + (size_t)w->offset * dtype_size(m->dtype);
}

void *weight_grad(const struct model *m, const struct weight *w)
{
    ASSERT(m->grads_at[w->bucket] != NULL);
    return m->grads_at[w->bucket] + (size_t)w->offset * dtype_size(m->wide);
}

/* ---- where buckets lie --------------------------------------------------------------------------
 */

void model_bind_weights(void *model, int32_t bucket, void *base)
{
    struct model *m = model;
    ASSERT(bucket >= 0 && bucket < m->num_buckets);
    m->weights_at[bucket] = base;
}

void model_bind_grads(void *model, int32_t bucket, void *base)
{
    struct model *m = model;
    ASSERT(bucket >= 0 && bucket < m->num_buckets);
    m->grads_at[bucket] = base;
}

/* Parameters of a bucket lie side by side in the table. A tied embedding is the head's, too. */
uint64_t model_places(const struct model *m, int32_t unit_begin, int32_t unit_end)
{
    uint64_t hash = 14695981039346656037u;
    int32_t last = -1;
    for (int32_t i = 0; i < m->table->num_params; i++) {
        const struct param *p = &m->table->params[i];
        bool is_used = (p->unit >= unit_begin && p->unit < unit_end) ||
                       (p->tied && unit_end == m->num_layers + 2);
        if (!is_used || p->bucket == last)
            continue;
        last = p->bucket;
        hash = (hash ^ (uint64_t)(uintptr_t)m->weights_at[last]) * 1099511628211u;
        hash = (hash ^ (uint64_t)(uintptr_t)m->grads_at[last]) * 1099511628211u;
    }
    return hash;
}

void model_bind_whole(struct model *m, void *weights, void *grads)
{
    for (int32_t i = 0; i < m->num_buckets; i++) {
        size_t at = (size_t)m->table->bucket_offsets[i];
        model_bind_weights(m, i, (char *)weights + at * dtype_size(m->dtype));
        model_bind_grads(m, i, grads != NULL ? (char *)grads + at * dtype_size(m->wide) : NULL);
    }
}
