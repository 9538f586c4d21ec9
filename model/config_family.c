#include "model/config_family.h"

#include <stdio.h>
#include <string.h>

#include "model/config.h"

static bool is(const ModelConfig *c, const char *model_type)
{
    return strcmp(c->model_type, model_type) == 0;
}

static bool has_experts(const ModelConfig *c)
{
    return is(c, "mixtral") || is(c, "qwen3_moe");
}

bool config_family_rotates(const ModelConfig *c)
{
    return !is(c, "gpt2");
}

const char *config_key(const ModelConfig *config, const char *usual)
{
    static const char *const gpt2[][2] = {
        {"hidden_size", "n_embd"},
        {"intermediate_size", "n_inner"},
        {"num_hidden_layers", "n_layer"},
        {"num_attention_heads", "n_head"},
        {"num_key_value_heads", "n_head"},
        {"max_position_embeddings", "n_positions"},
        {"rms_norm_eps", "layer_norm_epsilon"},
    };
    for (size_t i = 0; is(config, "gpt2") && i < sizeof gpt2 / sizeof gpt2[0]; i++) {
        if (strcmp(gpt2[i][0], usual) == 0) {
            return gpt2[i][1];
        }
    }
    return usual;
}

/* ---- what would change the arithmetic and isn't known ---- */

/* same: another word for the same function. */
static int check_activation(const struct config_reader *r, const char *key, const char *known,
                            const char *same)
{
    const json_t *v = json_object_get(r->root, key);
    const char *word = json_string_value(v);
    if (!v || json_is_null(v) || (word && (strcmp(word, known) == 0 || strcmp(word, same) == 0))) {
        return 0;
    }
    char found[64], wanted[64];
    snprintf(found, sizeof found, "\"%.40s\"", word ? word : "?");
    snprintf(wanted, sizeof wanted, "%s is", known);
    return config_refuse(r, key, found, wanted);
}

/* Newer files list how each layer attends. */
static int check_layer_types(const struct config_reader *r)
{
    const json_t *list = json_object_get(r->root, "layer_types"), *v;
    size_t i;
    json_array_foreach(list, i, v)
    {
        const char *word = json_string_value(v);
        if (!word || strcmp(word, "full_attention") != 0) {
            return config_refuse(r, "layer_types", "with another than full_attention",
                                 "full_attention is");
        }
    }
    return 0;
}

/* Qwen's files name a window and say whether it is used. */
static int check_window(const struct config_reader *r)
{
    const json_t *used = json_object_get(r->root, "use_sliding_window");
    if (json_is_false(used)) {
        return 0;
    }
    return config_refuse_present(r, "sliding_window");
}

static int check_experts(const struct config_reader *r, const ModelConfig *c)
{
    if (!has_experts(c)) {
        return config_refuse_present(r, "num_local_experts") != 0 ||
                       config_refuse_present(r, "num_experts") != 0
                   ? -1
                   : 0;
    }
    const json_t *dense = json_object_get(r->root, "mlp_only_layers");
    if (json_array_size(dense) > 0) {
        return config_refuse(r, "mlp_only_layers", "with layers in it",
                             "all layers have to have experts");
    }
    return config_refuse_unless(r, "decoder_sparse_step", 1);
}

/* A file says how its model was trained once; how it is trained now the job says. */
static const char *const dropouts[] = {"attention_dropout", "attn_pdrop", "embd_pdrop",
                                       "resid_pdrop"};
#define NUM_DROPOUTS (sizeof dropouts / sizeof dropouts[0])

static int check_dropouts(const struct config_reader *r)
{
    for (size_t i = 0; i < NUM_DROPOUTS; i++) {
        const json_t *v = json_object_get(r->root, dropouts[i]);
        double p = json_number_value(v);
        if (v && !json_is_null(v) && !(json_is_number(v) && p >= 0 && p <= 1)) {
            return error_set(r->err, ERR_INVALID_ARGUMENT, "%s: %s is not a number from 0 to 1",
                             r->path, dropouts[i]);
        }
    }
    return 0;
}

double config_dropout(const ModelConfig *config)
{
    json_t *root = config->config_json ? json_loads(config->config_json, 0, NULL) : NULL;
    double most = 0;
    for (size_t i = 0; i < NUM_DROPOUTS; i++) {
        double p = json_number_value(json_object_get(root, dropouts[i]));
        most = p > most ? p : most;
    }
    json_decref(root);
    return most;
}

