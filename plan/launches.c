/* The walk over a step: what runtime/rank and runtime/parallel do with each action of rank 0. */
#include "plan/launches.h"

#include <stdlib.h>
#include <string.h>

#include "plan/layout_rules.h"
#include "plan/launches_parts.h"
#include "plan/pieces.h"
#include "plan/schedule.h"

/* runtime/rank/words.h */
#define STEP_WORDS 3
#define COUNT_WORDS 3
/* runtime/optim and store_step.c: bytes a number of what the optimizer goes through. */
#define ADAMW_BYTES 28
#define SGD_BYTES 12
/* kernels/cuda/step.cu, sum_squares.cu: what one launch takes. */
#define STEP_RUNS 80
#define SQUARES_SPANS 192

/* What of the store a walk needs to know: rank 0's shards and replicas. */
struct step {
    struct launch_walk walk;
    const Stage *stage;
    const struct param_table *table;
    int64_t zero_stage, shards, replicas, num_ranks;
    bool masters, moments;
    bool *is_fresh, *is_gathering; /* by bucket */
    int32_t *grad_slot, *weight_slot;
};

/* ---- rank 0's part of each parameter (store_layout.c) --------------------------------------- */

struct extent {
    int64_t begin, numel;
    const Bucket *bucket;
};

/* Shard 0 is the first part of each bucket. */
static struct extent own_extent(const struct step *s, int32_t i)
{
    const struct param_table *t = s->table;
    const Bucket *b = s->stage->buckets[t->params[i].bucket];
    int64_t slice_end = b->offset + b->numel / s->shards;
    int64_t begin = t->params[i].offset;
    int64_t end = i + 1 < t->num_params ? t->params[i + 1].offset : t->flat_numel;
    end = end < slice_end ? end : slice_end;
    return (struct extent){begin, end > begin ? end - begin : 0, b};
}

static int64_t place_of(const struct step *s, const struct extent *e, int64_t from_stage)
{
    int64_t at = e->begin - e->bucket->offset;
    return s->zero_stage < from_stage ? e->begin : e->bucket->offset / s->shards + at;
}

/* Numbers, and runs of them that lie side by side in all buffers. */
struct runs {
    int64_t numel, num;
};

static struct runs optimizer_runs(const struct step *s)
{
    struct runs runs = {0};
    int64_t next[4] = {-1, -1, -1, -1};
    bool decay = false;
    for (int32_t i = 0; i < s->table->num_params; i++) {
        struct extent e = own_extent(s, i);
        const int64_t at[4] = {place_of(s, &e, s->masters ? 1 : 3), place_of(s, &e, 3),
                               place_of(s, &e, 2), place_of(s, &e, 1)};
        if (e.numel == 0) {
            continue;
        }
        bool follows = memcmp(at, next, sizeof at) == 0 && decay == s->table->params[i].decay;
        runs.num += !follows;
        runs.numel += e.numel;
        decay = s->table->params[i].decay;
        for (int j = 0; j < 4; j++) {
            next[j] = at[j] + e.numel;
        }
    }
    return runs;
}

/* Replica 0 counts the first part of each run. */
static struct runs norm_runs(const struct step *s)
{
    struct runs runs = {0};
    int64_t next = -1, run = 0;
    for (int32_t i = 0; i < s->table->num_params; i++) {
        struct extent e = own_extent(s, i);
        int64_t at = place_of(s, &e, 2);
        if (e.numel == 0 || !pieces_counted(&s->table->params[i], s->walk.model.tensor, 0)) {
            continue;
        }
        if (at != next) {
            runs.numel += run / s->replicas;
            runs.num++;
            run = 0;
        }
        run += e.numel;
        next = at + e.numel;
    }
    runs.numel += run / s->replicas;
    return runs;
}

/* ---- sums and gathers ----------------------------------------------------------------------- */

/* From one stream to another that goes on behind it. */
static void follow(struct step *s, enum launch_stream from, enum launch_stream to, int64_t mark)
{
    launch_mark(&s->walk, LAUNCH_RECORD, from, mark);
    launch_mark(&s->walk, LAUNCH_WAIT, to, mark);
}

static void on(struct step *s, enum launch_stream stream, enum launch_place place)
{
    s->walk.stream = stream;
    s->walk.place = place;
}

static Axis world_axis(const struct step *s)
{
    return s->walk.plan->mesh->data > 1 ? AXIS_DATA : AXIS_TENSOR;
}

