/* GPT2LMHeadModel (Radford et al. 2019): learned positions, layer norms with bias, one matrix for
 * q, k and v, a GELU MLP. A weight is [in, out]. Saved tensors without fused attention and with
 * dropout: 34 D + 5 H T bytes a token in bf16 (Korthikanti et al. 2022, section 4, who leave out
 * the norms' statistics). */
#include <string.h>

#include "model/family_others.h"
#include "model/family_table.h"

#define LAYER "transformer.h.{layer}."

/* A matrix stored [in, out], and its bias: the bias of a split output is split as well, that of a
 * split input is added once, to the sum. groups: matrices side by side in it. */
struct linear {
    ParamRole role, bias_role;
    const char *weight, *bias;
    int64_t in, out, groups;
    enum family_split split;
};

static void add_linear(struct family_table *t, const struct linear *l)
{
    ParamDef *defs[] = {
        family_table_add(t, UNIT_BLOCK, l->role, l->weight, l->in, l->out, l->split),
        family_table_add_bias(t, UNIT_BLOCK, l->bias_role, l->bias, l->out,
                              l->split == SPLIT_COLUMNS ? SPLIT_ROWS : SPLIT_STREAM),
    };
    if (defs[0]) {
        defs[0]->has_in_out = 1;
        defs[0]->in_out = 1;
    }
    for (int i = 0; i < 2 && l->groups > 1; i++) {
        if (defs[i]) {
            defs[i]->has_shard_groups = 1;
            defs[i]->shard_groups = l->groups;
        }
    }
}

/* The scale and shift of a layer norm. */
static void add_norm(struct family_table *t, UnitKind unit, ParamRole role, ParamRole bias_role,
                     const char *weight, const char *bias, int64_t d)
{
    family_table_add(t, unit, role, weight, d, 0, SPLIT_STREAM);
    family_table_add_bias(t, unit, bias_role, bias, d, SPLIT_STREAM);
}

static void add_block(struct family_table *t, int64_t d, int64_t f)
{
    const struct linear attention[] = {
        {ROLE_QKV, ROLE_QKV_BIAS, LAYER "attn.c_attn.weight", LAYER "attn.c_attn.bias", d, 3 * d, 3,
         SPLIT_COLUMNS},
        {ROLE_O, ROLE_O_BIAS, LAYER "attn.c_proj.weight", LAYER "attn.c_proj.bias", d, d, 1,
         SPLIT_ROWS},
    };
    const struct linear mlp[] = {
        {ROLE_UP, ROLE_UP_BIAS, LAYER "mlp.c_fc.weight", LAYER "mlp.c_fc.bias", d, f, 1,
         SPLIT_COLUMNS},
        {ROLE_DOWN, ROLE_DOWN_BIAS, LAYER "mlp.c_proj.weight", LAYER "mlp.c_proj.bias", f, d, 1,
         SPLIT_ROWS},
    };
    add_norm(t, UNIT_BLOCK, ROLE_ATTN_NORM, ROLE_ATTN_NORM_BIAS, LAYER "ln_1.weight",
             LAYER "ln_1.bias", d);
    add_linear(t, &attention[0]);
    add_linear(t, &attention[1]);
    add_norm(t, UNIT_BLOCK, ROLE_MLP_NORM, ROLE_MLP_NORM_BIAS, LAYER "ln_2.weight",
             LAYER "ln_2.bias", d);
    add_linear(t, &mlp[0]);
    add_linear(t, &mlp[1]);
}

