/* Touvron et al. 2023, section 2.2; grouped heads as in Ainslie et al. 2023. Names and shapes are
 * those of Hugging Face's LlamaForCausalLM: a weight is [out, in]. */
#include "model/family_llama.h"

#include <string.h>

#define LAYER "model.layers.{layer}."

/* How a weight [out, in] lies over the tensor axis: by its output rows, by its input columns, or
 * whole on every rank. */
enum split { SPLIT_NONE, SPLIT_ROWS, SPLIT_COLUMNS };

struct table {
    struct arena *arena;
    ParamDef **defs;
    size_t num;
    double init_std;
    bool full; /* the arena was too small */
};

/* columns 0: a vector. */
static ParamDef *add(struct table *t, UnitKind unit, const char *name, int64_t rows,
                     int64_t columns, enum split split)
{
    ParamDef *d = arena_alloc(t->arena, sizeof *d);
    int64_t *shape = arena_alloc(t->arena, 2 * sizeof *shape);
    char *copy = arena_strdup(t->arena, name);
    if (!d || !shape || !copy) {
        t->full = true;
        return NULL;
    }
    param_def__init(d);
    shape[0] = rows;
    shape[1] = columns;
    d->name = copy;
    d->has_unit = 1;
    d->unit = unit;
    d->n_shape = columns ? 2 : 1;
    d->shape = shape;
    d->has_decay = 1;
    d->decay = columns != 0;
    if (split != SPLIT_NONE) {
        d->has_tensor_spread = 1;
        d->tensor_spread = SPREAD_SHARD;
        d->has_shard_dim = 1;
        d->shard_dim = split == SPLIT_ROWS ? 0 : 1;
        d->has_tensor_grad = 1;
        d->tensor_grad = SPREAD_SHARD;
    }
    if (columns) {
        d->has_init_std = 1;
        d->init_std = t->init_std;
    } else {
        d->has_init_ones = 1;
        d->init_ones = 1;
    }
    t->defs[t->num++] = d;
    return d;
}

static int llama_params(const ModelConfig *c, struct arena *arena, ParamDef ***defs, size_t *num,
                        struct error *err)
{
    int64_t d = c->hidden_size, f = c->intermediate_size;
    int64_t q = c->num_attention_heads * c->head_dim, kv = c->num_key_value_heads * c->head_dim;
    struct table t = {.arena = arena, .init_std = c->initializer_range};
    t.defs = arena_alloc(arena, 12 * sizeof *t.defs);
    if (!t.defs) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "parameter table: out of memory");
    }
    ParamDef *embed =
        add(&t, UNIT_EMBED, "model.embed_tokens.weight", c->vocab_size, d, SPLIT_ROWS);
    if (embed && c->tie_word_embeddings) {
        embed->has_tied = 1;
        embed->tied = 1;
    }
    add(&t, UNIT_BLOCK, LAYER "input_layernorm.weight", d, 0, SPLIT_NONE);
    add(&t, UNIT_BLOCK, LAYER "self_attn.q_proj.weight", q, d, SPLIT_ROWS);
    add(&t, UNIT_BLOCK, LAYER "self_attn.k_proj.weight", kv, d, SPLIT_ROWS);
    add(&t, UNIT_BLOCK, LAYER "self_attn.v_proj.weight", kv, d, SPLIT_ROWS);
    add(&t, UNIT_BLOCK, LAYER "self_attn.o_proj.weight", d, q, SPLIT_COLUMNS);
    add(&t, UNIT_BLOCK, LAYER "post_attention_layernorm.weight", d, 0, SPLIT_NONE);
    add(&t, UNIT_BLOCK, LAYER "mlp.gate_proj.weight", f, d, SPLIT_ROWS);
    add(&t, UNIT_BLOCK, LAYER "mlp.up_proj.weight", f, d, SPLIT_ROWS);
    add(&t, UNIT_BLOCK, LAYER "mlp.down_proj.weight", d, f, SPLIT_COLUMNS);
    add(&t, UNIT_HEAD, "model.norm.weight", d, 0, SPLIT_NONE);
    if (!c->tie_word_embeddings) {
        add(&t, UNIT_HEAD, "lm_head.weight", c->vocab_size, d, SPLIT_ROWS);
    }
    if (t.full) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "parameter table: out of memory");
    }
    *defs = t.defs;
    *num = t.num;
    return 0;
}

static int64_t llama_matmul_params(const ModelConfig *c)
{
    int64_t d = c->hidden_size, e = c->head_dim;
    int64_t attention = 2 * d * e * (c->num_attention_heads + c->num_key_value_heads);
    int64_t mlp = 3 * d * c->intermediate_size;
    return c->num_hidden_layers * (attention + mlp) + c->vocab_size * d;
}

static size_t llama_saved(const ModelConfig *c, struct family_saved saved[FAMILY_SAVED_MAX])
{
    int64_t d = c->hidden_size, f = c->intermediate_size;
    int64_t q = c->num_attention_heads * c->head_dim, kv = c->num_key_value_heads * c->head_dim;
    const struct family_saved list[] = {
        {"input", d, false},
        {"input_rstd", 1, true},
        {"input_norm", d, false},
        {"q", q, false},
        {"k", kv, false},
        {"v", kv, false},
        {"attention", q, false},
        {"attention_lse", c->num_attention_heads, true},
        {"residual", d, false},
        {"residual_rstd", 1, true},
        {"residual_norm", d, false},
        {"gate", f, false},
        {"up", f, false},
        {"activated", f, false},
    };
    _Static_assert(sizeof list / sizeof list[0] <= FAMILY_SAVED_MAX, "saved tensors");
    memcpy(saved, list, sizeof list);
    return sizeof list / sizeof list[0];
}

const struct family family_llama = {
    .model_type = "llama",
    .params = llama_params,
    .matmul_params = llama_matmul_params,
    .saved = llama_saved,
};
