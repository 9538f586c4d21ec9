/* The parameter table: that it is the family's own, and that each parameter's tags follow from what
 * it is to the layers. Stated here once more, apart from the families: a gradient that is summed
 * over too many tensor ranks, or too few, is the mistake that no shape shows. */
#include <string.h>

#include "model/config.h"
#include "model/family.h"
#include "plan/proof_parts.h"

#define TABLE_MAX_BYTES ((size_t)1 << 20)

/* How a parameter with this role lies over the tensor ranks. */
enum lie {
    LIE_OUTPUTS,   /* cut by its outputs, or by rows of the vocabulary */
    LIE_HEADS,     /* by outputs, whole KV heads */
    LIE_INPUTS,    /* cut by its inputs */
    LIE_ROWS,      /* whole; acts on rows of the residual stream */
    LIE_OWN_HEADS, /* whole; acts on each rank's own heads */
};

static bool find_lie(ParamRole role, UnitKind *unit, enum lie *lie)
{
    static const struct {
        ParamRole role;
        UnitKind unit;
        enum lie lie;
    } table[] = {
        {ROLE_EMBED, UNIT_EMBED, LIE_OUTPUTS},
        {ROLE_POSITIONS, UNIT_EMBED, LIE_ROWS},
        {ROLE_ATTN_NORM, UNIT_BLOCK, LIE_ROWS},
        {ROLE_ATTN_NORM_BIAS, UNIT_BLOCK, LIE_ROWS},
        {ROLE_Q, UNIT_BLOCK, LIE_OUTPUTS},
        {ROLE_K, UNIT_BLOCK, LIE_HEADS},
        {ROLE_V, UNIT_BLOCK, LIE_HEADS},
        {ROLE_QKV, UNIT_BLOCK, LIE_OUTPUTS},
        {ROLE_Q_BIAS, UNIT_BLOCK, LIE_OUTPUTS},
        {ROLE_K_BIAS, UNIT_BLOCK, LIE_HEADS},
        {ROLE_V_BIAS, UNIT_BLOCK, LIE_HEADS},
        {ROLE_QKV_BIAS, UNIT_BLOCK, LIE_OUTPUTS},
        {ROLE_Q_NORM, UNIT_BLOCK, LIE_OWN_HEADS},
        {ROLE_K_NORM, UNIT_BLOCK, LIE_OWN_HEADS},
        {ROLE_O, UNIT_BLOCK, LIE_INPUTS},
        {ROLE_O_BIAS, UNIT_BLOCK, LIE_ROWS},
        {ROLE_MLP_NORM, UNIT_BLOCK, LIE_ROWS},
        {ROLE_MLP_NORM_BIAS, UNIT_BLOCK, LIE_ROWS},
        {ROLE_GATE, UNIT_BLOCK, LIE_OUTPUTS},
        {ROLE_UP, UNIT_BLOCK, LIE_OUTPUTS},
        {ROLE_UP_BIAS, UNIT_BLOCK, LIE_OUTPUTS},
        {ROLE_DOWN, UNIT_BLOCK, LIE_INPUTS},
        {ROLE_DOWN_BIAS, UNIT_BLOCK, LIE_ROWS},
        {ROLE_FINAL_NORM, UNIT_HEAD, LIE_ROWS},
        {ROLE_FINAL_NORM_BIAS, UNIT_HEAD, LIE_ROWS},
        {ROLE_HEAD, UNIT_HEAD, LIE_OUTPUTS},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (table[i].role == role) {
            *unit = table[i].unit;
            *lie = table[i].lie;
            return true;
        }
    }
    return false;
}

static bool is_cut(const ParamDef *def, enum lie lie, const ModelConfig *c)
{
    bool last = lie == LIE_INPUTS ? !def->in_out : def->in_out;
    int64_t parts = lie == LIE_HEADS ? c->num_key_value_heads : 0;
    int64_t groups = def->role == ROLE_QKV || def->role == ROLE_QKV_BIAS ? 3 : 1;
    return def->tensor_spread == SPREAD_SHARD && def->tensor_grad == SPREAD_SHARD &&
           def->shard_dim == (last ? (int32_t)def->n_shape - 1 : 0) && def->shard_parts == parts &&
           def->shard_groups == groups && !def->on_rows;
}

static bool tags_right(const Plan *plan, const ParamDef *def)
{
    const ParallelSpec *l = plan->spec->parallel->layout;
    UnitKind unit;
    enum lie lie;
    if (!find_lie(def->role, &unit, &lie) || def->unit != unit || def->num_experts != 0 ||
        (def->tied && def->role != ROLE_EMBED)) {
        return false;
    }
    if (lie != LIE_ROWS && lie != LIE_OWN_HEADS) {
        return is_cut(def, lie, plan->model->config);
    }
    bool own_rows = lie == LIE_ROWS && l->sequence_parallel && l->tensor > 1;
    Spread grad = own_rows || lie == LIE_OWN_HEADS ? SPREAD_PARTIAL : SPREAD_REPLICATE;
    return def->tensor_spread == SPREAD_REPLICATE && def->tensor_grad == grad &&
           def->on_rows == (lie == LIE_ROWS);
}

/* All but the tags, which the layout can change. */
static bool same_def(const ParamDef *a, const ParamDef *b)
{
    return a->name && strcmp(a->name, b->name) == 0 && a->n_shape == b->n_shape &&
           memcmp(a->shape, b->shape, a->n_shape * sizeof *a->shape) == 0 && a->unit == b->unit &&
           a->role == b->role && a->decay == b->decay && a->tied == b->tied &&
           a->in_out == b->in_out && a->num_experts == b->num_experts;
}

/* Against what the family makes of the configuration: shapes that fit the layers. */
static int check_table(const Plan *plan, struct error *err)
{
    struct arena arena = {.max_bytes = TABLE_MAX_BYTES};
    ParamDef **defs;
    size_t num;
    const ModelConfig *c = plan->model->config;
    int rc = family_find(c->model_type)->params(c, &arena, &defs, &num, err);
    bool same = rc == 0 && num == plan->n_params;
    for (size_t i = 0; same && i < num; i++) {
        same = same_def(plan->params[i], defs[i]);
    }
    arena_free(&arena);
    return rc != 0 || same
               ? rc
               : error_set(err, ERR_INVALID_ARGUMENT,
                           "plan: the parameter table is not that of a %s model", c->model_type);
}

int proof_tags(const Plan *plan, struct error *err)
{
    if (config_check("plan", plan->model->config, err) != 0 || check_table(plan, err) != 0) {
        return -1;
    }
    for (size_t i = 0; i < plan->n_params; i++) {
        if (!tags_right(plan, plan->params[i])) {
            return error_set(err, ERR_INVALID_ARGUMENT,
                             "plan: %s: its tags don't say how its gradient lies over the tensor "
                             "ranks",
                             plan->params[i]->name);
        }
    }
    return 0;
}
