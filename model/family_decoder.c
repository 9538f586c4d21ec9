#include "model/family_decoder.h"

#include <stdio.h>

#include "model/family_table.h"

#define LAYER FAMILY_LAYER

/* KV heads stay whole: with more tensor ranks than heads each lies on several. */
static void keep_heads(ParamDef *def, const ModelConfig *c)
{
    if (def) {
        def->has_shard_parts = 1;
        def->shard_parts = c->num_key_value_heads;
    }
}

static void add_qkv_biases(struct family_table *t, int64_t q, int64_t kv, const ModelConfig *c)
{
    family_table_add_bias(t, UNIT_BLOCK, ROLE_Q_BIAS, LAYER "self_attn.q_proj.bias", q, SPLIT_ROWS);
    keep_heads(family_table_add_bias(t, UNIT_BLOCK, ROLE_K_BIAS, LAYER "self_attn.k_proj.bias", kv,
                                     SPLIT_ROWS),
               c);
    keep_heads(family_table_add_bias(t, UNIT_BLOCK, ROLE_V_BIAS, LAYER "self_attn.v_proj.bias", kv,
                                     SPLIT_ROWS),
               c);
}

/* Each tensor rank sees its own heads alone, so that its gradient is a part. */
static void add_head_norm(struct family_table *t, ParamRole role, const char *name,
                          const ModelConfig *c)
{
    ParamDef *norm = family_table_add(t, UNIT_BLOCK, role, name, c->head_dim, 0, SPLIT_NONE);
    if (norm) {
        norm->has_tensor_grad = 1;
        norm->tensor_grad = SPREAD_PARTIAL;
    }
}

static void add_attention(struct family_table *t, const struct decoder_shape *s,
                          const ModelConfig *c)
{
    int64_t d = c->hidden_size;
    int64_t q = c->num_attention_heads * c->head_dim, kv = c->num_key_value_heads * c->head_dim;
    family_table_add(t, UNIT_BLOCK, ROLE_Q, LAYER "self_attn.q_proj.weight", q, d, SPLIT_ROWS);
    keep_heads(
        family_table_add(t, UNIT_BLOCK, ROLE_K, LAYER "self_attn.k_proj.weight", kv, d, SPLIT_ROWS),
        c);
    keep_heads(
        family_table_add(t, UNIT_BLOCK, ROLE_V, LAYER "self_attn.v_proj.weight", kv, d, SPLIT_ROWS),
        c);
    if (s->qkv_bias) {
        add_qkv_biases(t, q, kv, c);
    }
    if (s->qk_norm) {
        add_head_norm(t, ROLE_Q_NORM, LAYER "self_attn.q_norm.weight", c);
        add_head_norm(t, ROLE_K_NORM, LAYER "self_attn.k_norm.weight", c);
    }
    family_table_add(t, UNIT_BLOCK, ROLE_O, LAYER "self_attn.o_proj.weight", d, q, SPLIT_COLUMNS);
}

static void add_expert(struct family_table *t, const ModelConfig *c, ParamRole role,
                       const char *name, int64_t rows, int64_t columns, enum family_split split)
{
    char full[160];
    snprintf(full, sizeof full, LAYER "%s", name);
    ParamDef *def = family_table_add(t, UNIT_BLOCK, role, full, rows, columns, split);
    if (def) {
        def->has_num_experts = 1;
        def->num_experts = c->num_experts;
    }
}

static void add_mlp(struct family_table *t, const struct decoder_shape *s, const ModelConfig *c)
{
    int64_t d = c->hidden_size, f = c->intermediate_size, e = c->moe_intermediate_size;
    if (s->router) {
        char name[160];
        snprintf(name, sizeof name, LAYER "%s", s->router);
        family_table_add(t, UNIT_BLOCK, ROLE_ROUTER, name, c->num_experts, d, SPLIT_STREAM);
        add_expert(t, c, ROLE_EXPERT_GATE, s->expert_gate, e, d, SPLIT_ROWS);
        add_expert(t, c, ROLE_EXPERT_UP, s->expert_up, e, d, SPLIT_ROWS);
        add_expert(t, c, ROLE_EXPERT_DOWN, s->expert_down, d, e, SPLIT_COLUMNS);
        return;
    }
    family_table_add(t, UNIT_BLOCK, ROLE_GATE, LAYER "mlp.gate_proj.weight", f, d, SPLIT_ROWS);
    family_table_add(t, UNIT_BLOCK, ROLE_UP, LAYER "mlp.up_proj.weight", f, d, SPLIT_ROWS);
    family_table_add(t, UNIT_BLOCK, ROLE_DOWN, LAYER "mlp.down_proj.weight", d, f, SPLIT_COLUMNS);
}

