#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/parallel/store_case.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "plan/memory.h"
#include "runtime/parallel/store.h"
#include "tests/parallel/store_case_list.h"
#include "tests/parallel/store_case_want.h"

#define DEADLINE_MS 60000
#define MAX_BUCKETS 64
#define MAX_PASSES 512

struct rank {
    struct store_case *c;
    const struct case_list *list;
    int fd;
    int32_t idx, data, tensor;
    pthread_t thread;

    struct device *dev;
    struct stream *compute;
    struct comm_host_world *world;
    struct axes axes;
    struct arenas *arenas;
    struct store *store;
    double *weights[MAX_BUCKETS], *grads[MAX_BUCKETS]; /* as bound */
    double *words;

    int32_t step;
    double norm;
    struct pass *passes[MAX_PASSES]; /* owned; of this step and those before */
    int32_t num_passes;
    bool stopped;      /* as the test told it */
    atomic_bool wrong; /* err says what was not as it must be */
    struct error err;
};

/* A finding, not a failure of the store: ends the rank, fails the test. */
static int find(struct rank *r, const char *what, int64_t i, double got, double want,
                struct error *err)
{
    atomic_store(&r->wrong, true);
    return error_set(err, ERR_INTERNAL, "rank %d: %s %lld is %.17g, not %.17g", r->idx, what,
                     (long long)i, got, want);
}

static bool is_near(double got, double want)
{
    return fabs(got - want) <= 1e-12 * (fabs(want) > 1e-3 ? fabs(want) : 1e-3);
}

/* ---- set-up ---------------------------------------------------------------------------------- */

static int open_group(struct rank *r, int32_t begin, int32_t step, int32_t num, struct comm **out)
{
    int32_t members[64];
    for (int32_t i = 0; i < num; i++)
        members[i] = begin + i * step;
    return num == 1 ? 0 : comm_host_comm_new(r->world, r->dev, members, num, out, &r->err);
}

static int open_axes(struct rank *r)
{
    const struct store_case_spec *s = &r->c->spec;
    int32_t n = r->c->num_shards, t = s->tensor, block = r->data / n;
    int32_t same_kv = s->kv_heads < t ? t / s->kv_heads : 1;
    struct axes *a = &r->axes;
    *a = (struct axes){
        .coord = {.data = r->data, .tensor = r->tensor},
        .rank = r->idx,
        .num_ranks = s->data * t,
        .shard_size = n,
        .shard_idx = r->data % n,
        .num_replicas = s->data / n,
        .replica_idx = block,
    };
    int32_t first_kv = r->data * t + r->tensor / same_kv * same_kv;
    if (open_group(r, r->data * t, 1, t, &a->tensor) != 0 ||
        open_group(r, first_kv, 1, same_kv, &a->kv_replicas) != 0 ||
        open_group(r, block * n * t + r->tensor, t, n, &a->shard) != 0 ||
        open_group(r, a->shard_idx * t + r->tensor, n * t, s->data / n, &a->replicas) != 0 ||
        open_group(r, 0, 1, s->data * t, &a->world) != 0)
        return -1;
    return open_group(r, block * n * t + r->tensor, t, n, &a->gather);
}

static void bind_weights(void *arg, int32_t bucket, void *base)
{
    ((struct rank *)arg)->weights[bucket] = base;
}

static void bind_grads(void *arg, int32_t bucket, void *base)
{
    ((struct rank *)arg)->grads[bucket] = base;
}

