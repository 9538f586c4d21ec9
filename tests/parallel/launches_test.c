/* The plan's list of launches against what a rank really calls: every call of the kernels' table,
 * of the device's zero and copies and of the communicators, with its shape, in the order of the
 * caller. The ranks are threads on the reference backend with a compute stream that runs behind its
 * caller, as a GPU's does; the calls are those of rank 0's second step. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gang.h"
#include "plan/launches.h"
#include "runtime/parallel/store.h"

#define MAX_CALLS 20000

struct call {
    enum launch_op op;
    int64_t size[LAUNCH_SIZES];
    bool adds;
};

static struct call calls[MAX_CALLS];
static int num_calls;

/* ---- what a rank calls ------------------------------------------------------------------------
 */

static _Thread_local bool is_first;
static _Thread_local int steps_begun;

static void note(enum launch_op op, bool adds, int64_t a, int64_t b, int64_t c, int64_t d,
                 int64_t e)
{
    if (!is_first || steps_begun != 2)
        return;
    ASSERT(num_calls < MAX_CALLS);
    calls[num_calls++] = (struct call){op, {a, b, c, d, e}, adds};
}
#define NOTE3(op, a, b, c) note(op, false, a, b, c, 0, 0)

static struct kernels table; /* the real one's, behind the calls noted */
static struct device_ops device_ops;
static struct comm_ops comm_ops;

static int gemm(struct device *dev, struct stream *s, enum dtype t, const struct gemm_args *a,
                struct error *err)
{
    int64_t beside = (a->bias != NULL ? LAUNCH_BIAS : 0) | (a->gelu != NULL ? LAUNCH_GELU : 0) |
                     (a->gelu_of != NULL ? LAUNCH_GELU_OF : 0);
    note(LAUNCH_GEMM, a->beta != 0.0, a->m, a->n, a->k, beside, (int64_t)dtype_size(a->c_type));
    return table.gemm(dev, s, t, a, err);
}

static int embed_fwd(struct device *dev, struct stream *s, enum dtype t, void *y, const void *w,
                     const int32_t *ids, int64_t first, int64_t r, int64_t v, int64_t d,
                     struct error *err)
{
    NOTE3(LAUNCH_EMBED_FWD, r, d, v);
    return table.embed_fwd(dev, s, t, y, w, ids, first, r, v, d, err);
}

static int embed_bwd(struct device *dev, struct stream *s, enum dtype t, void *dw, const void *dy,
                     const int32_t *ids, int64_t first, int64_t r, int64_t v, int64_t d,
                     void *workspace, struct error *err)
{
    NOTE3(LAUNCH_EMBED_BWD, r, d, v);
    return table.embed_bwd(dev, s, t, dw, dy, ids, first, r, v, d, workspace, err);
}

static int rmsnorm_fwd(struct device *dev, struct stream *s, enum dtype t, void *y, void *rstd,
                       const void *x, const void *w, int64_t r, int64_t d, double eps,
                       struct error *err)
{
    NOTE3(LAUNCH_RMSNORM_FWD, r, d, 0);
    return table.rmsnorm_fwd(dev, s, t, y, rstd, x, w, r, d, eps, err);
}

static int rmsnorm_bwd(struct device *dev, struct stream *s, enum dtype t, void *dx, void *dw,
                       const void *dy, const void *x, const void *w, const void *rstd, int64_t r,
                       int64_t d, bool accumulate, void *workspace, struct error *err)
{
    note(LAUNCH_RMSNORM_BWD, accumulate, r, d, 0, 0, 0);
    return table.rmsnorm_bwd(dev, s, t, dx, dw, dy, x, w, rstd, r, d, accumulate, workspace, err);
}

static int layernorm_fwd(struct device *dev, struct stream *s, enum dtype t, void *y, void *mean,
                         void *rstd, const void *x, const void *w, const void *b, int64_t r,
                         int64_t d, double eps, struct error *err)
{
    NOTE3(LAUNCH_LAYERNORM_FWD, r, d, 0);
    return table.layernorm_fwd(dev, s, t, y, mean, rstd, x, w, b, r, d, eps, err);
}

static int layernorm_bwd(struct device *dev, struct stream *s, enum dtype t, void *dx, void *dw,
                         void *db, const void *dy, const void *x, const void *w, const void *mean,
                         const void *rstd, int64_t r, int64_t d, bool accumulate, void *workspace,
                         struct error *err)
{
    note(LAUNCH_LAYERNORM_BWD, accumulate, r, d, 0, 0, 0);
    return table.layernorm_bwd(dev, s, t, dx, dw, db, dy, x, w, mean, rstd, r, d, accumulate,
                               workspace, err);
}

