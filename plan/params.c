#include "plan/params.h"

#include <stdlib.h>
#include <string.h>

#include "model/family.h"
#include "plan/mesh.h"
#include "plan/params_layout.h"
#include "plan/stages.h"

/* Of one tensor, and of all that a rank holds: no sum of them overflows. */
#define NUMEL_MAX ((int64_t)1 << 50)

/* What the layout makes of the table. */
struct spread {
    int64_t tensor, expert, num_layers;
};

static bool is_cut(const ParamDef *def, int32_t dim)
{
    return def->tensor_spread == SPREAD_SHARD && def->shard_dim == dim;
}

/* Does the cut dimension come out even? parts and groups in range. */
static bool cuts_well(const ParamDef *def, int64_t size)
{
    if (def->shard_groups < 1 || size % def->shard_groups != 0 || def->shard_parts < 0) {
        return false;
    }
    int64_t block = size / def->shard_groups;
    return def->shard_parts == 0 || (def->shard_parts <= block && block % def->shard_parts == 0);
}

static int64_t local_size(const ParamDef *def, int64_t size, int64_t tensor)
{
    int64_t block = size / def->shard_groups;
    int64_t parts = def->shard_parts > 0 ? def->shard_parts : block;
    return def->shard_groups * ((parts + tensor - 1) / tensor) * (block / parts);
}

static int set_shape(struct param *p, const ParamDef *def, int64_t tensor, struct error *err)
{
    int64_t whole = 1;
    p->num_dims = (int32_t)def->n_shape;
    p->numel = 1;
    for (int32_t i = 0; i < p->num_dims; i++) {
        int64_t size = def->shape[i];
        if (size < 1 || (is_cut(def, i) && !cuts_well(def, size)) ||
            __builtin_mul_overflow(whole, size, &whole) || whole > NUMEL_MAX) {
            return error_set(err, ERR_INVALID_ARGUMENT, "plan: %s: shape is out of range", p->name);
        }
        p->shape[i] = size;
        p->local_shape[i] = is_cut(def, i) ? local_size(def, size, tensor) : size;
        p->numel *= p->local_shape[i];
    }
    if (def->tensor_spread == SPREAD_SHARD &&
        (def->shard_dim < 0 || def->shard_dim >= p->num_dims)) {
        return error_set(err, ERR_INVALID_ARGUMENT, "plan: %s: has no dimension %d", p->name,
                         def->shard_dim);
    }
    return 0;
}

/* What is left to be summed of a def's gradient, by its tags. */
static enum param_sum sum_of(const ParamDef *def, int64_t tensor)
{
    if (tensor == 1) {
        return PARAM_SUM_NONE;
    }
    if (def->tensor_grad == SPREAD_PARTIAL) {
        return PARAM_SUM_TENSOR;
    }
    bool replicas =
        def->tensor_spread == SPREAD_SHARD && def->shard_parts > 0 && def->shard_parts < tensor;
    return replicas ? PARAM_SUM_REPLICAS : PARAM_SUM_NONE;
}

static void set_tags(struct param *p, const ParamDef *def, int64_t tensor)
{
    p->decay = def->decay;
    p->tied = def->tied;
    p->expert = def->num_experts > 0;
    p->init_std = def->init_std;
    p->init_ones = def->init_ones;
    p->role = def->role;
    p->sum = sum_of(def, tensor);
    p->tensor_shard = def->tensor_spread == SPREAD_SHARD;
    p->shard_dim = def->shard_dim;
    p->shard_parts = def->shard_parts;
    p->shard_groups = def->shard_groups;
    p->on_rows = def->on_rows;
    p->in_out = def->in_out;
}

/* Appends one def, for one layer and expert, behind what is there. */
static int add(struct param_table *t, const ParamDef *def, int32_t def_idx, int32_t unit,
               int64_t layer, int64_t expert, int64_t tensor, struct error *err)
{
    struct param *p = &t->params[t->num_params];
    if (!def->name || !family_expert_name(def, layer, expert, p->name, sizeof p->name)) {
        return error_set(err, ERR_INVALID_ARGUMENT, "plan: parameter %d has no usable name",
                         def_idx);
    }
    if (def->n_shape < 1 || def->n_shape > PARAM_DIMS_MAX) {
        return error_set(err, ERR_INVALID_ARGUMENT, "plan: %s has %zu dimensions", p->name,
                         def->n_shape);
    }
    if (set_shape(p, def, tensor, err) != 0) {
        return -1;
    }
    p->unit = unit;
    p->layer = layer;
    p->def_idx = def_idx;
    set_tags(p, def, tensor);
    t->num_params++;
    return 0;
}

/* Rows of the table that one def makes in one layer. */
static int64_t local_experts(const ParamDef *def, int64_t expert)
{
    return def->num_experts > 0 ? (def->num_experts + expert - 1) / expert : 1;
}

/* The last stage's copy of a tied embedding lies in the head's unit. */
static bool belongs(const ParamDef *def, UnitKind kind, bool with_tied)
{
    return def->unit == kind || (with_tied && def->tied && def->unit == UNIT_EMBED);
}

