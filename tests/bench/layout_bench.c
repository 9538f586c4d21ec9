/* What layouts cost on one host: the steps of a model of real size as one rank of two threads, and
 * the same global batch shared out over ranks as threads; and what overlap of sums and gathers with
 * the computation brings. All of it in one run, in turns, as ratios to the first: milliseconds are
 * this machine's.
 *
 *   layout_bench [gpt2|llama [ROUNDS [LAYERS [MICRO [MICRO_BATCHES [SEQ_LEN [WAY]]]]]]]
 *   layout_bench gpt2|llama steps SEQ_LEN MICRO LAYERS THREADS    for peer_bench.py: bare figures
 *
 * MICRO: sequences that all ranks together take at once. WAY: only those whose name begins so. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "../parallel/gang.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/rng.h"
#include "kernels/cpu/peak.h"
#include "kernels/kernels.h"
#include "layout_waits.h"

#define STEPS 3
#define MAX_ROUNDS 16

static int64_t num_cores = 2;

struct way {
    const char *name;
    int64_t data, tensor, zero_stage, shard_size;
    bool sequence, late; /* late: no overlap; sums and gathers when there is nothing else to do */
    double ms[MAX_ROUNDS * STEPS], cpu_ms[MAX_ROUNDS * STEPS];
    struct layout_waits waits; /* of the fastest step's run, a step */
    double best_ms;
    int num;
};

static struct way ways[] = {
    {.name = "one rank", .data = 1, .tensor = 1},
    {.name = "data 2", .data = 2, .tensor = 1},
    {.name = "data 2, sums last", .data = 2, .tensor = 1, .late = true},
    {.name = "tensor 2", .data = 1, .tensor = 2},
    {.name = "tensor 2, sequence", .data = 1, .tensor = 2, .sequence = true},
    {.name = "ZeRO-1", .data = 2, .tensor = 1, .zero_stage = 1},
    {.name = "ZeRO-2", .data = 2, .tensor = 1, .zero_stage = 2},
    {.name = "ZeRO-3", .data = 2, .tensor = 1, .zero_stage = 3},
    {.name = "ZeRO-3, no overlap", .data = 2, .tensor = 1, .zero_stage = 3, .late = true},
    {.name = "hybrid ZeRO-3, 4 ranks", .data = 4, .tensor = 1, .zero_stage = 3, .shard_size = 2},
};
#define NUM_WAYS (sizeof(ways) / sizeof(ways[0]))

static const char gpt2_format[] =
    "{\"model_type\": \"gpt2\", \"n_embd\": 768, \"n_layer\": %d, \"n_head\": 12, "
    "\"n_positions\": 1024, \"vocab_size\": 50257, \"layer_norm_epsilon\": 1e-5, "
    "\"activation_function\": \"gelu_new\", \"tie_word_embeddings\": true, "
    "\"initializer_range\": 0.02}\n";
static const char llama_format[] =
    "{\"model_type\": \"llama\", \"hidden_size\": 768, \"intermediate_size\": 2048, "
    "\"num_hidden_layers\": %d, \"num_attention_heads\": 12, \"num_key_value_heads\": 4, "
    "\"vocab_size\": 32000, \"max_position_embeddings\": 2048, \"rms_norm_eps\": 1e-5, "
    "\"tie_word_embeddings\": true, \"hidden_act\": \"silu\", \"initializer_range\": 0.02}\n";

/* ---- the peak ---------------------------------------------------------------------------------
 */

/* Of a square product on all cores, by the clock; the best of all calls. */
static double measure_peak(int threads)
{
    enum { SIDE = 1024, TRIES = 12 };
    static double best;
    struct error err = {0};
    struct device *dev;
    const struct kernels *k;
    struct stream *s;
    ASSERT(kernels_open(&(struct kernels_options){"cpu", threads, 0}, &dev, &k, &err) == 0);
    ASSERT(dev->ops->stream_new(dev, STREAM_INLINE, &s, &err) == 0);
    float *mem = dev->ops->alloc(dev, (size_t)3 * SIDE * SIDE * sizeof(float), MEM_DEVICE);
    ASSERT(mem != NULL);
    struct gemm_args g = {.m = SIDE,
                          .n = SIDE,
                          .k = SIDE,
                          .alpha = 1,
                          .a = mem,
                          .lda = SIDE,
                          .b = mem + SIDE * SIDE,
                          .ldb = SIDE,
                          .c = mem + 2 * SIDE * SIDE,
                          .ldc = SIDE};
    for (int i = 0; i < TRIES; i++) {
        int64_t begin = clock_mono_ns();
        ASSERT(k->gemm(dev, s, DTYPE_F32, &g, &err) == 0);
        double flops = 2.0 * SIDE * SIDE * SIDE / (double)(clock_mono_ns() - begin) * 1e9;
        best = flops > best ? flops : best;
    }
    dev->ops->free(dev, mem);
    dev->ops->stream_free(dev, s);
    dev->ops->close(dev);
    return best;
}