static int gpt2_params(const ModelConfig *c, struct arena *arena, ParamDef ***defs, size_t *num,
                       struct error *err)
{
    int64_t d = c->hidden_size, v = c->vocab_size;
    struct family_table t;
    if (family_table_new(&t, c, arena, err) != 0) {
        return -1;
    }
    family_table_tie(
        family_table_add(&t, UNIT_EMBED, ROLE_EMBED, "transformer.wte.weight", v, d, SPLIT_ROWS),
        c->tie_word_embeddings);
    family_table_add(&t, UNIT_EMBED, ROLE_POSITIONS, "transformer.wpe.weight",
                     c->max_position_embeddings, d, SPLIT_STREAM);
    add_block(&t, d, c->intermediate_size);
    add_norm(&t, UNIT_HEAD, ROLE_FINAL_NORM, ROLE_FINAL_NORM_BIAS, "transformer.ln_f.weight",
             "transformer.ln_f.bias", d);
    if (!c->tie_word_embeddings) {
        family_table_add(&t, UNIT_HEAD, ROLE_HEAD, "lm_head.weight", v, d, SPLIT_ROWS);
    }
    return family_table_end(&t, defs, num, err);
}

static int64_t gpt2_matmul_params(const ModelConfig *c)
{
    int64_t d = c->hidden_size;
    return c->num_hidden_layers * (4 * d * d + 2 * d * c->intermediate_size) + c->vocab_size * d;
}

static size_t saved_unfused(const ModelConfig *c, struct family_saved saved[FAMILY_SAVED_MAX])
{
    int64_t d = c->hidden_size, f = c->intermediate_size, h = c->num_attention_heads;
    const struct family_saved list[] = {
        {.name = "input", .width = d},
        {.name = "input_norm", .width = d},
        {.name = "q", .width = d, .parts = h},
        {.name = "k", .width = d, .parts = h},
        {.name = "v", .width = d, .parts = h},
        {.name = "probabilities", .per_key = h, .parts = h, .cheap = true},
        {.name = "attention_mask", .per_key = h, .parts = h, .mask = true, .cheap = true},
        {.name = "dropped_probabilities", .per_key = h, .parts = h, .cheap = true},
        {.name = "attention", .width = d, .parts = h},
        {.name = "attention_out_mask", .width = d, .mask = true},
        {.name = "residual", .width = d},
        {.name = "residual_norm", .width = d},
        {.name = "fc", .width = f, .parts = f},
        {.name = "activated", .width = f, .parts = f},
        {.name = "mlp_mask", .width = d, .mask = true},
    };
    _Static_assert(sizeof list / sizeof list[0] <= FAMILY_SAVED_MAX, "saved tensors");
    memcpy(saved, list, sizeof list);
    return sizeof list / sizeof list[0];
}

static size_t saved_fused(const ModelConfig *c, struct family_saved saved[FAMILY_SAVED_MAX])
{
    int64_t d = c->hidden_size, f = c->intermediate_size, h = c->num_attention_heads;
    const struct family_saved list[] = {
        {.name = "input", .width = d},
        {.name = "input_mean", .width = 1, .stat = true},
        {.name = "input_rstd", .width = 1, .stat = true},
        {.name = "input_norm", .width = d, .cheap = true},
        {.name = "q", .width = d, .parts = h},
        {.name = "k", .width = d, .parts = h},
        {.name = "v", .width = d, .parts = h},
        {.name = "attention", .width = d, .parts = h},
        {.name = "attention_lse", .width = h, .stat = true, .parts = h},
        {.name = "residual", .width = d},
        {.name = "residual_mean", .width = 1, .stat = true},
        {.name = "residual_rstd", .width = 1, .stat = true},
        {.name = "residual_norm", .width = d, .cheap = true},
        {.name = "fc", .width = f, .parts = f},
        {.name = "activated", .width = f, .parts = f, .cheap = true},
    };
    _Static_assert(sizeof list / sizeof list[0] <= FAMILY_SAVED_MAX, "saved tensors");
    memcpy(saved, list, sizeof list);
    return sizeof list / sizeof list[0];
}

static size_t gpt2_saved(const ModelConfig *c, enum family_attention attention,
                         struct family_saved saved[FAMILY_SAVED_MAX])
{
    return attention == FAMILY_FUSED ? saved_fused(c, saved) : saved_unfused(c, saved);
}

const struct family family_gpt2 = {
    .model_type = "gpt2",
    .params = gpt2_params,
    .matmul_params = gpt2_matmul_params,
    .saved = gpt2_saved,
};