static int open_rank(struct rank *r)
{
    struct store_case *c = r->c;
    const struct kernels *kernels;
    int32_t num_ranks = c->spec.data * c->spec.tensor;
    if (kernels_open(&(struct kernels_options){"ref", 1, 0}, &r->dev, &kernels, &r->err) != 0 ||
        r->dev->ops->stream_new(r->dev, c->spec.queued ? STREAM_QUEUE : STREAM_INLINE, &r->compute,
                                &r->err) != 0)
        return -1;
    if (num_ranks > 1 &&
        comm_host_open(&r->world, r->fd, r->idx, num_ranks, DEADLINE_MS, &r->err) != 0)
        return -1;
    if (open_axes(r) != 0 ||
        arenas_open(&r->arenas, NULL, r->dev, comm_host_as_world(r->world), &r->err) != 0)
        return -1;
    struct store_options options = {
        .dev = r->dev,
        .kernels = kernels,
        .compute = r->compute,
        .axes = &r->axes,
        .arenas = r->arenas,
        .plan = &c->plan,
        .stage = &c->plan_stage,
        .table = &c->table,
        .dtype = DTYPE_F64,
        .moments = c->spec.adamw,
    };
    r->words = r->dev->ops->alloc(r->dev, 2 * sizeof(double), MEM_DEVICE);
    if (store_new(&r->store, &options, &r->err) != 0)
        return -1;
    store_bind(r->store, bind_weights, bind_grads, r);
    struct store_view view = store_view(r->store, STORE_WEIGHTS);
    for (int32_t i = 0; i < view.num_ranges; i++) {
        const struct flat_range *g = &view.ranges[i];
        memcpy((double *)view.data + g->at, store_case_at(c, c->weights, 0, r->tensor) + g->begin,
               (size_t)g->numel * sizeof(double));
    }
    return 0;
}

static void close_rank(struct rank *r)
{
    if (r->compute != NULL)
        r->dev->ops->stream_sync(r->dev, r->compute, NULL);
    store_free(r->store);
    arenas_free(r->arenas);
    for (int32_t i = 0; i < r->num_passes; i++)
        free(r->passes[i]);
    struct comm *comms[] = {r->axes.tensor,   r->axes.kv_replicas, r->axes.shard,
                            r->axes.replicas, r->axes.world,       r->axes.gather};
    for (int i = 0; i < 6; i++)
        if (comms[i] != NULL)
            comms[i]->ops->free(comms[i]);
    if (r->words != NULL)
        r->dev->ops->free(r->dev, r->words);
    comm_host_close(r->world);
    if (r->compute != NULL)
        r->dev->ops->stream_free(r->dev, r->compute);
    r->dev->ops->close(r->dev);
}

/* ---- layers that only look and add ----------------------------------------------------------- */

/* One unit's pass on the compute stream, with what was bound when it was enqueued. */
struct pass {
    struct rank *r;
    int32_t step, unit, micro;
    bool backward, is_new; /* is_new: so are the gradients */
    double *weights[MAX_BUCKETS], *grads[MAX_BUCKETS];
};

/* Steps that changed anything, of the first `steps`: those before the one that went wrong. */
static int32_t trained(const struct store_case *c, int32_t steps)
{
    int32_t bad = c->spec.bad_step;
    return bad > 0 && steps >= bad ? bad - 1 : steps;
}

/* The weights that unit's passes read are the last step's; a forward pass needs all, a backward
 * pass all but the embedding's own. */
static int check_weights(const struct pass *pass, struct error *err)
{
    const struct store_case *c = pass->r->c;
    const double *want = store_case_at(c, c->weights, trained(c, pass->step), pass->r->tensor);
    for (int32_t k = 0; k < c->table.num_params; k++) {
        const struct param *p = &c->table.params[k];
        int32_t use;
        if (!store_case_uses(c, pass->unit, p, &use) || (pass->backward && pass->unit == 0))
            continue;
        const double *base = pass->weights[p->bucket];
        if (base == NULL)
            return find(pass->r, "a missing weight", p->offset, 0, want[p->offset], err);
        for (int64_t i = p->offset; i < p->offset + p->numel; i++) {
            double got = base[i - c->table.bucket_offsets[p->bucket]];
            if (!is_near(got, want[i]))
                return find(pass->r, "weight", i, got, want[i], err);
        }
    }
    return 0;
}

