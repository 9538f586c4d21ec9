/* Who owns what: the slices of the buckets, the units' buckets, and the runs of elements that the
 * optimizer steps over and that the norm counts. */
#include <stdlib.h>

#include "runtime/parallel/store_private.h"

/* ---- slices ---------------------------------------------------------------------------------- */

static int lay_out_bucket(struct store *s, int32_t i, int64_t offset, struct error *err)
{
    const Bucket *b = s->o.stage->buckets[i];
    int64_t n = s->num_shards, left = s->o.table->flat_numel - offset;
    if (b->offset != offset || b->numel < 0 || b->numel > left || b->numel % n != 0 ||
        offset % n != 0)
        return error_set(err, ERR_INVALID_ARGUMENT,
                         "the plan's bucket %d (elements %lld and %lld more) can't be shared out "
                         "over %lld ranks",
                         i, (long long)b->offset, (long long)b->numel, (long long)n);
    int64_t part = b->numel / n;
    s->buckets[i] = (struct store_bucket){
        .slice = {offset + part * s->o.axes->shard_idx, part, offset / n},
        .offset = offset,
        .numel = b->numel,
        .weight_slot = -1,
        .grad_slot = -1,
        .is_fresh = true,
    };
    return 0;
}

static int lay_out_buckets(struct store *s, struct error *err)
{
    int64_t offset = 0;
    for (int32_t i = 0; i < s->num_buckets; i++) {
        if (lay_out_bucket(s, i, offset, err) != 0)
            return -1;
        offset += s->buckets[i].numel;
    }
    if (offset != s->o.table->flat_numel)
        return error_set(err, ERR_INVALID_ARGUMENT,
                         "the plan's buckets hold %lld elements, its parameters %lld",
                         (long long)offset, (long long)s->o.table->flat_numel);
    return 0;
}

/* The same ranges twice: where they lie in a sharded buffer, where in the gradients. */
static void lay_out_owned(struct store *s)
{
    s->whole = (struct flat_range){0, s->o.table->flat_numel, 0};
    if (s->num_shards == 1) {
        s->owned[0] = s->sums[0] = s->whole;
        s->num_owned = 1;
        return;
    }
    for (int32_t i = 0; i < s->num_buckets; i++) {
        s->owned[i] = s->sums[i] = s->buckets[i].slice;
        if (s->zero_stage < 2)
            s->sums[i].at = s->sums[i].begin;
    }
    s->num_owned = s->num_buckets;
}

/* ---- units ----------------------------------------------------------------------------------- */

static int check_param(const struct store *s, const struct param *p, struct error *err)
{
    const struct store_bucket *b =
        p->bucket >= 0 && p->bucket < s->num_buckets ? &s->buckets[p->bucket] : NULL;
    if (b != NULL && p->unit >= 0 && p->offset >= b->offset &&
        p->offset + p->numel <= b->offset + b->numel)
        return 0;
    return error_set(err, ERR_INVALID_ARGUMENT, "the plan's bucket %d doesn't hold %s", p->bucket,
                     p->name);
}

static void add_to_unit(struct store_unit *u, int32_t bucket)
{
    bool empty = u->first_bucket == u->end_bucket;
    if (empty || bucket < u->first_bucket)
        u->first_bucket = bucket;
    if (empty || bucket >= u->end_bucket)
        u->end_bucket = bucket + 1;
}

static int lay_out_units(struct store *s, struct error *err)
{
    const struct param_table *t = s->o.table;
    for (int32_t i = 0; i < t->num_params; i++) {
        if (check_param(s, &t->params[i], err) != 0)
            return -1;
        if (t->params[i].unit >= s->num_units)
            s->num_units = t->params[i].unit + 1;
    }
    s->units = calloc((size_t)s->num_units + 1, sizeof(*s->units));
    if (s->units == NULL)
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "no memory for the store's units");
    for (int32_t u = 0; u < s->num_units; u++)
        s->units[u].tied_bucket = -1;
    for (int32_t i = 0; i < t->num_params; i++) {
        const struct param *p = &t->params[i];
        add_to_unit(&s->units[p->unit], p->bucket);
        if (p->tied && p->unit == 0)
            s->units[s->num_units - 1].tied_bucket = p->bucket;
    }
    return 0;
}

int store_lay_out(struct store *s, struct error *err)
{
    size_t num = (size_t)s->num_buckets + 1;
    s->buckets = calloc(num, sizeof(*s->buckets));
    s->owned = calloc(num, sizeof(*s->owned));
    s->sums = calloc(num, sizeof(*s->sums));
    if (s->buckets == NULL || s->owned == NULL || s->sums == NULL)
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "no memory for the store's %d buckets",
                         s->num_buckets);
    if (lay_out_buckets(s, err) != 0 || lay_out_units(s, err) != 0)
        return -1;
    lay_out_owned(s);
    return 0;
}

/* ---- runs ------------------------------------------------------------------------------------ */

/* Elements of the flat layout that are this rank's and one parameter's, the padding behind it
 * included: that is zero everywhere and stays so. */
struct extent {
    const struct param *param;
    int64_t begin, numel;
};