static void sum_words(struct step *s, const char *what, int64_t n)
{
    if (s->num_ranks == 1) {
        return;
    }
    follow(s, LAUNCH_COMPUTE, LAUNCH_REDUCE, LAUNCH_MARK_COMPUTED);
    enum launch_place place = s->walk.place;
    on(s, LAUNCH_REDUCE, place);
    launch_comm(&s->walk, LAUNCH_ALL_REDUCE, what, n, 8, s->num_ranks, world_axis(s));
    on(s, LAUNCH_COMPUTE, place);
}

static void wait_reduces(struct step *s)
{
    if (s->num_ranks > 1) {
        follow(s, LAUNCH_REDUCE, LAUNCH_COMPUTE, LAUNCH_MARK_REDUCED);
    }
}

static void gather(struct step *s, const Action *a)
{
    const Bucket *b = s->stage->buckets[a->bucket];
    struct launch_walk *w = &s->walk;
    bool slots = s->zero_stage == 3;
    if (slots) {
        launch_mark(w, LAUNCH_WAIT, LAUNCH_GATHER, LAUNCH_MARK_WEIGHT_SLOT + a->slot);
        s->weight_slot[a->bucket] = a->slot;
    }
    launch_mark(w, LAUNCH_WAIT, LAUNCH_GATHER, LAUNCH_MARK_UPDATED);
    if (s->shards > 1) {
        on(s, LAUNCH_GATHER, LAUNCH_WEIGHTS);
        launch_comm(w, LAUNCH_ALL_GATHER, "weights", b->numel, w->model.elem, s->shards, AXIS_DATA);
        on(s, LAUNCH_COMPUTE, LAUNCH_WEIGHTS);
    }
    launch_mark(w, LAUNCH_RECORD, LAUNCH_GATHER, LAUNCH_MARK_GATHERED + a->bucket);
    s->is_gathering[a->bucket] = true;
}

static void await_bucket(struct step *s, int32_t bucket)
{
    if (s->is_gathering[bucket]) {
        s->is_gathering[bucket] = false;
        launch_mark(&s->walk, LAUNCH_WAIT, LAUNCH_COMPUTE, LAUNCH_MARK_GATHERED + bucket);
    }
}

/* The head of a tied model uses the embedding's. */
static void await_weights(struct step *s, int32_t unit_begin, int32_t unit_end)
{
    int32_t head = s->walk.model.num_layers + 1;
    for (int32_t i = 0; i < s->table->num_params; i++) {
        const struct param *p = &s->table->params[i];
        bool used = (p->unit >= unit_begin && p->unit < unit_end) ||
                    (p->tied && unit_begin <= head && head < unit_end);
        if (used) {
            await_bucket(s, p->bucket);
        }
    }
}

/* What passes only add to (store_reduce.c). */
static void zero_sums(struct step *s, int64_t begin, int64_t end)
{
    struct params_sums walk = {.table = s->table, .at = begin, .end = end};
    for (int64_t at, numel; params_next_sums(&walk, &at, &numel);) {
        launch_bytes(&s->walk, LAUNCH_ZERO, "gradients", numel * s->walk.model.wide);
    }
}

static void open_grads(struct step *s, const Action *a)
{
    const Bucket *b = s->stage->buckets[a->bucket];
    struct launch_walk *w = &s->walk;
    launch_mark(w, LAUNCH_WAIT, LAUNCH_COMPUTE, LAUNCH_MARK_GRAD_SLOT + a->slot);
    on(s, LAUNCH_COMPUTE, LAUNCH_GRADS);
    zero_sums(s, b->offset, b->offset + b->numel);
    s->grad_slot[a->bucket] = a->slot;
}

static void reduce_partial(struct step *s, int32_t unit)
{
    struct launch_walk *w = &s->walk;
    int64_t kv = w->plan->model->config->num_key_value_heads, begin, end;
    on(s, LAUNCH_COMPUTE, LAUNCH_GRADS);
    if (params_unit_run(s->table, unit, PARAM_SUM_REPLICAS, &begin, &end)) {
        launch_comm(w, LAUNCH_ALL_REDUCE, "partial gradients", end - begin, w->model.wide,
                    w->model.tensor / kv, AXIS_TENSOR);
    }
    if (params_unit_run(s->table, unit, PARAM_SUM_TENSOR, &begin, &end)) {
        launch_comm(w, LAUNCH_ALL_REDUCE, "partial gradients", end - begin, w->model.wide,
                    w->model.tensor, AXIS_TENSOR);
    }
}

