#include "model/config.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/config_family.h"
#include "model/config_read.h"
#include "model/family.h"
#include "proto/text.h"

/* A config.json is small; tokenizers and weights stand in other files. */
#define CONFIG_MAX_BYTES ((size_t)256 << 10)

#define HIDDEN_MAX ((int64_t)1 << 20)
#define FFN_MAX ((int64_t)1 << 22)
#define LAYERS_MAX ((int64_t)1 << 14)
#define HEADS_MAX ((int64_t)1 << 14)
#define HEAD_DIM_MAX ((int64_t)1 << 13)
#define ATTENTION_WIDTH_MAX ((int64_t)1 << 22) /* heads x width of one */
#define EXPERTS_MAX ((int64_t)1 << 14)
#define VOCAB_MAX ((int64_t)1 << 24)
#define PARAMS_MAX ((int64_t)1 << 50)

/* ---- rope ---- */

static int read_rope(const struct config_reader *r, const json_t *rope, ModelConfig *config)
{
    /* Newer files keep theta in the same object. */
    if (config_read_double(r, rope, "rope_theta", false, &config->rope_theta,
                           &config->has_rope_theta) != 0) {
        return -1;
    }
    const json_t *v = json_object_get(rope, "rope_type");
    const char *type = json_string_value(v ? v : json_object_get(rope, "type"));
    if (!type) {
        return error_set(r->err, ERR_INVALID_ARGUMENT, "%s: rope_scaling has no rope_type",
                         r->path);
    }
    if (strcmp(type, "default") == 0) {
        return 0;
    }
    if (strcmp(type, "llama3") != 0) {
        char found[64];
        snprintf(found, sizeof found, "\"%.40s\"", type);
        return config_refuse(r, "rope_scaling.rope_type", found, "default and llama3 are");
    }
    RopeScaling *s = malloc(sizeof *s);
    ASSERT(s);
    rope_scaling__init(s);
    config->rope_scaling = s;
    s->rope_type = strdup(type);
    ASSERT(s->rope_type);
    if (config_read_double(r, rope, "factor", true, &s->factor, &s->has_factor) != 0 ||
        config_read_double(r, rope, "low_freq_factor", true, &s->low_freq_factor,
                           &s->has_low_freq_factor) != 0 ||
        config_read_double(r, rope, "high_freq_factor", true, &s->high_freq_factor,
                           &s->has_high_freq_factor) != 0) {
        return -1;
    }
    const struct config_reader inner = {.path = r->path, .root = rope, .err = r->err};
    return config_read_int(&inner, "original_max_position_embeddings", true,
                           &s->original_max_position_embeddings,
                           &s->has_original_max_position_embeddings);
}

static int read_ropes(const struct config_reader *r, ModelConfig *config)
{
    static const char *const keys[] = {"rope_scaling", "rope_parameters"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const json_t *rope = json_object_get(r->root, keys[i]);
        if (!rope || json_is_null(rope)) {
            continue;
        }
        if (!json_is_object(rope)) {
            return error_set(r->err, ERR_INVALID_ARGUMENT, "%s: %s is not an object", r->path,
                             keys[i]);
        }
        if (config->rope_scaling) {
            return error_set(r->err, ERR_INVALID_ARGUMENT,
                             "%s: rope_scaling and rope_parameters both ask for a scaling",
                             r->path);
        }
        if (read_rope(r, rope, config) != 0) {
            return -1;
        }
    }
    return 0;
}

/* ---- the whole file ---- */

static int read_model_type(const struct config_reader *r, ModelConfig *config)
{
    const char *type = json_string_value(json_object_get(r->root, "model_type"));
    if (!type) {
        return error_set(r->err, ERR_INVALID_ARGUMENT, "%s: model_type is missing", r->path);
    }
    if (!family_find(type)) {
        char found[64];
        snprintf(found, sizeof found, "\"%.40s\"", type);
        return config_refuse(
            r, "model_type", found,
            "llama, qwen2, qwen3 and gpt2 are; mixtral and qwen3_moe can be planned");
    }
    config->model_type = strdup(type);
    ASSERT(config->model_type);
    return 0;
}

static int read_usual_sizes(const struct config_reader *r, ModelConfig *c)
{
    const struct {
        const char *key;
        bool required;
        int64_t *out;
        protobuf_c_boolean *has;
    } sizes[] = {
        {"hidden_size", true, &c->hidden_size, &c->has_hidden_size},
        {"intermediate_size", true, &c->intermediate_size, &c->has_intermediate_size},
        {"num_hidden_layers", true, &c->num_hidden_layers, &c->has_num_hidden_layers},
        {"num_attention_heads", true, &c->num_attention_heads, &c->has_num_attention_heads},
        {"num_key_value_heads", false, &c->num_key_value_heads, &c->has_num_key_value_heads},
        {"head_dim", false, &c->head_dim, &c->has_head_dim},
        {"vocab_size", true, &c->vocab_size, &c->has_vocab_size},
        {"max_position_embeddings", false, &c->max_position_embeddings,
         &c->has_max_position_embeddings},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        if (config_read_int(r, sizes[i].key, sizes[i].required, sizes[i].out, sizes[i].has) != 0) {
            return -1;
        }
    }
    return 0;
}

