#include "model/family.h"

#include <stdio.h>
#include <string.h>

#include "model/family_llama.h"

static const struct family *const families[] = {&family_llama};

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

bool family_param_name(const ParamDef *def, int64_t layer, char *out, size_t size)
{
    static const char mark[] = "{layer}";
    const char *at = strstr(def->name, mark);
    int n;
    if (at) {
        n = snprintf(out, size, "%.*s%lld%s", (int)(at - def->name), def->name, (long long)layer,
                     at + sizeof mark - 1);
    } else {
        n = snprintf(out, size, "%s", def->name);
    }
    return n >= 0 && (size_t)n < size;
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

int64_t family_num_params(const ModelConfig *config)
{
    struct arena arena = {0};
    ParamDef **defs;
    size_t num;
    ASSERT(family_of(config)->params(config, &arena, &defs, &num, NULL) == 0);
    int64_t total = 0;
    for (size_t i = 0; i < num; i++) {
        int64_t times = defs[i]->unit == UNIT_BLOCK ? config->num_hidden_layers : 1;
        total += times * family_param_numel(defs[i]);
    }
    arena_free(&arena);
    return total;
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
    size_t num = family_of(config)->saved(config, saved);
    int64_t total = 0;
    for (size_t i = 0; i < num; i++) {
        total += saved[i].width;
    }
    return total;
}