static void reduce_bucket(struct step *s, const Action *a)
{
    struct launch_walk *w = &s->walk;
    int64_t numel = s->stage->buckets[a->bucket]->numel, slice = numel / s->shards;
    bool *fresh = &s->is_fresh[a->bucket];
    if (s->shards == 1 && s->replicas == 1) {
        return;
    }
    follow(s, LAUNCH_COMPUTE, LAUNCH_REDUCE, LAUNCH_MARK_COMPUTED);
    on(s, LAUNCH_REDUCE, LAUNCH_GRADS);
    if (s->shards > 1) {
        launch_comm(w, LAUNCH_REDUCE_SCATTER, "gradients", numel, w->model.wide, s->shards,
                    AXIS_DATA);
        if (s->zero_stage >= 2 && !*fresh) {
            launch_each_number(w, LAUNCH_ADD, "gradients", slice, w->model.wide);
        }
    }
    if (s->zero_stage >= 2) {
        launch_mark(w, LAUNCH_RECORD, LAUNCH_REDUCE,
                    LAUNCH_MARK_GRAD_SLOT + s->grad_slot[a->bucket]);
    }
    *fresh = false;
    if (a->final && s->replicas > 1) {
        launch_comm(w, LAUNCH_ALL_REDUCE, "gradients", slice, w->model.wide, s->replicas,
                    AXIS_DATA);
    }
    on(s, LAUNCH_COMPUTE, LAUNCH_GRADS);
}

/* ---- beginning and end ---------------------------------------------------------------------- */

static void begin_step(struct step *s)
{
    struct launch_walk *w = &s->walk;
    on(s, LAUNCH_COMPUTE, LAUNCH_BEGIN);
    if (s->zero_stage < 2) {
        zero_sums(s, 0, s->table->flat_numel);
    }
    launch_bytes(w, LAUNCH_UPLOAD, "words", STEP_WORDS * 8);
}

/* Of the next step, while this one runs. */
static void count_targets(struct step *s)
{
    on(s, LAUNCH_COMPUTE, LAUNCH_BEGIN);
    launch_bytes(&s->walk, LAUNCH_UPLOAD, "counts", COUNT_WORDS * 8);
    sum_words(s, "counts", COUNT_WORDS);
    wait_reduces(s);
    launch_bytes(&s->walk, LAUNCH_DOWNLOAD, "counts", COUNT_WORDS * 8);
}

static void norm(struct step *s)
{
    struct launch_walk *w = &s->walk;
    struct runs runs = norm_runs(s);
    int64_t squares = (runs.num + SQUARES_SPANS - 1) / SQUARES_SPANS;
    struct launch l = {
        .op = LAUNCH_SUM_SQUARES,
        .what = "gradients",
        .size = {runs.numel, runs.num},
        .elem = w->model.wide,
        .num_kernels = (int32_t)squares + 1,
        .bytes = (double)runs.numel * w->model.wide,
    };
    on(s, LAUNCH_COMPUTE, LAUNCH_END);
    launch_emit(w, &l);
    sum_words(s, "norm", 1);
    wait_reduces(s);
    launch_bytes(w, LAUNCH_COPY, "check", 8);
    launch_bytes(w, LAUNCH_COPY, "check", 8);
    launch_each_number(w, LAUNCH_SCALE, "check", 2, 8);
    launch_each_number(w, LAUNCH_SUM_DOUBLE, "check", 3, 8);
    launch_each_number(w, LAUNCH_CLIP, "", 1, 8);
    launch_each_number(w, LAUNCH_CLIP, "", 1, 8);
    launch_bytes(w, LAUNCH_DOWNLOAD, "words", STEP_WORDS * 8);
    launch_bytes(w, LAUNCH_DOWNLOAD, "norm", 8);
}

static void optimizer(struct step *s)
{
    struct launch_walk *w = &s->walk;
    struct runs runs = optimizer_runs(s);
    int32_t each = (s->moments ? ADAMW_BYTES : SGD_BYTES) / 4 * w->model.wide;
    struct launch l = {
        .op = s->moments ? LAUNCH_ADAMW : LAUNCH_SGD,
        .size = {runs.numel, runs.num},
        .elem = w->model.wide,
        .num_kernels = (int32_t)((runs.num + STEP_RUNS - 1) / STEP_RUNS),
        .bytes = (double)runs.numel * (each + (s->masters ? w->model.elem : 0)),
    };
    await_weights(s, 0, w->model.num_layers + 2);
    on(s, LAUNCH_COMPUTE, LAUNCH_END);
    launch_emit(w, &l);
    launch_mark(w, LAUNCH_RECORD, LAUNCH_COMPUTE, LAUNCH_MARK_UPDATED);
}