static int read_sizes(const struct config_reader *r, ModelConfig *c)
{
    bool all;
    if (config_family_read(r, c, &all) != 0 || (!all && read_usual_sizes(r, c) != 0)) {
        return -1;
    }
    if (!c->has_num_key_value_heads) {
        c->num_key_value_heads = c->num_attention_heads;
        c->has_num_key_value_heads = 1;
    }
    if (!c->has_head_dim) {
        if (c->num_attention_heads < 1 || c->hidden_size % c->num_attention_heads != 0) {
            return error_set(
                r->err, ERR_INVALID_ARGUMENT, "%s: %s %lld is not divisible by %s %lld%s", r->path,
                config_key(c, "hidden_size"), (long long)c->hidden_size,
                config_key(c, "num_attention_heads"), (long long)c->num_attention_heads,
                all ? "" : ", and there is no head_dim");
        }
        c->head_dim = c->hidden_size / c->num_attention_heads;
        c->has_head_dim = 1;
    }
    return 0;
}

static int read_rest(const struct config_reader *r, ModelConfig *c)
{
    return config_read_double(r, r->root, "rms_norm_eps", false, &c->rms_norm_eps,
                              &c->has_rms_norm_eps) != 0 ||
                   config_read_double(r, r->root, "rope_theta", false, &c->rope_theta,
                                      &c->has_rope_theta) != 0 ||
                   config_read_double(r, r->root, "initializer_range", false, &c->initializer_range,
                                      &c->has_initializer_range) != 0 ||
                   config_read_bool(r, "tie_word_embeddings", &c->tie_word_embeddings,
                                    &c->has_tie_word_embeddings) != 0 ||
                   config_read_token_id(r, "bos_token_id", &c->bos_token_id,
                                        &c->has_bos_token_id) != 0 ||
                   config_read_token_id(r, "eos_token_id", &c->eos_token_id,
                                        &c->has_eos_token_id) != 0 ||
                   config_read_token_ids(r, "eos_token_id", &c->eos_token_ids,
                                         &c->n_eos_token_ids) != 0
               ? -1
               : 0;
}

/* Values that the file leaves out are stored as well: a stored plan must not change its meaning
 * when a default does. */
static void mark_present(ModelConfig *c)
{
    c->has_max_position_embeddings = 1;
    c->has_rms_norm_eps = 1;
    c->has_rope_theta = 1;
    c->has_tie_word_embeddings = 1;
    c->has_initializer_range = 1;
}

/* The file's text; where a message can't carry it (carriage returns, control characters), the same
 * keys written anew. */
static void keep_text(ModelConfig *c, const char *text, size_t len, const json_t *root)
{
    c->config_json = strndup(text, len);
    ASSERT(c->config_json);
    if (text_check_message(&c->base, CONFIG_MAX_BYTES, NULL) != 0) {
        free(c->config_json);
        c->config_json = json_dumps(root, JSON_INDENT(2) | JSON_ENSURE_ASCII);
        ASSERT(c->config_json);
        /* The one control character that stays as it is. */
        for (char *at = c->config_json; (at = strchr(at, 0x7f)) != NULL;) {
            *at = '?';
        }
    }
}

int config_parse(const char *path, const char *text, size_t len, ModelConfig **out,
                 struct error *err)
{
    if (len > CONFIG_MAX_BYTES) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "%s: %zu bytes; at most %zu are read", path,
                         len, CONFIG_MAX_BYTES);
    }
    /* The text is kept as a string, which would end there. */
    if (memchr(text, 0, len)) {
        return error_set(err, ERR_INVALID_ARGUMENT, "%s: holds a zero byte: not a text", path);
    }
    json_error_t fault;
    json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &fault);
    if (!root) {
        return error_set(err, ERR_INVALID_ARGUMENT, "%s:%d:%d: %s", path, fault.line, fault.column,
                         fault.text);
    }
    if (!json_is_object(root)) {
        json_decref(root);
        return error_set(err, ERR_INVALID_ARGUMENT, "%s: not a JSON object", path);
    }
    ModelConfig *config = malloc(sizeof *config);
    ASSERT(config);
    model_config__init(config);
    const struct config_reader r = {.path = path, .root = root, .err = err};
    int rc = read_model_type(&r, config) != 0 || config_family_check(&r, config) != 0 ||
                     read_sizes(&r, config) != 0 || read_rest(&r, config) != 0 ||
                     read_ropes(&r, config) != 0 || config_check(path, config, err) != 0
                 ? -1
                 : 0;
    if (rc == 0) {
        mark_present(config);
        keep_text(config, text, len, root);
        *out = config;
    } else {
        model_config__free_unpacked(config, NULL);
    }
    json_decref(root);
    return rc;
}

/* ---- bounds ---- */

static int check_range(const char *path, const char *key, int64_t value, int64_t max,
                       struct error *err)
{
    if (value < 1 || value > max) {
        return error_set(err, ERR_INVALID_ARGUMENT, "%s: %s is %lld; it has to be 1 to %lld", path,
                         key, (long long)value, (long long)max);
    }
    return 0;
}

