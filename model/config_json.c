/* ModelConfig -> the config.json of an export. Keys that the file had and we don't know stay as
 * they were, so that nothing of a model is lost on its way through a job. */
#include "model/config.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static void set_missing(json_t *root, const char *key, json_t *value)
{
    if (json_object_get(root, key)) {
        json_decref(value);
        return;
    }
    ASSERT(json_object_set_new(root, key, value) == 0);
}

static json_t *scaling_to_json(const RopeScaling *s)
{
    if (!s) {
        return json_null();
    }
    return json_pack("{s:s, s:f, s:f, s:f, s:I}", "rope_type", s->rope_type, "factor", s->factor,
                     "low_freq_factor", s->low_freq_factor, "high_freq_factor", s->high_freq_factor,
                     "original_max_position_embeddings",
                     (json_int_t)s->original_max_position_embeddings);
}

static bool is(const ModelConfig *c, const char *model_type)
{
    return strcmp(c->model_type, model_type) == 0;
}

static void set_sizes(json_t *root, const ModelConfig *c)
{
    const struct {
        const char *key;
        int64_t value;
    } sizes[] = {
        {"hidden_size", c->hidden_size},
        {"intermediate_size", c->intermediate_size},
        {"num_hidden_layers", c->num_hidden_layers},
        {"num_attention_heads", c->num_attention_heads},
        {"num_key_value_heads", c->num_key_value_heads},
        {"head_dim", c->head_dim},
        {"vocab_size", c->vocab_size},
        {"max_position_embeddings", c->max_position_embeddings},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        bool follows = strcmp(sizes[i].key, "head_dim") == 0; /* from the others */
        if (!follows || !is(c, "gpt2")) {
            set_missing(root, config_key(c, sizes[i].key),
                        json_integer((json_int_t)sizes[i].value));
        }
    }
}

static const char *architecture(const ModelConfig *c)
{
    static const char *const names[][2] = {
        {"qwen2", "Qwen2ForCausalLM"},        {"qwen3", "Qwen3ForCausalLM"},
        {"gpt2", "GPT2LMHeadModel"},          {"mixtral", "MixtralForCausalLM"},
        {"qwen3_moe", "Qwen3MoeForCausalLM"},
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (is(c, names[i][0])) {
            return names[i][1];
        }
    }
    return "LlamaForCausalLM";
}

/* Its dropouts are 0.1 in transformers where the file has none. */
static void set_gpt2(json_t *root)
{
    set_missing(root, "activation_function", json_string("gelu_new"));
    set_missing(root, "attn_pdrop", json_real(0));
    set_missing(root, "embd_pdrop", json_real(0));
    set_missing(root, "resid_pdrop", json_real(0));
}

static void set_rotating(json_t *root, const ModelConfig *c)
{
    set_missing(root, "hidden_act", json_string("silu"));
    if (is(c, "llama")) {
        set_missing(root, "attention_bias", json_false());
        set_missing(root, "mlp_bias", json_false());
    }
    if (!json_object_get(root, "rope_parameters")) {
        set_missing(root, "rope_theta", json_real(c->rope_theta));
        set_missing(root, "rope_scaling", scaling_to_json(c->rope_scaling));
    }
}

/* What transformers would otherwise fill in by its own defaults, which may differ from ours. */
static void set_rest(json_t *root, const ModelConfig *c)
{
    set_missing(root, "model_type", json_string(c->model_type));
    set_missing(root, "architectures", json_pack("[s]", architecture(c)));
    set_missing(root, config_key(c, "rms_norm_eps"), json_real(c->rms_norm_eps));
    set_missing(root, "initializer_range", json_real(c->initializer_range));
    set_missing(root, "tie_word_embeddings", json_boolean(c->tie_word_embeddings));
    if (is(c, "gpt2")) {
        set_gpt2(root);
    } else {
        set_rotating(root, c);
    }
    if (c->has_bos_token_id) {
        set_missing(root, "bos_token_id", json_integer((json_int_t)c->bos_token_id));
    }
    if (c->has_eos_token_id) {
        set_missing(root, "eos_token_id", json_integer((json_int_t)c->eos_token_id));
    }
}

char *config_to_json(const ModelConfig *config, const char *torch_dtype)
{
    json_t *root = NULL;
    if (config->config_json) {
        root = json_loads(config->config_json, 0, NULL);
    }
    if (!json_is_object(root)) {
        json_decref(root);
        root = json_object();
        ASSERT(root);
    }
    set_sizes(root, config);
    set_rest(root, config);
    ASSERT(json_object_set_new(root, "torch_dtype", json_string(torch_dtype)) == 0);
    if (json_object_get(root, "dtype")) {
        ASSERT(json_object_set_new(root, "dtype", json_string(torch_dtype)) == 0);
    }
    char *text = json_dumps(root, JSON_INDENT(2) | JSON_SORT_KEYS);
    ASSERT(text);
    json_decref(root);
    return text;
}