static struct extent own_extent(const struct store *s, int32_t param_idx)
{
    const struct param_table *t = s->o.table;
    const struct param *p = &t->params[param_idx];
    const struct flat_range *slice = &s->buckets[p->bucket].slice;
    int64_t begin = p->offset, slice_end = slice->begin + slice->numel;
    int64_t end = param_idx + 1 < t->num_params ? t->params[param_idx + 1].offset : t->flat_numel;
    begin = begin > slice->begin ? begin : slice->begin;
    end = end < slice_end ? end : slice_end;
    return (struct extent){p, begin, end > begin ? end - begin : 0};
}

/* Where element idx of the flat layout, one of the slice, lies in a buffer that is shared out from
 * a ZeRO stage on. */
static int64_t place_of(const struct store *s, const struct extent *e, int32_t from_stage)
{
    const struct flat_range *slice = &s->buckets[e->param->bucket].slice;
    return s->zero_stage < from_stage ? e->begin : slice->at + (e->begin - slice->begin);
}

static struct optimizer_run run_of(const struct store *s, const struct extent *e)
{
    return (struct optimizer_run){
        .w = place_of(s, e, s->masters != NULL ? 1 : 3),
        .low = place_of(s, e, 3),
        .g = place_of(s, e, 2),
        .m = place_of(s, e, 1),
        .numel = e->numel,
        .decay = e->param->decay,
    };
}

static bool follows(const struct optimizer_run *a, const struct optimizer_run *b)
{
    return a->decay == b->decay && a->w + a->numel == b->w && a->g + a->numel == b->g &&
           a->m + a->numel == b->m && a->low + a->numel == b->low;
}

int store_open_optimizer(struct store *s, struct error *err)
{
    int32_t num_params = s->o.table->num_params, num = 0;
    struct optimizer_run *runs = calloc((size_t)num_params + 1, sizeof(*runs));
    if (runs == NULL)
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "no memory for the optimizer's runs");
    for (int32_t i = 0; i < num_params; i++) {
        struct extent e = own_extent(s, i);
        struct optimizer_run run = run_of(s, &e);
        if (e.numel > 0 && num > 0 && follows(&runs[num - 1], &run))
            runs[num - 1].numel += run.numel;
        else if (e.numel > 0)
            runs[num++] = run;
    }
    struct optimizer_options options = {
        .spec = s->o.plan->spec->training->optimizer,
        .buffers =
            {
                .weights = s->masters != NULL ? s->masters : s->weights,
                .low = s->masters != NULL ? s->weights : NULL,
                .grads = s->grads,
                .exp_avg = s->exp_avg,
                .exp_avg_sq = s->exp_avg_sq,
            },
        .runs = runs,
        .num_runs = num,
        .dtype = s->wide,
        .dev = s->o.dev,
        .kernels = s->o.kernels,
        .stream = s->o.compute,
    };
    int rc = optimizer_new(&s->optimizer, &options, err);
    free(runs);
    return rc;
}

/* What a tensor rank holds as well as another one is counted by one of them. */
static bool is_counted(const struct store *s, const struct param *p)
{
    return pieces_counted(p, s->o.plan->mesh->tensor, s->o.axes->coord.tensor);
}

/* Replicas of a shard hold the same sums: each counts a part of every run. */
static struct span replica_part(const struct store *s, struct span run)
{
    int64_t num = s->o.axes->num_replicas, idx = s->o.axes->replica_idx;
    int64_t begin = run.n * idx / num, end = run.n * (idx + 1) / num;
    return (struct span){run.at + begin, end - begin};
}

/* The words, then room for sums over the counts, or over one run. */
static int open_norm_memory(struct store *s, struct error *err)
{
    int32_t most = s->num_counts > 1 ? s->num_counts : 1;
    size_t words = NUM_STORE_WORDS * sizeof(*s->words);
    size_t scratch = s->o.kernels->sum_squares_workspace(s->o.dev, s->wide, most);
    s->words = arenas_take(s->o.arenas, ARENA_BATCH, words + scratch, false, err);
    if (s->words == NULL)
        return -1;
    s->scratch = s->words + NUM_STORE_WORDS;
    return 0;
}

int store_open_norm(struct store *s, struct error *err)
{
    int32_t num_params = s->o.table->num_params;
    s->counts = calloc((size_t)num_params + 1, sizeof(*s->counts));
    if (s->counts == NULL)
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "no memory for the norm's runs");
    for (int32_t i = 0; i < num_params; i++) {
        struct extent e = own_extent(s, i);
        struct span *last = s->num_counts > 0 ? &s->counts[s->num_counts - 1] : NULL;
        if (e.numel == 0 || !is_counted(s, e.param))
            continue;
        int64_t at = place_of(s, &e, 2);
        if (last != NULL && last->at + last->n == at)
            last->n += e.numel;
        else
            s->counts[s->num_counts++] = (struct span){at, e.numel};
    }
    for (int32_t i = 0; i < s->num_counts; i++)
        s->counts[i] = replica_part(s, s->counts[i]);
    return open_norm_memory(s, err);
}