/* One thread's, by its processor time, so that neighbours count less. */
static double thread_peak(void)
{
    static double best;
    double now = peak_flops(DTYPE_F32);
    best = now > best ? now : best;
    return best;
}

/* ---- one way ----------------------------------------------------------------------------------
 */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The reduces of the list to right before the wait for them, in their order. */
static void take_overlap_away(Stage *stage)
{
    Action **sorted = malloc(stage->n_actions * sizeof(*sorted));
    size_t num = 0, wait = 0;
    while (stage->actions[wait]->kind != ACTION_WAIT_REDUCES)
        wait++;
    for (int late = 0; late < 2; late++)
        for (size_t i = 0; i < wait; i++)
            if ((stage->actions[i]->kind == ACTION_REDUCE_BUCKET) == late)
                sorted[num++] = stage->actions[i];
    memcpy(stage->actions, sorted, num * sizeof(*sorted));
    free(sorted);
}

/* Of all ranks. */
static double process_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static double step_cpu_ms[STEPS + 2];

static void note_step(struct gang *g, const StepMetrics *m)
{
    (void)g;
    if (m->step <= STEPS + 1)
        step_cpu_ms[m->step] = process_ms();
    if (m->step == 1)
        layout_waits_reset();
}

static Plan *plan_of(const struct way *way, struct gang_spec spec)
{
    int64_t together = spec.micro, ranks = way->data * way->tensor;
    int64_t cores = num_cores;
    spec.data = way->data;
    spec.tensor = way->tensor;
    spec.zero_stage = way->zero_stage;
    spec.shard_size = way->shard_size;
    spec.sequence_parallel = way->sequence;
    spec.micro = together / way->data;
    Plan *plan = gang_plan(&spec);
    plan->threads_per_rank = ranks < cores ? (int32_t)(cores / ranks) : 1;
    if (way->late && way->zero_stage < 2)
        take_overlap_away(plan->stages[0]);
    return plan;
}

static void run_way(struct way *way, struct gang_spec spec)
{
    Plan *plan = plan_of(way, spec);
    layout_waits_serial(way->late && way->zero_stage == 3);
    struct gang g = {.plan = plan, .on_step = note_step};
    gang_run_well(&g);
    struct layout_waits waits = layout_waits_take();
    for (int64_t i = 1; i < g.num_steps; i++) { /* the first one touches memory */
        way->ms[way->num] = g.steps[i].step_ms;
        way->cpu_ms[way->num++] = step_cpu_ms[i + 1] - step_cpu_ms[i];
        if (way->best_ms == 0 || g.steps[i].step_ms < way->best_ms) {
            way->best_ms = g.steps[i].step_ms;
            way->waits = waits;
        }
    }
    fprintf(stderr, "  %-24s last step %.0f ms, processor %.0f ms\n", way->name,
            way->ms[way->num - 1], way->cpu_ms[way->num - 1]);
    plan__free_unpacked(plan, NULL);
}

static double flops_of(const struct gang_spec *spec)
{
    Plan *plan = plan_of(&ways[0], *spec);
    double flops = plan->flops_per_token * (double)(spec->batch * spec->golden->seq_len);
    plan__free_unpacked(plan, NULL);
    return flops;
}

struct peaks {
    double clock, thread; /* of all cores by the clock; of one thread by its processor time */
};

static void print_way(struct way *w, const struct way *first, double step_flops,
                      const struct peaks *peak)
{
    if (w->num == 0)
        return;
    qsort(w->ms, (size_t)w->num, sizeof(*w->ms), by_value);
    qsort(w->cpu_ms, (size_t)w->num, sizeof(*w->cpu_ms), by_value);
    int mid = w->num / 2;
    printf("  %-24s %7.0f %5.2f %7.0f %5.2f %5.1f %% %7.0f %5.2f %5.1f %% %6.1f %% %6.1f %%\n",
           w->name, w->ms[mid], first->num ? w->ms[mid] / first->ms[mid] : 0, w->ms[0],
           first->num ? w->ms[0] / first->ms[0] : 0, 1e5 * step_flops / w->ms[0] / peak->clock,
           w->cpu_ms[0], first->num ? w->cpu_ms[0] / first->cpu_ms[0] : 0,
           1e5 * step_flops / w->cpu_ms[0] / peak->thread, 100 * w->waits.wait_share,
           100 * w->waits.inline_share);
}