static int rope(struct device *dev, struct stream *s, enum dtype t, void *x, const void *cos,
                const void *sin, const int32_t *positions, int64_t r, int64_t seq_len,
                int64_t heads, int64_t e, bool backward, struct error *err)
{
    NOTE3(LAUNCH_ROPE, r, heads, e);
    return table.rope(dev, s, t, x, cos, sin, positions, r, seq_len, heads, e, backward, err);
}

static int attention_fwd(struct device *dev, struct stream *s, enum dtype t,
                         const struct attention_args *a, struct error *err)
{
    note(LAUNCH_ATTENTION_FWD, false, a->b, a->t, a->h, a->kv, a->e);
    return table.attention_fwd(dev, s, t, a, err);
}

static int attention_bwd(struct device *dev, struct stream *s, enum dtype t,
                         const struct attention_args *a, struct error *err)
{
    note(LAUNCH_ATTENTION_BWD, false, a->b, a->t, a->h, a->kv, a->e);
    return table.attention_bwd(dev, s, t, a, err);
}

static int swiglu_fwd(struct device *dev, struct stream *s, enum dtype t, void *y, const void *gate,
                      const void *up, int64_t n, struct error *err)
{
    NOTE3(LAUNCH_SWIGLU_FWD, n, 0, 0);
    return table.swiglu_fwd(dev, s, t, y, gate, up, n, err);
}

static int swiglu_bwd(struct device *dev, struct stream *s, enum dtype t, void *dgate, void *dup,
                      const void *dy, const void *gate, const void *up, int64_t n,
                      struct error *err)
{
    NOTE3(LAUNCH_SWIGLU_BWD, n, 0, 0);
    return table.swiglu_bwd(dev, s, t, dgate, dup, dy, gate, up, n, err);
}

static int add_bias(struct device *dev, struct stream *s, enum dtype t, void *y, const void *b,
                    int64_t r, int64_t n, struct error *err)
{
    NOTE3(LAUNCH_ADD_BIAS, r, n, 0);
    return table.add_bias(dev, s, t, y, b, r, n, err);
}

static int column_sum(struct device *dev, struct stream *s, enum dtype t, void *db, const void *dy,
                      int64_t r, int64_t n, struct error *err)
{
    NOTE3(LAUNCH_COLUMN_SUM, r, n, 0);
    return table.column_sum(dev, s, t, db, dy, r, n, err);
}

static int add(struct device *dev, struct stream *s, enum dtype t, void *y, const void *a,
               const void *b, int64_t n, struct error *err)
{
    NOTE3(LAUNCH_ADD, n, 0, 0);
    return table.add(dev, s, t, y, a, b, n, err);
}

static int scale(struct device *dev, struct stream *s, enum dtype t, void *x, double factor,
                 int64_t n, struct error *err)
{
    NOTE3(LAUNCH_SCALE, n, 0, 0);
    return table.scale(dev, s, t, x, factor, n, err);
}

static int cross_entropy(struct device *dev, struct stream *s, enum dtype t, double *nll,
                         void *dlogits, const void *logits, const int32_t *targets, double dloss,
                         int64_t r, int64_t v, int64_t ld, struct error *err)
{
    NOTE3(LAUNCH_CROSS_ENTROPY, r, v, 0);
    return table.cross_entropy(dev, s, t, nll, dlogits, logits, targets, dloss, r, v, ld, err);
}

static int ce_max(struct device *dev, struct stream *s, enum dtype t, double *max,
                  const struct logits_part *p, struct error *err)
{
    NOTE3(LAUNCH_CE_MAX, p->r, p->valid, 0);
    return table.ce_max(dev, s, t, max, p, err);
}

static int ce_sum(struct device *dev, struct stream *s, enum dtype t, double *sums,
                  const double *max, const struct logits_part *p, struct error *err)
{
    NOTE3(LAUNCH_CE_SUM, p->r, p->valid, 0);
    return table.ce_sum(dev, s, t, sums, max, p, err);
}

static int ce_finish(struct device *dev, struct stream *s, enum dtype t, double *nll, void *dlogits,
                     const double *max, const double *sums, double dloss,
                     const struct logits_part *p, struct error *err)
{
    NOTE3(LAUNCH_CE_FINISH, p->r, p->ld, 0);
    return table.ce_finish(dev, s, t, nll, dlogits, max, sums, dloss, p, err);
}

