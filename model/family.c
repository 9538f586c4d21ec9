#include "model/family.h"

#include <stdio.h>
#include <string.h>

#include "model/family_llama.h"
#include "model/family_others.h"

static const struct family *const families[] = {&family_llama,   &family_qwen2,     &family_qwen3,
                                                &family_mixtral, &family_qwen3_moe, &family_gpt2};

const struct family *family_find(const char *model_type)
{
    for (size_t i = 0; model_type && i < sizeof families / sizeof families[0]; i++) {
        if (strcmp(families[i]->model_type, model_type) == 0) {
            return families[i];
        }
    }
    return NULL;
}

int32_t family_num_units(const ModelConfig *config)
{
    return (int32_t)config->num_hidden_layers + 2;
}

/* Copies name, with mark replaced by value. */
static bool put_number(const char *name, const char *mark, int64_t value, char *out, size_t size)
{
    const char *at = strstr(name, mark);
    int n;
    if (at) {
        n = snprintf(out, size, "%.*s%lld%s", (int)(at - name), name, (long long)value,
                     at + strlen(mark));
    } else {
        n = snprintf(out, size, "%s", name);
    }
    return n >= 0 && (size_t)n < size;
}

bool family_param_name(const ParamDef *def, int64_t layer, char *out, size_t size)
{
    return put_number(def->name, "{layer}", layer, out, size);
}

bool family_expert_name(const ParamDef *def, int64_t layer, int64_t expert, char *out, size_t size)
{
    char name[256];
    return put_number(def->name, "{expert}", expert, name, sizeof name) &&
           put_number(name, "{layer}", layer, out, size);
}

int family_check_built(const char *field, const ModelConfig *config, struct error *err)
{
    const struct family *f = family_find(config->model_type);
    if (!f || f->plan_only) {
        return error_set(err, ERR_UNIMPLEMENTED,
                         "%s: model_type %s can be planned and not trained yet", field,
                         config->model_type ? config->model_type : "?");
    }
    return 0;
}

int64_t family_param_numel(const ParamDef *def)
{
    int64_t numel = 1;
    for (size_t i = 0; i < def->n_shape; i++) {
        numel *= def->shape[i];
    }
    return numel;
}

static const struct family *family_of(const ModelConfig *config)
{
    const struct family *f = family_find(config->model_type);
    ASSERT(f);
    return f;
}

/* experts: how many of a layer's count. */
static int64_t count_params(const ModelConfig *config, int64_t experts)
{
    struct arena arena = {0};
    ParamDef **defs;
    size_t num;
    ASSERT(family_of(config)->params(config, &arena, &defs, &num, NULL) == 0);
    int64_t total = 0;
    for (size_t i = 0; i < num; i++) {
        int64_t times = defs[i]->unit == UNIT_BLOCK ? config->num_hidden_layers : 1;
        times *= defs[i]->num_experts > 0 ? experts : 1;
        int64_t numel = family_param_numel(defs[i]);
        if (__builtin_mul_overflow(times, numel, &numel) ||
            __builtin_add_overflow(total, numel, &total)) {
            total = INT64_MAX;
            break;
        }
    }
    arena_free(&arena);
    return total;
}

int64_t family_num_params(const ModelConfig *config)
{
    return count_params(config, config->num_experts);
}

int64_t family_num_active_params(const ModelConfig *config)
{
    return count_params(config, config->num_experts_per_tok);
}

double family_flops_per_token(const ModelConfig *config, double mean_attended)
{
    double matmul = 6.0 * (double)family_of(config)->matmul_params(config);
    double heads = (double)config->num_hidden_layers * (double)config->num_attention_heads;
    return matmul + 6.0 * heads * 2.0 * (double)config->head_dim * mean_attended;
}

int64_t family_saved_per_token(const ModelConfig *config)
{
    struct family_saved saved[FAMILY_SAVED_MAX];
    size_t num = family_of(config)->saved(config, FAMILY_FUSED, saved);
    int64_t total = 0;
    for (size_t i = 0; i < num; i++) {
        total += saved[i].width;
    }
    return total;
}