/* What a product makes is written where nothing was added yet, whatever lies there; a matrix that
 * is used twice is the head's product first. */
static bool is_written(const struct pass *pass, const struct param *p, int32_t use)
{
    return pass->is_new && params_is_product(p) && (!p->tied || use == 1);
}

static int add_grads(const struct pass *pass, struct error *err)
{
    const struct rank *r = pass->r;
    const struct store_case *c = r->c;
    for (int32_t k = 0; k < c->table.num_params; k++) {
        const struct param *p = &c->table.params[k];
        int32_t use;
        if (!store_case_uses(c, pass->unit, p, &use))
            continue;
        double *base = pass->grads[p->bucket];
        if (base == NULL)
            return find(pass->r, "a missing gradient", p->offset, 0, 0, err);
        bool writes = is_written(pass, p, use);
        for (int64_t i = p->offset; i < p->offset + p->numel; i++) {
            double *at = &base[i - c->table.bucket_offsets[p->bucket]];
            double g = store_case_grad(c, pass->step, r->data, r->tensor, pass->micro, use, p, i);
            *at = writes ? g : *at + g;
        }
    }
    return 0;
}

static int run_pass(void *args, struct error *err)
{
    struct pass *pass = *(struct pass **)args;
    int rc = check_weights(pass, err);
    if (rc == 0 && pass->backward)
        rc = add_grads(pass, err);
    return rc;
}

static int start_pass(struct rank *r, const Action *a)
{
    if (store_await_weights(r->store, a->unit_begin, a->unit_end, &r->err) != 0)
        return -1;
    struct pass *pass = r->passes[r->num_passes++] = malloc(sizeof *pass);
    *pass = (struct pass){.r = r,
                          .step = r->step,
                          .unit = a->unit_begin,
                          .micro = a->micro_batch,
                          .backward = a->kind == ACTION_BACKWARD,
                          .is_new = store_grads_are_new(r->store, a->micro_batch)};
    memcpy(pass->weights, r->weights, sizeof pass->weights);
    memcpy(pass->grads, r->grads, sizeof pass->grads);
    return r->dev->ops->host_call(r->dev, r->compute, run_pass, &pass, sizeof pass, &r->err);
}

/* ---- a step ---------------------------------------------------------------------------------- */

/* What lies here of a part must be want[] in all its elements; exact: to the bit. */
static int check_part(struct rank *r, enum store_part part, const double *want, const char *what,
                      bool exact)
{
    struct store_view view = store_view(r->store, part);
    const double *data = view.data;
    for (int32_t k = 0; k < view.num_ranges; k++) {
        const struct flat_range *g = &view.ranges[k];
        if (g->at < 0 || g->at + g->numel > view.numel)
            return find(r, "range", k, (double)g->at, (double)view.numel, &r->err);
        for (int64_t i = 0; i < g->numel; i++) {
            double got = data[g->at + i], wanted = want[g->begin + i];
            if (exact ? memcmp(&got, &wanted, sizeof got) != 0 : !is_near(got, wanted))
                return find(r, what, g->begin + i, got, wanted, &r->err);
        }
    }
    return 0;
}

/* Every element of the layout is one data rank's in a block, and no other's. */
static int check_owned(struct rank *r)
{
    int32_t num;
    int64_t sum = 0;
    const struct flat_range *owned = store_owned(r->store, &num);
    for (int32_t i = 0; i < num; i++)
        sum += owned[i].numel;
    if (sum * r->c->num_shards != r->c->table.flat_numel)
        return find(r, "owned elements", 0, (double)sum, (double)r->c->table.flat_numel, &r->err);
    return 0;
}

static int check_words(struct rank *r)
{
    double num = r->axes.num_ranks;
    if (r->words[0] != num * (num + 1) / 2)
        return find(r, "word", 0, r->words[0], num, &r->err);
    return 0;
}