static int sum_squares(struct device *dev, struct stream *s, enum dtype t, double *out,
                       const void *x, const struct span *spans, int32_t num, void *workspace,
                       struct error *err)
{
    int64_t n = 0;
    for (int32_t i = 0; i < num; i++)
        n += spans[i].n;
    NOTE3(LAUNCH_SUM_SQUARES, n, num, 0);
    return table.sum_squares(dev, s, t, out, x, spans, num, workspace, err);
}

static int sum_double(struct device *dev, struct stream *s, double *out, const double *x, int64_t n,
                      struct error *err)
{
    NOTE3(LAUNCH_SUM_DOUBLE, n, 0, 0);
    return table.sum_double(dev, s, out, x, n, err);
}

static int clip(struct device *dev, struct stream *s, double *norm, double *factor,
                const double *squares, double max_norm, struct error *err)
{
    NOTE3(LAUNCH_CLIP, 1, 0, 0);
    return table.clip(dev, s, norm, factor, squares, max_norm, err);
}

static void note_step(enum launch_op op, const struct step_args *a)
{
    int64_t n = 0;
    for (int32_t i = 0; i < a->num_runs; i++)
        n += a->runs[i].n;
    NOTE3(op, n, a->num_runs, 0);
}

static int adamw(struct device *dev, struct stream *s, enum dtype t, const struct step_args *a,
                 struct error *err)
{
    note_step(LAUNCH_ADAMW, a);
    return table.adamw(dev, s, t, a, err);
}

static int sgd(struct device *dev, struct stream *s, enum dtype t, const struct step_args *a,
               struct error *err)
{
    note_step(LAUNCH_SGD, a);
    return table.sgd(dev, s, t, a, err);
}

static int zero(struct device *dev, struct stream *s, void *dst, size_t bytes, struct error *err)
{
    NOTE3(LAUNCH_ZERO, (int64_t)bytes, 0, 0);
    return device_ops.zero(dev, s, dst, bytes, err);
}

static int copy(struct device *dev, struct stream *s, void *dst, const void *src, size_t bytes,
                enum copy_kind kind, struct error *err)
{
    NOTE3(kind == COPY_TO_DEVICE ? LAUNCH_UPLOAD
          : kind == COPY_TO_HOST ? LAUNCH_DOWNLOAD
                                 : LAUNCH_COPY,
          (int64_t)bytes, 0, 0);
    return device_ops.copy(dev, s, dst, src, bytes, kind, err);
}

static int all_reduce(struct comm *c, struct stream *s, void *buf, int64_t n, enum dtype t,
                      enum comm_op op, struct error *err)
{
    NOTE3(LAUNCH_ALL_REDUCE, n, c->size, 0);
    return comm_ops.all_reduce(c, s, buf, n, t, op, err);
}

static int reduce_scatter(struct comm *c, struct stream *s, void *dst, const void *src, int64_t n,
                          enum dtype t, struct error *err)
{
    NOTE3(LAUNCH_REDUCE_SCATTER, n * c->size, c->size, 0);
    return comm_ops.reduce_scatter(c, s, dst, src, n, t, err);
}

static int all_gather(struct comm *c, struct stream *s, void *dst, const void *src, int64_t n,
                      enum dtype t, struct error *err)
{
    NOTE3(LAUNCH_ALL_GATHER, n * c->size, c->size, 0);
    return comm_ops.all_gather(c, s, dst, src, n, t, err);
}

/* ---- how they are seen ------------------------------------------------------------------------
 */

int __real_rank_run(const struct rank_options *options, bool *retryable, struct error *err);
int __wrap_rank_run(const struct rank_options *options, bool *retryable, struct error *err);
int __wrap_rank_run(const struct rank_options *options, bool *retryable, struct error *err)
{
    is_first = options->start->rank == 0;
    steps_begun = 0;
    return __real_rank_run(options, retryable, err);
}

int __real_store_begin_step(struct store *s, struct error *err);
int __wrap_store_begin_step(struct store *s, struct error *err);
int __wrap_store_begin_step(struct store *s, struct error *err)
{
    steps_begun++;
    return __real_store_begin_step(s, err);
}