int decoder_params(const struct decoder_shape *s, const ModelConfig *c, struct arena *arena,
                   ParamDef ***defs, size_t *num, struct error *err)
{
    int64_t d = c->hidden_size, v = c->vocab_size;
    struct family_table t;
    if (family_table_new(&t, c, arena, err) != 0) {
        return -1;
    }
    family_table_tie(
        family_table_add(&t, UNIT_EMBED, ROLE_EMBED, "model.embed_tokens.weight", v, d, SPLIT_ROWS),
        c->tie_word_embeddings);
    family_table_add(&t, UNIT_BLOCK, ROLE_ATTN_NORM, LAYER "input_layernorm.weight", d, 0,
                     SPLIT_STREAM);
    add_attention(&t, s, c);
    family_table_add(&t, UNIT_BLOCK, ROLE_MLP_NORM, LAYER "post_attention_layernorm.weight", d, 0,
                     SPLIT_STREAM);
    add_mlp(&t, s, c);
    family_table_add(&t, UNIT_HEAD, ROLE_FINAL_NORM, "model.norm.weight", d, 0, SPLIT_STREAM);
    if (!c->tie_word_embeddings) {
        family_table_add(&t, UNIT_HEAD, ROLE_HEAD, "lm_head.weight", v, d, SPLIT_ROWS);
    }
    return family_table_end(&t, defs, num, err);
}

int64_t decoder_matmul_params(const struct decoder_shape *s, const ModelConfig *c)
{
    int64_t d = c->hidden_size, e = c->head_dim;
    int64_t attention = 2 * d * e * (c->num_attention_heads + c->num_key_value_heads);
    int64_t mlp = 3 * d * c->intermediate_size;
    if (s->router) {
        mlp = c->num_experts_per_tok * 3 * d * c->moe_intermediate_size + c->num_experts * d;
    }
    return c->num_hidden_layers * (attention + mlp) + c->vocab_size * d;
}

/* ---- what a block keeps --------------------------------------------------------------------- */

struct list {
    struct family_saved *saved;
    size_t num;
};

static void keep(struct list *l, struct family_saved s)
{
    ASSERT(l->num < FAMILY_SAVED_MAX);
    l->saved[l->num++] = s;
}

static void keep_attention(struct list *l, const struct decoder_shape *s, const ModelConfig *c)
{
    int64_t h = c->num_attention_heads, k = c->num_key_value_heads;
    int64_t q = h * c->head_dim, kv = k * c->head_dim;
    if (s->qk_norm) {
        keep(l, (struct family_saved){.name = "q_raw", .width = q, .parts = h});
        keep(l, (struct family_saved){.name = "k_raw", .width = kv, .parts = k});
        keep(l, (struct family_saved){.name = "q_rstd", .width = h, .stat = true, .parts = h});
        keep(l, (struct family_saved){.name = "k_rstd", .width = k, .stat = true, .parts = k});
    }
    keep(l, (struct family_saved){.name = "q", .width = q, .parts = h, .cheap = s->qk_norm});
    keep(l, (struct family_saved){.name = "k", .width = kv, .parts = k, .cheap = s->qk_norm});
    keep(l, (struct family_saved){.name = "v", .width = kv, .parts = k});
    keep(l, (struct family_saved){.name = "attention", .width = q, .parts = h});
    keep(l, (struct family_saved){.name = "attention_lse", .width = h, .stat = true, .parts = h});
}

/* Of experts the mean: each token goes to num_experts_per_tok of them. */
static void keep_mlp(struct list *l, const struct decoder_shape *s, const ModelConfig *c)
{
    int64_t f = c->intermediate_size;
    if (s->router) {
        int64_t k = c->num_experts_per_tok;
        f = k * c->moe_intermediate_size;
        keep(l, (struct family_saved){.name = "router", .width = c->num_experts, .stat = true});
        keep(l, (struct family_saved){.name = "routes", .width = 2 * k, .stat = true});
        keep(l, (struct family_saved){.name = "dispatched", .width = k * c->hidden_size});
        keep(l, (struct family_saved){.name = "expert_out", .width = k * c->hidden_size});
    }
    keep(l, (struct family_saved){.name = "gate", .width = f, .parts = f});
    keep(l, (struct family_saved){.name = "up", .width = f, .parts = f});
    keep(l, (struct family_saved){.name = "activated", .width = f, .parts = f, .cheap = true});
}

size_t decoder_saved(const struct decoder_shape *s, const ModelConfig *c,
                     struct family_saved saved[FAMILY_SAVED_MAX])
{
    int64_t d = c->hidden_size;
    struct list l = {.saved = saved};
    keep(&l, (struct family_saved){.name = "input", .width = d});
    keep(&l, (struct family_saved){.name = "input_rstd", .width = 1, .stat = true});
    keep(&l, (struct family_saved){.name = "input_norm", .width = d, .cheap = true});
    keep_attention(&l, s, c);
    keep(&l, (struct family_saved){.name = "residual", .width = d});
    keep(&l, (struct family_saved){.name = "residual_rstd", .width = 1, .stat = true});
    keep(&l, (struct family_saved){.name = "residual_norm", .width = d, .cheap = true});
    keep_mlp(&l, s, c);
    return l.num;
}
