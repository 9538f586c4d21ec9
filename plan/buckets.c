#include "plan/buckets.h"

#include <stdlib.h>

/* Index behind the last parameter of the bucket that begins at first. */
static int32_t bucket_end(const struct param_table *t, int32_t first, double limit_numel)
{
    int64_t begin = t->params[first].offset;
    int32_t i = first;
    while (i < t->num_params) {
        const struct param *p = &t->params[i++];
        if ((double)(p->offset + p->numel - begin) >= limit_numel) {
            break;
        }
    }
    return i;
}

static int64_t offset_of(const struct param_table *t, int32_t i)
{
    return i < t->num_params ? t->params[i].offset : t->flat_numel;
}

static Bucket *bucket_new(const struct param_table *t, int32_t first, int32_t end)
{
    Bucket *b = malloc(sizeof *b);
    ASSERT(b);
    bucket__init(b);
    b->has_first_param = b->has_num_params = b->has_offset = b->has_numel = b->has_after_unit = 1;
    b->first_param = first;
    b->num_params = end - first;
    b->offset = offset_of(t, first);
    b->numel = offset_of(t, end) - b->offset;
    b->after_unit = t->params[end - 1].unit;
    return b;
}

int buckets_build(Stage *stage, const struct param_table *table, double bucket_mb,
                  int64_t grad_size, struct error *err)
{
    double limit_numel = bucket_mb * 1048576.0 / (double)grad_size;
    size_t num = 0;
    for (int32_t i = 0; i < table->num_params; i = bucket_end(table, i, limit_numel)) {
        num++;
    }
    if (num > BUCKETS_MAX) {
        double total_mb = (double)table->flat_numel * (double)grad_size / 1048576.0;
        return error_set(err, ERR_INVALID_ARGUMENT,
                         "parallel.bucket_mb: %g makes %zu buckets, at most %d; try %.3g",
                         bucket_mb, num, BUCKETS_MAX, total_mb / 1000);
    }
    stage->buckets = calloc(num ? num : 1, sizeof(Bucket *));
    ASSERT(stage->buckets);
    for (int32_t i = 0; i < table->num_params;) {
        int32_t end = bucket_end(table, i, limit_numel);
        stage->buckets[stage->n_buckets++] = bucket_new(table, i, end);
        i = end;
    }
    return 0;
}