static void watch_kernels(struct kernels *k)
{
    k->gemm = gemm;
    k->embed_fwd = embed_fwd;
    k->embed_bwd = embed_bwd;
    k->rmsnorm_fwd = rmsnorm_fwd;
    k->rmsnorm_bwd = rmsnorm_bwd;
    k->layernorm_fwd = layernorm_fwd;
    k->layernorm_bwd = layernorm_bwd;
    k->rope = rope;
    k->attention_fwd = attention_fwd;
    k->attention_bwd = attention_bwd;
    k->swiglu_fwd = swiglu_fwd;
    k->swiglu_bwd = swiglu_bwd;
    k->gelu_fwd = NULL; /* of a product's, or nobody's */
    k->gelu_bwd = NULL;
    k->add_bias = add_bias;
    k->column_sum = column_sum;
    k->add = add;
    k->scale = scale;
    k->cross_entropy = cross_entropy;
    k->ce_max = ce_max;
    k->ce_sum = ce_sum;
    k->ce_finish = ce_finish;
    k->sum_squares = sum_squares;
    k->sum_double = sum_double;
    k->clip = clip;
    k->adamw = adamw;
    k->sgd = sgd;
}

/* All ranks' are alike. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

int __real_kernels_open(const struct kernels_options *o, struct device **dev,
                        const struct kernels **k, struct error *err);
int __wrap_kernels_open(const struct kernels_options *o, struct device **dev,
                        const struct kernels **k, struct error *err);
int __wrap_kernels_open(const struct kernels_options *o, struct device **dev,
                        const struct kernels **k, struct error *err)
{
    static struct kernels watched;
    static struct device_ops watched_ops;
    if (__real_kernels_open(o, dev, k, err) != 0)
        return -1;
    pthread_mutex_lock(&lock);
    if (table.gemm == NULL) {
        table = **k;
        watched = table;
        watch_kernels(&watched);
        device_ops = *(*dev)->ops;
        watched_ops = device_ops;
        watched_ops.zero = zero;
        watched_ops.copy = copy;
    }
    pthread_mutex_unlock(&lock);
    *k = &watched;
    (*dev)->ops = &watched_ops;
    return 0;
}

int __real_axes_open(struct axes *out, const Plan *plan, int32_t rank,
                     const struct axes_means *means, struct error *err);
int __wrap_axes_open(struct axes *out, const Plan *plan, int32_t rank,
                     const struct axes_means *means, struct error *err);
int __wrap_axes_open(struct axes *out, const Plan *plan, int32_t rank,
                     const struct axes_means *means, struct error *err)
{
    static struct comm_ops watched;
    if (__real_axes_open(out, plan, rank, means, err) != 0)
        return -1;
    struct comm *comms[] = {out->tensor,   out->kv_replicas, out->shard,
                            out->replicas, out->world,       out->gather};
    for (size_t i = 0; i < sizeof(comms) / sizeof(*comms); i++) {
        if (comms[i] == NULL)
            continue;
        pthread_mutex_lock(&lock);
        if (comm_ops.all_reduce == NULL) {
            comm_ops = *comms[i]->ops;
            watched = comm_ops;
            watched.all_reduce = all_reduce;
            watched.reduce_scatter = reduce_scatter;
            watched.all_gather = all_gather;
        }
        pthread_mutex_unlock(&lock);
        comms[i]->ops = &watched;
    }
    return 0;
}

/* ---- against the plan -------------------------------------------------------------------------
 */

struct comparison {
    const char *what;
    int at, wrong;
    double flops;
};

static void words_of(char *out, size_t size, enum launch_op op, const int64_t *n, bool adds)
{
    snprintf(out, size, "%s %lld %lld %lld %lld %lld%s", launch_op_names[op], (long long)n[0],
             (long long)n[1], (long long)n[2], (long long)n[3], (long long)n[4],
             adds ? " adds" : "");
}

static void compare(void *arg, const struct launch *l)
{
    struct comparison *c = arg;
    char planned[160], called[160] = "nothing";
    if (l->op == LAUNCH_RECORD || l->op == LAUNCH_WAIT)
        return;
    const struct call *call = c->at < num_calls ? &calls[c->at] : NULL;
    int64_t size[LAUNCH_SIZES];
    memcpy(size, l->size, sizeof(size));
    if (l->op == LAUNCH_GEMM) { /* what else is noted of it */
        size[3] = l->beside;
        size[4] = l->c_elem;
    }
    words_of(planned, sizeof(planned), l->op, size, l->adds);
    if (call != NULL)
        words_of(called, sizeof(called), call->op, call->size, call->adds);
    if (strcmp(planned, called) != 0 && c->wrong++ < 10)
        print_message("%s: %d: planned %s (%s), called %s\n", c->what, c->at, planned, l->what,
                      called);
    if (l->op == LAUNCH_GEMM)
        assert_true(l->flops == 2.0 * (double)(l->size[0] * l->size[1] * l->size[2]));
    if (l->op == LAUNCH_GEMM || l->op == LAUNCH_ATTENTION_FWD || l->op == LAUNCH_ATTENTION_BWD)
        c->flops += l->flops;
    c->at++;
}