static int check_number(const char *path, const char *key, double value, double min, double max,
                        struct error *err)
{
    /* Written so that NaN fails. */
    if (!(value >= min && value <= max)) {
        return error_set(err, ERR_INVALID_ARGUMENT, "%s: %s is %g; it has to be %g to %g", path,
                         key, value, min, max);
    }
    return 0;
}

static int check_scaling(const char *path, const RopeScaling *s, struct error *err)
{
    if (!s) {
        return 0;
    }
    if (!s->rope_type || strcmp(s->rope_type, "llama3") != 0) {
        return error_set(err, ERR_UNIMPLEMENTED, "%s: rope_scaling other than llama3", path);
    }
    if (check_number(path, "rope_scaling.factor", s->factor, 1, 1e6, err) != 0 ||
        check_number(path, "rope_scaling.low_freq_factor", s->low_freq_factor, 1e-6, 1e6, err) !=
            0 ||
        check_number(path, "rope_scaling.high_freq_factor", s->high_freq_factor, 1e-6, 1e6, err) !=
            0 ||
        check_range(path, "rope_scaling.original_max_position_embeddings",
                    s->original_max_position_embeddings, INT32_MAX, err) != 0) {
        return -1;
    }
    if (s->high_freq_factor <= s->low_freq_factor) {
        return error_set(err, ERR_INVALID_ARGUMENT,
                         "%s: rope_scaling.high_freq_factor %g has to be above low_freq_factor %g",
                         path, s->high_freq_factor, s->low_freq_factor);
    }
    return 0;
}

static int check_experts(const char *path, const ModelConfig *c, struct error *err)
{
    if (c->num_experts == 0 && !c->has_num_experts) {
        return 0;
    }
    return check_range(path, "num_experts", c->num_experts, EXPERTS_MAX, err) != 0 ||
                   check_range(path, "num_experts_per_tok", c->num_experts_per_tok, c->num_experts,
                               err) != 0 ||
                   check_range(path, "moe_intermediate_size", c->moe_intermediate_size, FFN_MAX,
                               err) != 0
               ? -1
               : 0;
}

static int check_heads(const char *path, const ModelConfig *c, struct error *err)
{
    if (c->num_attention_heads % c->num_key_value_heads != 0) {
        return error_set(err, ERR_INVALID_ARGUMENT,
                         "%s: num_attention_heads %lld is not divisible by num_key_value_heads "
                         "%lld",
                         path, (long long)c->num_attention_heads,
                         (long long)c->num_key_value_heads);
    }
    if (c->head_dim % 2 != 0 && config_family_rotates(c)) {
        return error_set(err, ERR_INVALID_ARGUMENT,
                         "%s: head_dim %lld is odd; rotary embedding needs pairs", path,
                         (long long)c->head_dim);
    }
    if (c->num_attention_heads * c->head_dim > ATTENTION_WIDTH_MAX) {
        return error_set(err, ERR_INVALID_ARGUMENT, "%s: %s x head_dim is %lld; at most %lld", path,
                         config_key(c, "num_attention_heads"),
                         (long long)(c->num_attention_heads * c->head_dim),
                         (long long)ATTENTION_WIDTH_MAX);
    }
    return 0;
}

int config_check(const char *path, const ModelConfig *c, struct error *err)
{
    if (!c->model_type || !family_find(c->model_type)) {
        return error_set(err, ERR_UNIMPLEMENTED, "%s: model_type is not known", path);
    }
    const struct {
        const char *key;
        int64_t value, max;
    } sizes[] = {
        {"hidden_size", c->hidden_size, HIDDEN_MAX},
        {"intermediate_size", c->intermediate_size, FFN_MAX},
        {"num_hidden_layers", c->num_hidden_layers, LAYERS_MAX},
        {"num_attention_heads", c->num_attention_heads, HEADS_MAX},
        {"num_key_value_heads", c->num_key_value_heads, HEADS_MAX},
        {"head_dim", c->head_dim, HEAD_DIM_MAX},
        {"vocab_size", c->vocab_size, VOCAB_MAX},
        {"max_position_embeddings", c->max_position_embeddings, INT32_MAX},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        if (check_range(path, config_key(c, sizes[i].key), sizes[i].value, sizes[i].max, err)) {
            return -1;
        }
    }
    if (check_heads(path, c, err) != 0 || check_experts(path, c, err) != 0 ||
        check_number(path, config_key(c, "rms_norm_eps"), c->rms_norm_eps, 0, 1, err) != 0 ||
        check_number(path, "rope_theta", c->rope_theta, 1, 1e18, err) != 0 ||
        check_number(path, "initializer_range", c->initializer_range, 0, 100, err) != 0 ||
        check_scaling(path, c->rope_scaling, err) != 0) {
        return -1;
    }
    int64_t num_params = family_num_params(c);
    if (num_params > PARAMS_MAX) {
        return error_set(err, ERR_INVALID_ARGUMENT, "%s: %lld parameters; at most %lld", path,
                         (long long)num_params, (long long)PARAMS_MAX);
    }
    return 0;
}
