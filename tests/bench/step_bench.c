/* Time of a training step by part, on the cpu backend: the quickstart's model, T = 128.
 *
 * The kernels' table is wrapped, so each operation is timed where it is called; the rest of a step
 * is the trainer's own. Shares carry over between machines, milliseconds don't. A second table
 * shows whole gangs, with their sums and reports, against the same device's matrix peak.
 * step_bench [MICRO [STEPS [CONFIG.json SEQ_LEN]]]: another model than the quickstart's, without
 * gangs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "../parallel/gang.h"
#include "base/fs.h"
#include "base/rng.h"
#include "kernels/cpu/peak.h"
#include "plan/params.h"
#include "runtime/ckpt/ckpt.h"
#include "runtime/layers/model.h"
#include "runtime/optim/optimizer.h"

/* The one thread's own time, so that neighbours on the machine don't count. */
static int64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ---- the timed table --------------------------------------------------------------------------
 */

enum part {
    PART_GEMM,
    PART_ATTENTION,
    PART_NORM,
    PART_ROPE,
    PART_ACTIVATION,
    PART_ADD,
    PART_EMBED,
    PART_LOSS,
    PART_NORM_OF_GRADIENT,
    PART_OPTIMIZER,
    NUM_PARTS,
};
static const char *const part_names[NUM_PARTS] = {
    "matrix products", "attention", "norms", "rope",          "activation",
    "biases, adds",    "embedding", "loss",  "gradient norm", "optimizer",
};
static int64_t part_ns[NUM_PARTS];
static const struct kernels *inner;

#define TIMED(part, call)                                                                          \
    do {                                                                                           \
        int64_t begin_ns = cpu_ns();                                                               \
        int rc = inner->call;                                                                      \
        part_ns[part] += cpu_ns() - begin_ns;                                                      \
        return rc;                                                                                 \
    } while (0)