/* Over all ranks it comes to the FLOPs that the plan counts, where nothing is padded or held twice:
 * the golden cases' KV heads and vocabularies come out even over two and four ranks. */
static void check(struct gang_spec spec, const char *what, bool even)
{
    struct error err = {0};
    spec.backend = "ref";
    spec.precision = spec.precision != NULL ? spec.precision : "bf16";
    spec.steps = 3;
    struct gang g = {.plan = gang_plan(&spec), .queued_compute = true};
    const Plan *p = g.plan;
    num_calls = 0;
    gang_run_well(&g);
    struct comparison c = {.what = what};
    if (launches_each(p, compare, &c, &err) != 0)
        fail_msg("%s: %s", what, err.text);
    double tokens = (double)p->spec->training->global_batch_size * (double)spec.golden->seq_len;
    double ratio = c.flops * (double)p->mesh->num_ranks / (p->flops_per_token * tokens);
    if (c.wrong > 0 || c.at != num_calls)
        fail_msg("%s: %d launches planned, %d called, %d differ", what, c.at, num_calls, c.wrong);
    if (even ? fabs(ratio - 1) > 1e-12 : ratio < 1)
        fail_msg("%s: gemm and attention have %.17g of the FLOPs that the plan counts", what,
                 ratio);
    plan__free_unpacked((Plan *)(uintptr_t)p, NULL);
}

static void one_rank_launches_what_the_plan_lists(void **state)
{
    (void)state;
    check((struct gang_spec){.golden = &golden_tiny, .micro = 2}, "llama", true);
    check((struct gang_spec){.golden = &golden_gpt2, .micro = 1}, "gpt2", true);
    check((struct gang_spec){.golden = &golden_qwen2, .precision = "fp32"}, "qwen2 fp32", true);
    check((struct gang_spec){.golden = &golden_qwen3, .optimizer = "name: sgd, lr: 0.01"},
          "qwen3 sgd", true);
}

static void data_ranks_do(void **state)
{
    (void)state;
    for (int stage = 0; stage <= 3; stage++) {
        struct gang_spec spec = {.golden = &golden_tiny, .data = 2, .zero_stage = stage};
        check(spec, "llama data 2", true);
        spec.golden = &golden_gpt2;
        check(spec, "gpt2 data 2", true);
    }
    struct gang_spec hybrid = {.golden = &golden_tiny, .data = 4, .zero_stage = 3, .shard_size = 2};
    check(hybrid, "llama hybrid", true);
    hybrid.zero_stage = 1;
    check(hybrid, "llama hybrid, zero 1", true);
    check((struct gang_spec){.golden = &golden_tied, .data = 2, .zero_stage = 3}, "tied, zero 3",
          true);
}

/* Targets are counted a step ahead; positions and segments are part of the batch. */
static void packed_rows_do(void **state)
{
    (void)state;
    char data[600], model[600]; /* golden_path's text is the next call's */
    struct gang_spec spec = {.golden = &golden_packed, .format = "tokenized-jsonl"};
    snprintf(data, sizeof(data), "%s", golden_path(spec.golden, "train.jsonl"));
    snprintf(model, sizeof(model), "%s", golden_path(&golden_tiny, ""));
    spec.data_path = data;
    spec.model_path = model;
    check(spec, "packed", true);
    spec.data = 2;
    spec.zero_stage = 2;
    check(spec, "packed, zero 2", true);
}

static void tensor_ranks_do(void **state)
{
    (void)state;
    struct gang_spec spec = {.golden = &golden_tiny, .tensor = 2, .micro = 2};
    check(spec, "llama tensor 2", true);
    spec.sequence_parallel = true;
    check(spec, "llama tensor 2, sequence parallel", true);
    spec.golden = &golden_gpt2;
    check(spec, "gpt2 tensor 2, sequence parallel", true);
    spec.sequence_parallel = false;
    check(spec, "gpt2 tensor 2", true);
    spec.golden = &golden_tiny;
    spec.tensor = 8; /* each KV head lies on two */
    check(spec, "llama tensor 8", false);
    check((struct gang_spec){.golden = &golden_tiny, .data = 2, .tensor = 2, .zero_stage = 3},
          "llama data 2, tensor 2, zero 3", true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank_launches_what_the_plan_lists),
        cmocka_unit_test(data_ranks_do),
        cmocka_unit_test(packed_rows_do),
        cmocka_unit_test(tensor_ranks_do),
    };
    gang_quiet();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
