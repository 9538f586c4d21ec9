#include "plan/params_layout.h"

#include <stdlib.h>

/* Of all that a rank holds; a bucket's end is never beyond. */
#define FLAT_NUMEL_MAX ((int64_t)1 << 60)

int64_t params_padded(int64_t n)
{
    return (n + PARAMS_ALIGN_NUMEL - 1) / PARAMS_ALIGN_NUMEL * PARAMS_ALIGN_NUMEL;
}

/* Lays out num rows from first on, close together from `offset` on; returns the end. */
static int64_t lay_rows(struct param_table *t, int32_t first, int32_t num, int32_t bucket,
                        int64_t offset)
{
    for (int32_t i = first; i < first + num && offset <= FLAT_NUMEL_MAX; i++) {
        t->params[i].offset = offset;
        t->params[i].bucket = bucket;
        offset += params_padded(t->params[i].numel);
    }
    return offset;
}

static int refuse(int32_t stage_idx, int32_t bucket, struct error *err)
{
    return error_set(err, ERR_INVALID_ARGUMENT,
                     "plan: stage %d: bucket %d doesn't hold the parameters in their order",
                     stage_idx, bucket);
}

static int lay_buckets(struct param_table *t, const Stage *stage, int32_t stage_idx,
                       struct error *err)
{
    int32_t done = 0;
    for (int32_t i = 0; i < t->num_buckets; i++) {
        const Bucket *b = stage->buckets[i];
        if (b->first_param != done || b->num_params < 1 || b->num_params > t->num_params - done ||
            b->offset != t->flat_numel || b->numel < 1 || b->numel > FLAT_NUMEL_MAX ||
            b->numel % PARAMS_ALIGN_NUMEL != 0) {
            return refuse(stage_idx, i, err);
        }
        t->bucket_offsets[i] = b->offset;
        int64_t end = lay_rows(t, done, b->num_params, i, b->offset);
        t->flat_numel += b->numel;
        done += b->num_params;
        if (end > t->flat_numel || t->flat_numel > FLAT_NUMEL_MAX ||
            b->after_unit != t->params[done - 1].unit) {
            return refuse(stage_idx, i, err);
        }
    }
    return done == t->num_params ? 0 : refuse(stage_idx, t->num_buckets, err);
}

int params_lay_out(struct param_table *t, const Stage *stage, int32_t stage_idx, struct error *err)
{
    bool given = stage->n_buckets > 0;
    if (stage->n_buckets > PARAMS_MAX_ROWS) {
        return error_set(err, ERR_INVALID_ARGUMENT, "plan: stage %d has %zu buckets", stage_idx,
                         stage->n_buckets);
    }
    t->num_buckets = given ? (int32_t)stage->n_buckets : 1;
    t->bucket_offsets = calloc((size_t)t->num_buckets, sizeof *t->bucket_offsets);
    if (!t->bucket_offsets) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "parameter table: out of memory");
    }
    if (given) {
        return lay_buckets(t, stage, stage_idx, err);
    }
    t->flat_numel = lay_rows(t, 0, t->num_params, 0, 0);
    return t->flat_numel <= FLAT_NUMEL_MAX
               ? 0
               : error_set(err, ERR_INVALID_ARGUMENT, "plan: stage %d holds too much", stage_idx);
}

bool params_unit_run(const struct param_table *table, int32_t unit, enum param_sum sum,
                     int64_t *begin, int64_t *end)
{
    bool found = false;
    *begin = *end = 0;
    for (int32_t i = 0; i < table->num_params; i++) {
        const struct param *p = &table->params[i];
        if (p->unit == unit && p->sum == sum) {
            *begin = found ? *begin : p->offset;
            *end = p->offset + params_padded(p->numel);
            found = true;
        }
    }
    return found;
}

/* ---- what is written, and what is added up -------------------------------------------------- */

bool params_is_product(const struct param *p)
{
    switch (p->role) {
    case ROLE_EMBED:
        return p->tied;
    case ROLE_HEAD:
    case ROLE_Q:
    case ROLE_K:
    case ROLE_V:
    case ROLE_QKV:
    case ROLE_O:
    case ROLE_GATE:
    case ROLE_UP:
    case ROLE_DOWN:
        return true;
    default:
        return false;
    }
}

bool params_next_sums(struct params_sums *walk, int64_t *begin, int64_t *numel)
{
    const struct param_table *t = walk->table;
    *numel = 0;
    while (*numel == 0 && walk->at < walk->end) {
        int64_t stop = walk->end, behind = walk->end;
        while (walk->next < t->num_params && (t->params[walk->next].offset < walk->at ||
                                              !params_is_product(&t->params[walk->next]))) {
            walk->next++;
        }
        if (walk->next < t->num_params && t->params[walk->next].offset < walk->end) {
            stop = t->params[walk->next].offset;
            behind = stop + t->params[walk->next].numel;
        }
        *begin = walk->at;
        *numel = stop - walk->at;
        walk->at = behind;
    }
    return *numel > 0;
}
