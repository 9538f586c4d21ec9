#include "model/family_table.h"

int family_table_new(struct family_table *t, const ModelConfig *c, struct arena *arena,
                     struct error *err)
{
    *t = (struct family_table){.arena = arena, .init_std = c->initializer_range};
    t->defs = arena_alloc(arena, FAMILY_TABLE_MAX * sizeof *t->defs);
    return t->defs ? 0 : error_set(err, ERR_RESOURCE_EXHAUSTED, "parameter table: out of memory");
}

static void set_split(ParamDef *d, enum family_split split)
{
    if (split == SPLIT_STREAM) {
        d->has_on_rows = 1;
        d->on_rows = 1;
    } else if (split != SPLIT_NONE) {
        d->has_tensor_spread = 1;
        d->tensor_spread = SPREAD_SHARD;
        d->has_shard_dim = 1;
        d->shard_dim = split == SPLIT_ROWS ? 0 : 1;
        d->has_tensor_grad = 1;
        d->tensor_grad = SPREAD_SHARD;
    }
}

ParamDef *family_table_add(struct family_table *t, UnitKind unit, ParamRole role, const char *name,
                           int64_t rows, int64_t columns, enum family_split split)
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
    d->has_role = 1;
    d->role = role;
    d->n_shape = columns ? 2 : 1;
    d->shape = shape;
    d->has_decay = 1;
    d->decay = columns != 0;
    set_split(d, split);
    if (columns) {
        d->has_init_std = 1;
        d->init_std = t->init_std;
    } else {
        d->has_init_ones = 1;
        d->init_ones = 1;
    }
    ASSERT(t->num < FAMILY_TABLE_MAX);
    t->defs[t->num++] = d;
    return d;
}

ParamDef *family_table_add_bias(struct family_table *t, UnitKind unit, ParamRole role,
                                const char *name, int64_t rows, enum family_split split)
{
    ParamDef *d = family_table_add(t, unit, role, name, rows, 0, split);
    if (d) {
        d->init_ones = 0;
        d->has_init_std = 1;
        d->init_std = 0;
    }
    return d;
}

void family_table_tie(ParamDef *def, bool tied)
{
    if (def && tied) {
        def->has_tied = 1;
        def->tied = 1;
    }
}

int family_table_end(const struct family_table *t, ParamDef ***defs, size_t *num, struct error *err)
{
    if (t->full) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "parameter table: out of memory");
    }
    *defs = t->defs;
    *num = t->num;
    return 0;
}