/* Nothing is clipped; behind a loss that isn't finite the factor never is again. */
static int check_scale(struct rank *r)
{
    double scale = store_norm_words(r->store)[1];
    bool stays = trained(r->c, r->step + 1) <= r->step;
    if (stays ? !isnan(scale) : scale != 1.0)
        return find(r, "factor of step", r->step + 1, scale, stays ? NAN : 1.0, &r->err);
    return 0;
}

static int check_norm(struct rank *r)
{
    struct store_case *c = r->c;
    double *loss = &r->words[1];
    if (r->dev->ops->stream_sync(r->dev, r->compute, &r->err) != 0 || check_words(r) != 0 ||
        check_part(r, STORE_GRADS, store_case_at(c, c->grads, r->step, r->tensor), "gradient",
                   true) != 0 ||
        check_owned(r) != 0)
        return -1;
    *loss = r->step + 1 == c->spec.bad_step ? HUGE_VAL : 1.0;
    if (store_norm(r->store, c->spec.bad_step > 0 ? loss : NULL, &r->err) != 0 ||
        r->dev->ops->stream_sync(r->dev, r->compute, &r->err) != 0)
        return -1;
    r->norm = store_norm_words(r->store)[0];
    if (check_scale(r) != 0)
        return -1;
    if (!is_near(r->norm, c->norms[r->step]))
        return find(r, "norm", 0, r->norm, c->norms[r->step], &r->err);
    return 0;
}

/* Told to leave here: with a word to the others, or without. */
static int stop(struct rank *r)
{
    r->stopped = true;
    if (r->c->spec.silently != NULL)
        r->c->spec.silently();
    else
        comm_host_abort(r->world, "the test stopped a rank");
    return error_set(&r->err, ERR_ABORTED, "stopped");
}

static int backward(struct rank *r, const Action *a)
{
    if (r->c->spec.stops == r->idx + 1 && a->unit_begin == 1)
        return stop(r);
    return start_pass(r, a);
}

static int run_action(struct rank *r, const Action *a)
{
    switch (a->kind) {
    case ACTION_FORWARD:
        return start_pass(r, a);
    case ACTION_BACKWARD:
        return backward(r, a);
    case ACTION_GATHER:
        return store_gather(r->store, a->bucket, a->slot, &r->err);
    case ACTION_RELEASE:
        return store_release(r->store, a->bucket, &r->err);
    case ACTION_OPEN_GRADS:
        return store_open_grads(r->store, a->bucket, a->slot, &r->err);
    case ACTION_REDUCE_PARTIAL:
        return store_reduce_partial(r->store, a->unit_begin, &r->err);
    case ACTION_REDUCE_BUCKET:
        return store_reduce_bucket(r->store, a->bucket, a->final, &r->err);
    case ACTION_REDUCE_LOSS:
        return store_reduce_words(r->store, r->words, 1, "loss", &r->err);
    case ACTION_WAIT_REDUCES:
        return store_wait(r->store, &r->err);
    case ACTION_NORM:
        return check_norm(r);
    case ACTION_OPTIMIZER:
        return store_optimizer_step(r->store, r->step + 1, CASE_LR, &r->err);
    default:
        return find(r, "action", (int64_t)a->kind, 0, 0, &r->err);
    }
}

static int run_steps(struct rank *r)
{
    struct store_case *c = r->c;
    for (r->step = 0; r->step < c->spec.steps; r->step++) {
        r->words[0] = r->idx + 1;
        if (store_begin_step(r->store, &r->err) != 0)
            return -1;
        for (size_t i = 0; i < r->list->num; i++)
            if (run_action(r, &r->list->actions[i]) != 0)
                return -1;
    }
    if (store_await_weights(r->store, 0, c->num_units, &r->err) != 0 ||
        r->dev->ops->stream_sync(r->dev, r->compute, &r->err) != 0 ||
        check_part(r, STORE_WEIGHTS, store_case_at(c, c->weights, trained(c, r->step), r->tensor),
                   "weight", false) != 0)
        return -1;
    if (!c->spec.adamw)
        return 0;
    if (check_part(r, STORE_EXP_AVG, store_case_at(c, c->exp_avg, trained(c, r->step), r->tensor),
                   "exp_avg", false) != 0)
        return -1;
    return check_part(r, STORE_EXP_AVG_SQ,
                      store_case_at(c, c->exp_avg_sq, trained(c, r->step), r->tensor), "exp_avg_sq",
                      false);
}