static int add_unit(struct param_table *t, const Plan *plan, const struct spread *s, UnitKind kind,
                    int32_t unit, int64_t layer, bool with_tied, struct error *err)
{
    for (enum param_sum sum = PARAM_SUM_NONE; sum <= PARAM_SUM_TENSOR; sum++) {
        for (size_t i = 0; i < plan->n_params; i++) {
            const ParamDef *def = plan->params[i];
            bool here = belongs(def, kind, with_tied) && sum_of(def, s->tensor) == sum;
            for (int64_t e = 0; here && e < local_experts(def, s->expert); e++) {
                if (add(t, def, (int32_t)i, unit, layer, e, s->tensor, err) != 0) {
                    return -1;
                }
            }
        }
    }
    return 0;
}

static int expand_chunk(const Plan *plan, const struct spread *s, struct stage_chunk c,
                        bool has_embed, struct param_table *t, struct error *err)
{
    int32_t head = (int32_t)s->num_layers + 1;
    if (c.head && add_unit(t, plan, s, UNIT_HEAD, head, -1, !has_embed, err) != 0) {
        return -1;
    }
    for (int64_t l = c.end - 1; l >= c.begin; l--) {
        if (add_unit(t, plan, s, UNIT_BLOCK, (int32_t)l + 1, l, false, err) != 0) {
            return -1;
        }
    }
    return c.embed ? add_unit(t, plan, s, UNIT_EMBED, 0, -1, false, err) : 0;
}

static int expand(const Plan *plan, const Stage *stage, const struct spread *s,
                  struct param_table *t, struct error *err)
{
    bool has_embed = stage_has_embed(stage, s->num_layers);
    for (int32_t i = stage_num_chunks(stage) - 1; i >= 0; i--) {
        struct stage_chunk c = stage_chunk_at(stage, i, s->num_layers);
        if (expand_chunk(plan, s, c, has_embed, t, err) != 0) {
            return -1;
        }
    }
    return 0;
}

static bool layers_usable(const Stage *stage, int64_t num_layers)
{
    int64_t before = 0;
    for (int32_t i = 0; i < stage_num_chunks(stage); i++) {
        struct stage_chunk c = stage_chunk_at(stage, i, num_layers);
        if (c.begin < before || c.begin > c.end || c.end > num_layers) {
            return false;
        }
        before = c.end;
    }
    return true;
}

/* Rows of the table at most; -1: more than it may have. */
static int64_t count_rows(const Plan *plan, const Stage *stage, const struct spread *s)
{
    int64_t block = 0, ends = 0;
    for (size_t i = 0; i < plan->n_params; i++) {
        int64_t rows = local_experts(plan->params[i], s->expert);
        if (rows > PARAMS_MAX_ROWS) {
            return -1;
        }
        *(plan->params[i]->unit == UNIT_BLOCK ? &block : &ends) += rows;
    }
    /* A tied embedding can stand twice. */
    int64_t rows = block * stage_num_layers(stage) + 2 * ends;
    return rows <= PARAMS_MAX_ROWS ? rows : -1;
}

static int find_spread(const Plan *plan, struct spread *s, struct error *err)
{
    *s = (struct spread){1, 1, plan->model->config->num_hidden_layers};
    if (plan->mesh) {
        s->tensor = plan->mesh->tensor;
        s->expert = plan->mesh->expert;
    }
    if (s->tensor < 1 || s->tensor > MESH_MAX_RANKS || s->expert < 1 ||
        s->expert > MESH_MAX_RANKS || s->num_layers < 1 || s->num_layers > 65536) {
        return error_set(err, ERR_INVALID_ARGUMENT, "plan: mesh or layers are out of range");
    }
    return 0;
}

int params_expand(const Plan *plan, int32_t stage_idx, struct param_table *out, struct error *err)
{
    if (stage_idx < 0 || (size_t)stage_idx >= plan->n_stages || !plan->model ||
        !plan->model->config || plan->n_params > 1024) {
        return error_set(err, ERR_INVALID_ARGUMENT, "plan: incomplete");
    }
    const Stage *stage = plan->stages[stage_idx];
    struct spread s;
    if (find_spread(plan, &s, err) != 0) {
        return -1;
    }
    if (!layers_usable(stage, s.num_layers)) {
        return error_set(err, ERR_INVALID_ARGUMENT, "plan: stage %d has no usable layers",
                         stage_idx);
    }
    int64_t max = count_rows(plan, stage, &s);
    if (max < 0) {
        return error_set(err, ERR_INVALID_ARGUMENT,
                         "parallel: stage %d has more than %d tensors; more stages or expert ranks "
                         "lower that",
                         stage_idx, PARAMS_MAX_ROWS);
    }
    struct param_table t = {.params = calloc(max > 0 ? (size_t)max : 1, sizeof *t.params)};
    if (!t.params) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "parameter table: out of memory");
    }
    if (expand(plan, stage, &s, &t, err) != 0 || params_lay_out(&t, stage, stage_idx, err) != 0) {
        params_free(&t);
        return -1;
    }
    *out = t;
    return 0;
}

void params_free(struct param_table *table)
{
    free(table->params);
    free(table->bucket_offsets);
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
