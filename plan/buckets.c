#include "plan/buckets.h"

#include <stdlib.h>

/* Index behind the last parameter of the bucket that begins at first. */
static int32_t bucket_end(const struct param_table *t, int32_t first,
                          const struct bucket_rule *rule)
{
    double limit_numel = rule->mb * 1048576.0 / (double)rule->grad_size;
    int64_t begin = t->params[first].offset;
    int32_t i = first;
    while (i < t->num_params) {
        const struct param *p = &t->params[i++];
        bool full = rule->by_unit ? i < t->num_params && t->params[i].unit != p->unit
                                  : (double)(p->offset + p->numel - begin) >= limit_numel;
        if (full) {
            break;
        }
    }
    return i;
}

static int64_t offset_of(const struct param_table *t, int32_t i)
{
    return i < t->num_params ? t->params[i].offset : t->flat_numel;
}

/* The bucket begins where all before it end. */
static Bucket *bucket_new(const struct param_table *t, int32_t first, int32_t end, int64_t offset,
                          const struct bucket_rule *rule)
{
    Bucket *b = malloc(sizeof *b);
    ASSERT(b);
    bucket__init(b);
    int64_t even = rule->shards * PARAMS_ALIGN_NUMEL;
    b->has_first_param = b->has_num_params = b->has_offset = b->has_numel = b->has_after_unit = 1;
    b->first_param = first;
    b->num_params = end - first;
    b->offset = offset;
    b->numel = (offset_of(t, end) - offset_of(t, first) + even - 1) / even * even;
    b->after_unit = t->params[end - 1].unit;
    return b;
}

static int refuse(const struct param_table *t, const struct bucket_rule *rule, size_t num,
                  struct error *err)
{
    if (rule->by_unit) {
        return error_set(err, ERR_INVALID_ARGUMENT,
                         "parallel.zero_stage: 2 and 3 make a bucket of each of the %zu units, at "
                         "most %d; use 1",
                         num, BUCKETS_MAX);
    }
    double total_mb = (double)t->flat_numel * (double)rule->grad_size / 1048576.0;
    return error_set(err, ERR_INVALID_ARGUMENT,
                     "parallel.bucket_mb: %g makes %zu buckets, at most %d; try %.3g", rule->mb,
                     num, BUCKETS_MAX, total_mb / 1000);
}

int buckets_build(Stage *stage, const struct param_table *table, const struct bucket_rule *rule,
                  struct error *err)
{
    size_t num = 0;
    for (int32_t i = 0; i < table->num_params; i = bucket_end(table, i, rule)) {
        num++;
    }
    if (num > BUCKETS_MAX) {
        return refuse(table, rule, num, err);
    }
    stage->buckets = calloc(num ? num : 1, sizeof(Bucket *));
    ASSERT(stage->buckets);
    int64_t offset = 0;
    for (int32_t i = 0; i < table->num_params;) {
        int32_t end = bucket_end(table, i, rule);
        Bucket *b = bucket_new(table, i, end, offset, rule);
        stage->buckets[stage->n_buckets++] = b;
        offset += b->numel;
        i = end;
    }
    stage->has_flat_numel = 1;
    stage->flat_numel = offset;
    return 0;
}