/* ---- all --------------------------------------------------------------------------------------
 */

static void write_data(const char *path, int64_t seq_len, int64_t vocab)
{
    size_t num = (size_t)(seq_len + 1) * 512;
    uint16_t *tokens = malloc(num * sizeof(*tokens));
    for (size_t i = 0; i < num; i++)
        tokens[i] = (uint16_t)(rng_u64(3, 4, i) % (uint64_t)vocab);
    struct error err = {0};
    ASSERT(fs_write_atomic(path, tokens, num * sizeof(*tokens), 0600, &err) == 0);
    free(tokens);
}

static void write_config(const char *path, bool llama, int layers)
{
    struct error err = {0};
    char text[1024];
    int len = snprintf(text, sizeof(text), llama ? llama_format : gpt2_format, layers);
    ASSERT(fs_write_atomic(path, text, (size_t)len, 0600, &err) == 0);
}

static int64_t number(int argc, char **argv, int idx, int64_t usual)
{
    int64_t n = idx < argc ? atoll(argv[idx]) : usual;
    if (n < 1 || n > 4096) {
        fprintf(stderr, "%s: a number from 1 to 4096\n", argv[idx]);
        exit(2);
    }
    return n;
}

static void compare(const struct gang_spec *spec, int64_t rounds, const char *only)
{
    struct peaks peak = {0};
    double flops = flops_of(spec);
    size_t len = only != NULL ? strlen(only) : 0;
    for (int64_t round = 0; round < rounds; round++) {
        for (size_t i = 0; i < NUM_WAYS; i++)
            if (len == 0 || strncmp(ways[i].name, only, len) == 0)
                run_way(&ways[i], *spec);
        peak = (struct peaks){measure_peak((int)num_cores), thread_peak()};
    }
    printf("a step, and its ratio to one rank's: median ms; fastest ms, share of the peak; least "
           "processor ms of all ranks, share of a thread's peak; computation's time in waits for "
           "other streams, and in collectives of its own\n");
    for (size_t i = 0; i < NUM_WAYS; i++)
        print_way(&ways[i], &ways[0], flops, &peak);
}

static void bare_figures(const struct gang_spec *spec)
{
    run_way(&ways[0], *spec);
    for (int i = 0; i < ways[0].num; i++)
        printf("step %.3f %.3f\n", ways[0].ms[i], ways[0].cpu_ms[i]);
    printf("flops %.6g\npeak %.6g %.6g\n", flops_of(spec), measure_peak((int)num_cores),
           thread_peak());
}

int main(int argc, char **argv)
{
    bool llama = argc > 1 && strcmp(argv[1], "llama") == 0;
    bool bare = argc > 2 && strcmp(argv[2], "steps") == 0;
    int64_t rounds = bare ? 1 : number(argc, argv, 2, 2);
    int64_t layers = bare ? number(argc, argv, 5, 12) : number(argc, argv, 3, llama ? 8 : 12);
    int64_t micro = number(argc, argv, 4, 4), num_micro = bare ? 1 : number(argc, argv, 5, 1);
    int64_t seq_len = bare ? number(argc, argv, 3, 256) : number(argc, argv, 6, 128);
    num_cores = bare ? number(argc, argv, 6, 2) : 2;
    if (rounds > MAX_ROUNDS || micro % 4 != 0)
        return 2;
    gang_quiet();
    char *dir = gang_make_dir(), data_path[512], config_path[512];
    fs_join(data_path, sizeof(data_path), dir, "data.bin");
    fs_join(config_path, sizeof(config_path), dir, "config.json");
    write_data(data_path, seq_len, llama ? 32000 : 50257);
    write_config(config_path, llama, (int)layers);
    const struct golden sizes = {.name = "bench", .seq_len = seq_len};
    struct gang_spec spec = {
        .golden = &sizes,
        .micro = micro,
        .batch = micro * num_micro,
        .steps = STEPS + 1,
        .backend = "cpu",
        .precision = "fp32",
        .data_path = data_path,
        .config = config_path,
        .bucket_mb = "25",
    };
    if (bare)
        bare_figures(&spec);
    else
        compare(&spec, rounds, argc > 7 ? argv[7] : NULL);
    gang_remove_dir(dir);
    return 0;
}
