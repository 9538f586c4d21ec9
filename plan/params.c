#include "plan/params.h"

#include <stdlib.h>
#include <string.h>

#include "model/family.h"

static int64_t round_up(int64_t n)
{
    return (n + PARAMS_ALIGN_NUMEL - 1) / PARAMS_ALIGN_NUMEL * PARAMS_ALIGN_NUMEL;
}

/* Appends one def, for one layer, behind what is there. */
static int add(struct param_table *t, const ParamDef *def, int32_t def_idx, int32_t unit,
               int64_t layer, struct error *err)
{
    struct param *p = &t->params[t->num_params];
    if (!def->name || !family_param_name(def, layer, p->name, sizeof p->name)) {
        return error_set(err, ERR_INVALID_ARGUMENT, "plan: parameter %d has no usable name",
                         def_idx);
    }
    if (def->n_shape < 1 || def->n_shape > PARAM_DIMS_MAX) {
        return error_set(err, ERR_INVALID_ARGUMENT, "plan: %s has %zu dimensions", p->name,
                         def->n_shape);
    }
    p->unit = unit;
    p->layer = layer;
    p->def_idx = def_idx;
    p->num_dims = (int32_t)def->n_shape;
    p->numel = 1;
    for (int32_t i = 0; i < p->num_dims; i++) {
        int64_t size = def->shape[i];
        if (size < 1 || __builtin_mul_overflow(p->numel, size, &p->numel) ||
            p->numel > ((int64_t)1 << 50)) {
            return error_set(err, ERR_INVALID_ARGUMENT, "plan: %s: shape is out of range", p->name);
        }
        p->shape[i] = size;
        p->local_shape[i] = size;
    }
    p->offset = t->flat_numel;
    p->decay = def->decay;
    p->tied = def->tied;
    p->init_std = def->init_std;
    p->init_ones = def->init_ones;
    t->flat_numel += round_up(p->numel);
    t->num_params++;
    return 0;
}

static int add_unit(struct param_table *t, const Plan *plan, UnitKind kind, int32_t unit,
                    int64_t layer, struct error *err)
{
    for (size_t i = 0; i < plan->n_params; i++) {
        if (plan->params[i]->unit == kind &&
            add(t, plan->params[i], (int32_t)i, unit, layer, err) != 0) {
            return -1;
        }
    }
    return 0;
}

static int expand(const Plan *plan, const Stage *stage, int64_t num_layers, struct param_table *t,
                  struct error *err)
{
    if (stage->layer_end == num_layers &&
        add_unit(t, plan, UNIT_HEAD, (int32_t)num_layers + 1, -1, err) != 0) {
        return -1;
    }
    for (int64_t l = stage->layer_end - 1; l >= stage->layer_begin; l--) {
        if (add_unit(t, plan, UNIT_BLOCK, (int32_t)l + 1, l, err) != 0) {
            return -1;
        }
    }
    return stage->layer_begin == 0 ? add_unit(t, plan, UNIT_EMBED, 0, -1, err) : 0;
}

int params_expand(const Plan *plan, int32_t stage_idx, struct param_table *out, struct error *err)
{
    if (stage_idx < 0 || (size_t)stage_idx >= plan->n_stages || !plan->model ||
        !plan->model->config || plan->n_params > 1024) {
        return error_set(err, ERR_INVALID_ARGUMENT, "plan: incomplete");
    }
    if (plan->mesh && plan->mesh->tensor != 1) {
        return error_set(err, ERR_UNIMPLEMENTED, "parallel.tensor above 1 is not supported yet");
    }
    const Stage *stage = plan->stages[stage_idx];
    int64_t num_layers = plan->model->config->num_hidden_layers;
    if (num_layers < 1 || num_layers > 65536 || stage->layer_begin < 0 ||
        stage->layer_begin > stage->layer_end || stage->layer_end > num_layers) {
        return error_set(err, ERR_INVALID_ARGUMENT, "plan: stage %d has no usable layers",
                         stage_idx);
    }
    size_t max = plan->n_params * (size_t)(num_layers + 2);
    struct param_table t = {.params = calloc(max ? max : 1, sizeof *t.params)};
    if (!t.params) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "parameter table: out of memory");
    }
    if (expand(plan, stage, num_layers, &t, err) != 0) {
        params_free(&t);
        return -1;
    }
    *out = t;
    return 0;
}

void params_free(struct param_table *table)
{
    free(table->params);
    *table = (struct param_table){0};
}

int32_t params_find(const struct param_table *table, const char *name)
{
    for (int32_t i = 0; i < table->num_params; i++) {
        if (strcmp(table->params[i].name, name) == 0) {
            return i;
        }
    }
    return -1;
}