static int gemm(struct device *dev, struct stream *s, enum dtype t, const struct gemm_args *a,
                struct error *err)
{
    TIMED(PART_GEMM, gemm(dev, s, t, a, err));
}
static int embed_fwd(struct device *dev, struct stream *s, enum dtype t, void *y, const void *w,
                     const int32_t *ids, int64_t first, int64_t r, int64_t v, int64_t d,
                     struct error *err)
{
    TIMED(PART_EMBED, embed_fwd(dev, s, t, y, w, ids, first, r, v, d, err));
}
static int embed_bwd(struct device *dev, struct stream *s, enum dtype t, void *dw, const void *dy,
                     const int32_t *ids, int64_t first, int64_t r, int64_t v, int64_t d,
                     void *workspace, struct error *err)
{
    TIMED(PART_EMBED, embed_bwd(dev, s, t, dw, dy, ids, first, r, v, d, workspace, err));
}
static int rmsnorm_fwd(struct device *dev, struct stream *s, enum dtype t, void *y, void *rstd,
                       const void *x, const void *w, int64_t r, int64_t d, double eps,
                       struct error *err)
{
    TIMED(PART_NORM, rmsnorm_fwd(dev, s, t, y, rstd, x, w, r, d, eps, err));
}
static int rmsnorm_bwd(struct device *dev, struct stream *s, enum dtype t, void *dx, void *dw,
                       const void *dy, const void *x, const void *w, const void *rstd, int64_t r,
                       int64_t d, bool accumulate, void *workspace, struct error *err)
{
    TIMED(PART_NORM,
          rmsnorm_bwd(dev, s, t, dx, dw, dy, x, w, rstd, r, d, accumulate, workspace, err));
}
static int layernorm_fwd(struct device *dev, struct stream *s, enum dtype t, void *y, void *mean,
                         void *rstd, const void *x, const void *w, const void *b, int64_t r,
                         int64_t d, double eps, struct error *err)
{
    TIMED(PART_NORM, layernorm_fwd(dev, s, t, y, mean, rstd, x, w, b, r, d, eps, err));
}
static int layernorm_bwd(struct device *dev, struct stream *s, enum dtype t, void *dx, void *dw,
                         void *db, const void *dy, const void *x, const void *w, const void *mean,
                         const void *rstd, int64_t r, int64_t d, bool accumulate, void *workspace,
                         struct error *err)
{
    TIMED(PART_NORM, layernorm_bwd(dev, s, t, dx, dw, db, dy, x, w, mean, rstd, r, d, accumulate,
                                   workspace, err));
}
static int rope(struct device *dev, struct stream *s, enum dtype t, void *x, const void *cos,
                const void *sin, const int32_t *positions, int64_t r, int64_t seq_len,
                int64_t heads, int64_t e, bool backward, struct error *err)
{
    TIMED(PART_ROPE, rope(dev, s, t, x, cos, sin, positions, r, seq_len, heads, e, backward, err));
}
static int attention_fwd(struct device *dev, struct stream *s, enum dtype t,
                         const struct attention_args *a, struct error *err)
{
    TIMED(PART_ATTENTION, attention_fwd(dev, s, t, a, err));
}
static int attention_bwd(struct device *dev, struct stream *s, enum dtype t,
                         const struct attention_args *a, struct error *err)
{
    TIMED(PART_ATTENTION, attention_bwd(dev, s, t, a, err));
}
static int swiglu_fwd(struct device *dev, struct stream *s, enum dtype t, void *y, const void *gate,
                      const void *up, int64_t n, struct error *err)
{
    TIMED(PART_ACTIVATION, swiglu_fwd(dev, s, t, y, gate, up, n, err));
}
static int swiglu_bwd(struct device *dev, struct stream *s, enum dtype t, void *dgate, void *dup,
                      const void *dy, const void *gate, const void *up, int64_t n,
                      struct error *err)
{
    TIMED(PART_ACTIVATION, swiglu_bwd(dev, s, t, dgate, dup, dy, gate, up, n, err));
}
static int gelu_fwd(struct device *dev, struct stream *s, enum dtype t, void *y, const void *x,
                    int64_t n, struct error *err)
{
    TIMED(PART_ACTIVATION, gelu_fwd(dev, s, t, y, x, n, err));
}
static int gelu_bwd(struct device *dev, struct stream *s, enum dtype t, void *dx, const void *dy,
                    const void *x, int64_t n, struct error *err)
{
    TIMED(PART_ACTIVATION, gelu_bwd(dev, s, t, dx, dy, x, n, err));
}
static int add_bias(struct device *dev, struct stream *s, enum dtype t, void *y, const void *b,
                    int64_t r, int64_t n, struct error *err)
{
    TIMED(PART_ADD, add_bias(dev, s, t, y, b, r, n, err));
}
static int column_sum(struct device *dev, struct stream *s, enum dtype t, void *db, const void *dy,
                      int64_t r, int64_t n, struct error *err)
{
    TIMED(PART_ADD, column_sum(dev, s, t, db, dy, r, n, err));
}
static int add(struct device *dev, struct stream *s, enum dtype t, void *y, const void *a,
               const void *b, int64_t n, struct error *err)
{
    TIMED(PART_ADD, add(dev, s, t, y, a, b, n, err));
}
static int cross_entropy(struct device *dev, struct stream *s, enum dtype t, double *nll,
                         void *dlogits, const void *logits, const int32_t *targets, double dloss,
                         int64_t r, int64_t v, int64_t ld, struct error *err)
{
    TIMED(PART_LOSS, cross_entropy(dev, s, t, nll, dlogits, logits, targets, dloss, r, v, ld, err));
}
static int ce_max(struct device *dev, struct stream *s, enum dtype t, double *max,
                  const struct logits_part *p, struct error *err)
{
    TIMED(PART_LOSS, ce_max(dev, s, t, max, p, err));
}
static int ce_sum(struct device *dev, struct stream *s, enum dtype t, double *sums,
                  const double *max, const struct logits_part *p, struct error *err)
{
    TIMED(PART_LOSS, ce_sum(dev, s, t, sums, max, p, err));
}
static int ce_finish(struct device *dev, struct stream *s, enum dtype t, double *nll, void *dlogits,
                     const double *max, const double *sums, double dloss,
                     const struct logits_part *p, struct error *err)
{
    TIMED(PART_LOSS, ce_finish(dev, s, t, nll, dlogits, max, sums, dloss, p, err));
}
static int sum_squares(struct device *dev, struct stream *s, enum dtype t, double *out,
                       const void *x, const struct span *spans, int32_t num_spans, void *workspace,
                       struct error *err)
{
    TIMED(PART_NORM_OF_GRADIENT, sum_squares(dev, s, t, out, x, spans, num_spans, workspace, err));
}
static int adamw(struct device *dev, struct stream *s, enum dtype t, const struct step_args *a,
                 struct error *err)
{
    TIMED(PART_OPTIMIZER, adamw(dev, s, t, a, err));
}