static void *rank_main(void *arg)
{
    struct rank *r = arg;
    if (open_rank(r) == 0)
        run_steps(r);
    close_rank(r);
    return NULL;
}

/* ---- all ranks ------------------------------------------------------------------------------- */

static const char *spec_text(const struct store_case_spec *s)
{
    static char text[256];
    snprintf(text, sizeof text,
             "data %d tensor %d zero %d shard_size %d micro_batches %d steps %d blocks %d "
             "kv_heads %d rows %d%s%s%s; TANDEM_SEED=%llu",
             s->data, s->tensor, s->zero_stage, s->shard_size, s->micro_batches, s->steps,
             s->blocks, s->kv_heads, s->rows, s->tied ? " tied" : "", s->adamw ? " adamw" : "",
             s->queued ? " queued" : "", (unsigned long long)s->seed);
    return text;
}

static struct store_case_result judge(struct store_case *c, struct rank *ranks, int32_t num)
{
    struct store_case_result result = {.norm = ranks[0].norm, .num_elements = c->num_elements};
    bool may_fail = c->spec.stops != 0 || c->spec.spoil != NULL;
    for (int32_t i = 0; i < num; i++) {
        struct rank *r = &ranks[i];
        if (r->wrong || (r->err.code != 0 && !may_fail))
            fail_msg("%s: %s", spec_text(&c->spec), r->err.text);
        if (r->err.code != 0 && !r->stopped) {
            result.num_failed++;
            snprintf(result.error, sizeof result.error, "%.500s", r->err.text);
        }
        if (!may_fail && memcmp(&r->norm, &result.norm, sizeof r->norm) != 0)
            fail_msg("%s: rank %d has another norm", spec_text(&c->spec), i);
    }
    return result;
}

struct store_case_result store_case_run(const struct store_case_spec *spec)
{
    struct store_case c;
    store_case_open(&c, spec);
    assert_true(c.table.num_buckets <= MAX_BUCKETS);
    struct case_list list = case_list_new(&c);
    int32_t num = c.spec.data * c.spec.tensor;
    int fd = -1;
    /* To the byte: the store takes what the plan says it does. */
    size_t shared = (size_t)memory_store_shared_bytes(&c.plan_stage, c.plan.spec->parallel->layout,
                                                      sizeof(double), sizeof(double));
    if (spec->spoil != NULL)
        spec->spoil(&c.plan_stage, list.actions, list.num);
    if (num > 1)
        assert_int_equal(comm_host_segment_new(num, shared, &fd, NULL), 0);
    struct rank *ranks = calloc((size_t)num, sizeof *ranks);
    for (int32_t i = 0; i < num; i++) {
        ranks[i] = (struct rank){.c = &c,
                                 .list = &list,
                                 .fd = fd,
                                 .idx = i,
                                 .data = i / c.spec.tensor,
                                 .tensor = i % c.spec.tensor};
        assert_int_equal(pthread_create(&ranks[i].thread, NULL, rank_main, &ranks[i]), 0);
    }
    for (int32_t i = 0; i < num; i++)
        pthread_join(ranks[i].thread, NULL);
    if (fd >= 0)
        close(fd);
    struct store_case_result result = judge(&c, ranks, num);
    free(ranks);
    free(list.actions);
    store_case_close(&c);
    return result;
}