static void read_batch(struct step *s)
{
    struct launch_walk *w = &s->walk;
    on(s, LAUNCH_COMPUTE, LAUNCH_FORWARD_EMBED);
    launch_bytes(w, LAUNCH_UPLOAD, "batch", (w->model.packed ? 4 : 2) * w->model.r * 4);
}

static void take(struct step *s, const Action *a)
{
    switch (a->kind) {
    case ACTION_COUNT_TARGETS:
        count_targets(s);
        break;
    case ACTION_GATHER:
        gather(s, a);
        break;
    case ACTION_FORWARD:
        if (a->unit_begin == 0) {
            read_batch(s);
        }
        await_weights(s, a->unit_begin, a->unit_end);
        launch_forward(&s->walk, a->unit_begin, a->unit_end);
        break;
    case ACTION_OPEN_GRADS:
        open_grads(s, a);
        break;
    case ACTION_BACKWARD:
        await_weights(s, a->unit_begin, a->unit_end);
        s->walk.is_first = s->zero_stage >= 2 || a->micro_batch == 0;
        launch_backward(&s->walk, a->unit_begin, a->unit_end);
        break;
    case ACTION_RELEASE:
        launch_mark(&s->walk, LAUNCH_RECORD, LAUNCH_COMPUTE,
                    LAUNCH_MARK_WEIGHT_SLOT + s->weight_slot[a->bucket]);
        break;
    case ACTION_REDUCE_PARTIAL:
        reduce_partial(s, a->unit_begin);
        break;
    case ACTION_REDUCE_BUCKET:
        reduce_bucket(s, a);
        break;
    case ACTION_REDUCE_LOSS:
        on(s, LAUNCH_COMPUTE, LAUNCH_END);
        sum_words(s, "loss", STEP_WORDS);
        break;
    case ACTION_WAIT_REDUCES:
        wait_reduces(s);
        break;
    case ACTION_NORM:
        norm(s);
        break;
    case ACTION_OPTIMIZER:
        optimizer(s);
        break;
    default:
        ASSERT(false);
    }
}

/* ---- together ------------------------------------------------------------------------------- */

static void walk_step(struct step *s)
{
    size_t num = s->stage->n_buckets;
    s->is_fresh = calloc(num + 1, sizeof *s->is_fresh);
    s->is_gathering = calloc(num + 1, sizeof *s->is_gathering);
    s->grad_slot = calloc(num + 1, sizeof *s->grad_slot);
    s->weight_slot = calloc(num + 1, sizeof *s->weight_slot);
    ASSERT(s->is_fresh && s->is_gathering && s->grad_slot && s->weight_slot);
    /* In the middle of training ZeRO-1's and 2's gathers of the step before are on their way. */
    for (size_t i = 0; i < num; i++) {
        s->is_fresh[i] = true;
        s->is_gathering[i] = s->zero_stage == 1 || s->zero_stage == 2;
    }
    begin_step(s);
    struct schedule_walk walk = {.stage = s->stage};
    for (Action a; schedule_next(&walk, &a);) {
        take(s, &a);
    }
    free(s->is_fresh);
    free(s->is_gathering);
    free(s->grad_slot);
    free(s->weight_slot);
}

int launches_each(const Plan *plan, launch_fn fn, void *arg, struct error *err)
{
    struct param_table table;
    const Stage *stage = plan->n_stages > 0 ? plan->stages[0] : NULL;
    if (!stage || stage->n_actions == 0 || plan->n_unbuilt > 0) {
        return error_set(err, ERR_UNIMPLEMENTED,
                         "launches are known of layouts that can be run; this one can't be yet%s%s",
                         plan->n_unbuilt > 0 ? ": " : "",
                         plan->n_unbuilt > 0 ? plan->unbuilt[0] : "");
    }
    if (params_expand(plan, 0, &table, err) != 0) {
        return -1;
    }
    const TrainingSpec *t = plan->spec->training;
    struct step s = {
        .walk = {.fn = fn, .arg = arg, .plan = plan},
        .stage = stage,
        .table = &table,
        .shards = layout_shards(plan->spec->parallel->layout),
        .num_ranks = plan->mesh->num_ranks,
        .masters = strcmp(t->precision, "bf16") == 0,
        .moments = strcmp(t->optimizer->name, "sgd") != 0,
    };
    s.zero_stage = s.shards > 1 ? plan->spec->parallel->layout->zero_stage : 0;
    s.replicas = plan->mesh->data / s.shards;
    launch_model_init(&s.walk.model, plan, &table);
    walk_step(&s);
    params_free(&table);
    return 0;
}