static struct kernels timed_table(const struct kernels *k)
{
    struct kernels timed = *k;
    inner = k;
    timed.gemm = gemm;
    timed.embed_fwd = embed_fwd;
    timed.embed_bwd = embed_bwd;
    timed.rmsnorm_fwd = rmsnorm_fwd;
    timed.rmsnorm_bwd = rmsnorm_bwd;
    timed.layernorm_fwd = layernorm_fwd;
    timed.layernorm_bwd = layernorm_bwd;
    timed.rope = rope;
    timed.attention_fwd = attention_fwd;
    timed.attention_bwd = attention_bwd;
    timed.swiglu_fwd = swiglu_fwd;
    timed.swiglu_bwd = swiglu_bwd;
    timed.gelu_fwd = gelu_fwd;
    timed.gelu_bwd = gelu_bwd;
    timed.add_bias = add_bias;
    timed.column_sum = column_sum;
    timed.add = add;
    timed.cross_entropy = cross_entropy;
    timed.ce_max = ce_max;
    timed.ce_sum = ce_sum;
    timed.ce_finish = ce_finish;
    timed.sum_squares = sum_squares;
    timed.adamw = adamw;
    return timed;
}

/* ---- one rank's step --------------------------------------------------------------------------
 */

#define TRY(call)                                                                                  \
    do {                                                                                           \
        if ((call) != 0) {                                                                         \
            fprintf(stderr, "%s\n", err.text);                                                     \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static void print_parts(int64_t all_ns, int64_t forward_ns, int64_t backward_ns)
{
    int64_t known_ns = 0;
    for (int i = 0; i < NUM_PARTS; i++) {
        known_ns += part_ns[i];
        printf("  %-16s %5.1f %%\n", part_names[i], 100.0 * (double)part_ns[i] / (double)all_ns);
    }
    printf("  %-16s %5.1f %%\n", "the rest", 100.0 * (double)(all_ns - known_ns) / (double)all_ns);
    printf("  forward %.1f %%, backward %.1f %%; %.2f ms a step\n",
           100.0 * (double)forward_ns / (double)all_ns,
           100.0 * (double)backward_ns / (double)all_ns, (double)all_ns * 1e-6);
}

static int64_t param_end(const struct param_table *table, int32_t i)
{
    return i + 1 < table->num_params ? table->params[i + 1].offset : table->flat_numel;
}

static struct optimizer_run run_at(int64_t at, bool decay)
{
    return (struct optimizer_run){.w = at, .low = at, .g = at, .m = at, .decay = decay};
}

/* The runs of buffers that hold the whole table. Padding goes with what lies before it: it is zero
 * in all buffers and a step leaves zero there. */
static struct optimizer_run *table_runs(const struct param_table *table, int32_t *num_runs)
{
    struct optimizer_run *out = calloc((size_t)table->num_params + 1, sizeof(*out));
    assert_non_null(out);
    int32_t num = 0;
    for (int32_t i = 0; i < table->num_params; i++) {
        const struct param *p = &table->params[i];
        if (num == 0 || out[num - 1].decay != p->decay)
            out[num++] = run_at(p->offset, p->decay);
        out[num - 1].numel = param_end(table, i) - out[num - 1].w;
    }
    *num_runs = num;
    return out;
}

static void bench_parts(const Plan *plan, int steps)
{
    struct error err = {0};
    struct device *dev;
    const struct kernels *kernels;
    struct stream *stream;
    struct param_table table;
    const TrainingSpec *training = plan->spec->training;
    TRY(kernels_open(&(struct kernels_options){"cpu", 1, 0}, &dev, &kernels, &err));
    TRY(dev->ops->stream_new(dev, STREAM_INLINE, &stream, &err));
    TRY(params_expand(plan, 0, &table, &err));
    struct kernels timed = timed_table(kernels);
    size_t flat = (size_t)table.flat_numel * sizeof(float);
    void *buffers[4];
    for (int i = 0; i < 4; i++)
        buffers[i] = dev->ops->alloc(dev, flat, MEM_DEVICE);
    struct ckpt_state state = {
        .table = &table, .dtype = DTYPE_F32, .weights = {.data = buffers[0]}};
    ckpt_init_random(&state, 1);
    struct model_options model_options = {
        .config = plan->model->config,
        .table = &table,
        .dtype = DTYPE_F32,
        .micro_batch_size = training->micro_batch_size,
        .seq_len = training->seq_len,
        .dev = dev,
        .kernels = &timed,
        .stream = stream,
        .trains = true,
    };
    struct optimizer_options optimizer_options = {.spec = training->optimizer,
                                                  .buffers = {.weights = buffers[0],
                                                              .grads = buffers[1],
                                                              .exp_avg = buffers[2],
                                                              .exp_avg_sq = buffers[3]},
                                                  .dtype = DTYPE_F32,
                                                  .dev = dev,
                                                  .kernels = &timed,
                                                  .stream = stream};
    struct optimizer_run *runs = table_runs(&table, &optimizer_options.num_runs);
    optimizer_options.runs = runs;
    struct model *model;
    struct optimizer *optimizer;
    TRY(model_new(&model, &model_options, &err));
    model_bind_whole(model, buffers[0], buffers[1]);
    TRY(optimizer_new(&optimizer, &optimizer_options, &err));
    free(runs);
    int64_t rows = training->micro_batch_size * training->seq_len;
    uint64_t vocab = (uint64_t)plan->model->config->vocab_size;
    int32_t *ids = malloc((size_t)(rows + 1) * sizeof(*ids));
    for (int64_t i = 0; i <= rows; i++)
        ids[i] = (int32_t)(rng_u64(1, 2, (uint64_t)i) % vocab);
    const struct batch batch = {.ids = ids, .targets = ids + 1};
    model_set_batch(model, &batch);
    int32_t num_units = (int32_t)plan->model->config->num_hidden_layers + 2;
    double *words = dev->ops->alloc(dev, 4 * sizeof(*words), MEM_DEVICE);
    int64_t all_ns = INT64_MAX, forward_ns = 0, backward_ns = 0, best_ns[NUM_PARTS] = {0};
    for (int step = -1; step < steps; step++) {
        memset(part_ns, 0, sizeof(part_ns));
        int64_t begin = cpu_ns();
        struct params_sums walk = {.table = &table, .end = table.flat_numel};
        for (int64_t at, n; params_next_sums(&walk, &at, &n);)
            TRY(dev->ops->zero(dev, stream, (float *)buffers[1] + at, (size_t)n * sizeof(float),
                               &err));
        int64_t forward = cpu_ns();
        TRY(model_forward(model, 0, num_units, 1.0 / (double)rows, words, &err));
        int64_t backward = cpu_ns();
        TRY(model_backward(model, 0, num_units, true, &err));
        int64_t end = cpu_ns();
        struct span all = {0, table.flat_numel};
        TRY(timed.sum_squares(dev, stream, DTYPE_F32, words + 1, buffers[1], &all, 1, words + 3,
                              &err));
        TRY(timed.clip(dev, stream, words + 1, words + 2, words + 1, 1.0, &err));
        TRY(optimizer_step(optimizer, step + 2, 1e-4, words + 2, &err));
        int64_t step_ns = cpu_ns() - begin;
        if (step < 0 || step_ns >= all_ns)
            continue;
        all_ns = step_ns; /* the fastest so far: neighbours on the machine make them slower */
        forward_ns = backward - forward;
        backward_ns = end - backward;
        memcpy(best_ns, part_ns, sizeof(best_ns));
    }
    memcpy(part_ns, best_ns, sizeof(part_ns));
    printf("one rank, one thread, micro-batch %lld x %lld tokens:\n",
           (long long)training->micro_batch_size, (long long)training->seq_len);
    print_parts(all_ns, forward_ns, backward_ns);
    double flops = plan->flops_per_token * (double)rows / ((double)all_ns * 1e-9);
    printf("  %.1f GFLOP/s: %.1f %% of the matrix peak of one thread\n", flops * 1e-9,
           100.0 * flops / peak_flops(DTYPE_F32));
    model_free(model);
    optimizer_free(optimizer);
    free(ids);
    for (int i = 0; i < 4; i++)
        dev->ops->free(dev, buffers[i]);
    dev->ops->free(dev, words);
    dev->ops->stream_free(dev, stream);
    params_free(&table);
    dev->ops->close(dev);
}

/* ---- whole gangs ------------------------------------------------------------------------------
 */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void bench_gang(const struct gang_spec *spec)
{
    struct gang g = {.plan = gang_plan(spec)};
    gang_run_well(&g);
    double ms[GANG_MAX_STEPS];
    for (int64_t i = 0; i < g.num_steps; i++)
        ms[i] = g.steps[i].step_ms;
    qsort(ms, (size_t)g.num_steps, sizeof(*ms), by_value);
    double median = ms[g.num_steps / 2];
    double tokens =
        (double)(g.plan->spec->training->global_batch_size * g.plan->spec->training->seq_len);
    double flops = g.plan->flops_per_token * tokens / (median * 1e-3);
    printf("  data %lld micro %lld: %.2f ms a step, %.0f tokens/s, %.1f %% of the peak\n",
           (long long)spec->data, (long long)spec->micro, median, tokens / (median * 1e-3),
           100.0 * flops / (peak_flops(DTYPE_F32) * (double)spec->data));
    plan__free_unpacked((Plan *)g.plan, NULL);
}

static void write_data(const char *path)
{
    uint16_t tokens[129 * 256];
    for (size_t i = 0; i < sizeof(tokens) / sizeof(*tokens); i++)
        tokens[i] = (uint16_t)(rng_u64(3, 4, i) % 256);
    struct error err = {0};
    TRY(fs_write_atomic(path, tokens, sizeof(tokens), 0600, &err));
}

int main(int argc, char **argv)
{
    gang_quiet();
    int64_t micro = argc > 1 ? atoll(argv[1]) : 8;
    int steps = argc > 2 ? atoi(argv[2]) : 40;
    const char *config = argc > 4 ? argv[3] : TANDEM_SOURCE_DIR "/examples/quickstart-config.json";
    int64_t seq_len = argc > 4 ? atoll(argv[4]) : 128;
    if (micro < 1 || micro > 256 || steps < 1 || steps > GANG_MAX_STEPS || seq_len < 1 ||
        seq_len > 128 * 256)
        return 2;
    char *dir = gang_make_dir(), data_path[512];
    fs_join(data_path, sizeof(data_path), dir, "data.bin");
    write_data(data_path);
    const struct golden sizes = {.name = "bench", .seq_len = seq_len};
    struct gang_spec spec = {
        .golden = &sizes,
        .data = 1,
        .micro = micro,
        .batch = micro,
        .steps = steps,
        .backend = "cpu",
        .precision = "fp32",
        .data_path = data_path,
        .config = config,
        .bucket_mb = "25",
    };
    Plan *plan = gang_plan(&spec);
    bench_parts(plan, steps);
    plan__free_unpacked(plan, NULL);
    if (argc <= 4)
        printf("gangs, ranks as threads:\n");
    for (spec.data = 1; argc <= 4 && spec.data <= 2; spec.data++) {
        spec.batch = spec.data * micro;
        bench_gang(&spec);
        spec.batch = spec.data * micro * 4;
        bench_gang(&spec);
    }
    gang_remove_dir(dir);
    return 0;
}