static int check_gpt2(const struct config_reader *r)
{
    if (json_is_false(json_object_get(r->root, "scale_attn_weights"))) {
        return config_refuse(r, "scale_attn_weights", "false", "it has to be true");
    }
    return check_activation(r, "activation_function", "gelu_new", "gelu_pytorch_tanh") != 0 ||
                   config_refuse_true(r, "scale_attn_by_inverse_layer_idx") != 0 ||
                   config_refuse_true(r, "add_cross_attention") != 0 ||
                   config_refuse_present(r, "quantization_config") != 0
               ? -1
               : 0;
}

int config_family_check(const struct config_reader *r, const ModelConfig *c)
{
    static const char *const bools[] = {"attention_bias", "mlp_bias", "use_qk_norm"};
    if (check_dropouts(r) != 0) {
        return -1;
    }
    if (is(c, "gpt2")) {
        return check_gpt2(r);
    }
    if (check_activation(r, "hidden_act", "silu", "swish") != 0) {
        return -1;
    }
    for (size_t i = 0; i < sizeof bools / sizeof bools[0]; i++) {
        if (config_refuse_true(r, bools[i]) != 0) {
            return -1;
        }
    }
    return check_window(r) != 0 || check_layer_types(r) != 0 ||
                   config_refuse_present(r, "quantization_config") != 0 ||
                   check_experts(r, c) != 0 || config_refuse_unless(r, "pretraining_tp", 1) != 0 ||
                   config_refuse_unless(r, "partial_rotary_factor", 1) != 0
               ? -1
               : 0;
}

/* ---- sizes ---- */

static int read_experts(const struct config_reader *r, ModelConfig *c)
{
    bool mixtral = is(c, "mixtral");
    return config_read_int(r, mixtral ? "num_local_experts" : "num_experts", true, &c->num_experts,
                           &c->has_num_experts) != 0 ||
                   config_read_int(r, "num_experts_per_tok", true, &c->num_experts_per_tok,
                                   &c->has_num_experts_per_tok) != 0 ||
                   config_read_int(r, mixtral ? "intermediate_size" : "moe_intermediate_size", true,
                                   &c->moe_intermediate_size, &c->has_moe_intermediate_size) != 0
               ? -1
               : 0;
}

static int read_gpt2(const struct config_reader *r, ModelConfig *c)
{
    c->has_tie_word_embeddings = 1;
    c->tie_word_embeddings = 1;
    if (config_read_int(r, "n_embd", true, &c->hidden_size, &c->has_hidden_size) != 0 ||
        config_read_int(r, "n_inner", false, &c->intermediate_size, &c->has_intermediate_size) !=
            0 ||
        config_read_int(r, "n_layer", true, &c->num_hidden_layers, &c->has_num_hidden_layers) !=
            0 ||
        config_read_int(r, "n_head", true, &c->num_attention_heads, &c->has_num_attention_heads) !=
            0 ||
        config_read_int(r, "n_positions", true, &c->max_position_embeddings,
                        &c->has_max_position_embeddings) != 0 ||
        config_read_int(r, "vocab_size", true, &c->vocab_size, &c->has_vocab_size) != 0 ||
        config_read_double(r, r->root, "layer_norm_epsilon", false, &c->rms_norm_eps,
                           &c->has_rms_norm_eps) != 0) {
        return -1;
    }
    if (!c->has_rms_norm_eps) {
        c->has_rms_norm_eps = 1;
        c->rms_norm_eps = 1e-5;
    }
    if (!c->has_intermediate_size && c->hidden_size > 0 && c->hidden_size < INT32_MAX) {
        c->has_intermediate_size = 1;
        c->intermediate_size = 4 * c->hidden_size;
    }
    return 0;
}

int config_family_read(const struct config_reader *r, ModelConfig *c, bool *all)
{
    *all = is(c, "gpt2");
    if (*all) {
        return read_gpt2(r, c);
    }
    if (is(c, "qwen3")) {
        /* Where the file has none it isn't hidden_size / num_attention_heads. */
        c->has_head_dim = 1;
        c->head_dim = 128;
    }
    return has_experts(c) ? read_experts(r, c) : 0;
}
