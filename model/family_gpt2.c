/* GPT2LMHeadModel (Radford et al. 2019): learned positions, layer norms with bias, one matrix for
 * q, k and v, a GELU MLP. A weight is [in, out]. Saved tensors without fused attention and with
 * dropout: 34 D + 5 H T bytes a token in bf16 (Korthikanti et al. 2022, section 4). */
#include <string.h>

#include "model/family_others.h"
#include "model/family_table.h"

#define LAYER "transformer.h.{layer}."

static void add_linear(struct family_table *t, const char *weight, const char *bias, int64_t in,
                       int64_t out, enum family_split split)
{
    family_table_add(t, UNIT_BLOCK, weight, in, out, split);
    family_table_add_bias(t, UNIT_BLOCK, bias, out,
                          split == SPLIT_COLUMNS ? SPLIT_ROWS : SPLIT_NONE);
}

static int gpt2_params(const ModelConfig *c, struct arena *arena, ParamDef ***defs, size_t *num,
                       struct error *err)
{
    int64_t d = c->hidden_size, f = c->intermediate_size;
    struct family_table t;
    if (family_table_new(&t, c, arena, err) != 0) {
        return -1;
    }
    ParamDef *embed =
        family_table_add(&t, UNIT_EMBED, "transformer.wte.weight", c->vocab_size, d, SPLIT_ROWS);
    if (embed && c->tie_word_embeddings) {
        embed->has_tied = 1;
        embed->tied = 1;
    }
    family_table_add(&t, UNIT_EMBED, "transformer.wpe.weight", c->max_position_embeddings, d,
                     SPLIT_NONE);
    family_table_add(&t, UNIT_BLOCK, LAYER "ln_1.weight", d, 0, SPLIT_NONE);
    family_table_add_bias(&t, UNIT_BLOCK, LAYER "ln_1.bias", d, SPLIT_NONE);
    add_linear(&t, LAYER "attn.c_attn.weight", LAYER "attn.c_attn.bias", d, 3 * d, SPLIT_COLUMNS);
    add_linear(&t, LAYER "attn.c_proj.weight", LAYER "attn.c_proj.bias", d, d, SPLIT_ROWS);
    family_table_add(&t, UNIT_BLOCK, LAYER "ln_2.weight", d, 0, SPLIT_NONE);
    family_table_add_bias(&t, UNIT_BLOCK, LAYER "ln_2.bias", d, SPLIT_NONE);
    add_linear(&t, LAYER "mlp.c_fc.weight", LAYER "mlp.c_fc.bias", d, f, SPLIT_COLUMNS);
    add_linear(&t, LAYER "mlp.c_proj.weight", LAYER "mlp.c_proj.bias", f, d, SPLIT_ROWS);
    family_table_add(&t, UNIT_HEAD, "transformer.ln_f.weight", d, 0, SPLIT_NONE);
    family_table_add_bias(&t, UNIT_HEAD, "transformer.ln_f.bias", d, SPLIT_NONE);
    if (!c->tie_word_embeddings) {
        family_table_add(&t, UNIT_HEAD, "lm_head.weight", c->vocab_size, d, SPLIT_ROWS);
    }
    return family_table_end(&t, defs, num, err);
}

static int64_t gpt2_matmul_params(const ModelConfig *c)
{
    int64_t d = c->hidden_size;
    return c->num_hidden_layers * (4 * d * d + 2 * d * c->intermediate_size) + c->vocab_size * d;
}

static size_t gpt2_saved(const ModelConfig *c, struct family_saved saved[FAMILY_SAVED_MAX])
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

const struct family family_gpt2 = {
    .model_type = "gpt2",
    .plan_only = true,
    .params = gpt2_params,
    .matmul_params = gpt2_matmul_params,
    .saved = gpt2_saved,
};
