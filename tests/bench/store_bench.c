/* What sharing a rank's state out costs: the steps of a GPT-2 (92 M parameters; 7 M a layer) on two
 * ranks as threads, at each ZeRO stage, and with all sums behind the backward pass in place of
 * beside it. All of it in one run, in turns, as ratios to plain data parallel: milliseconds are
 * this machine's. store_bench [ROUNDS [MICRO [MICRO_BATCHES [LAYERS]]]] */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "../parallel/gang.h"
#include "base/fs.h"
#include "base/rng.h"

#define SEQ_LEN 128
#define VOCAB 8192
#define STEPS 5
#define MAX_ROUNDS 16

struct way {
    const char *name;
    int64_t zero_stage;
    bool sums_last; /* no sum before the backward pass is over */
    double ms[MAX_ROUNDS * STEPS], cpu_ms[MAX_ROUNDS * STEPS];
    int num;
};

static const char config_format[] =
    "{\"model_type\": \"gpt2\", \"n_embd\": 768, \"n_layer\": %d, \"n_head\": 12, "
    "\"n_positions\": 1024, \"vocab_size\": 8192, \"layer_norm_epsilon\": 1e-5, "
    "\"activation_function\": \"gelu_new\", \"tie_word_embeddings\": true, "
    "\"attn_pdrop\": 0.0, \"embd_pdrop\": 0.0, \"resid_pdrop\": 0.0, "
    "\"initializer_range\": 0.02}\n";

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The reduces of the list to right before the wait for them, in their order. */
static void put_sums_last(Stage *stage)
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
static double cpu_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static double step_cpu_ms[STEPS + 1];

static void note_step(struct gang *g, const StepMetrics *m)
{
    (void)g;
    if (m->step <= STEPS)
        step_cpu_ms[m->step] = cpu_ms();
}

static void run_way(struct way *way, struct gang_spec spec)
{
    spec.zero_stage = way->zero_stage;
    Plan *plan = gang_plan(&spec);
    if (way->sums_last)
        put_sums_last(plan->stages[0]);
    struct gang g = {.plan = plan, .on_step = note_step};
    gang_run_well(&g);
    for (int64_t i = 1; i < g.num_steps; i++) { /* the first one touches memory */
        way->ms[way->num] = g.steps[i].step_ms;
        way->cpu_ms[way->num++] = step_cpu_ms[i + 1] - step_cpu_ms[i];
    }
    plan__free_unpacked(plan, NULL);
    printf("  %-20s last step %.1f ms, CPU %.1f ms\n", way->name, way->ms[way->num - 1],
           way->cpu_ms[way->num - 1]);
    fflush(stdout);
}

static void print_way(struct way *w, const struct way *first)
{
    qsort(w->ms, (size_t)w->num, sizeof(*w->ms), by_value);
    qsort(w->cpu_ms, (size_t)w->num, sizeof(*w->cpu_ms), by_value);
    int mid = w->num / 2;
    printf("  %-20s %8.1f ms %.3f %8.1f ms %.3f %8.1f ms %.3f\n", w->name, w->ms[mid],
           w->ms[mid] / first->ms[mid], w->ms[0], w->ms[0] / first->ms[0], w->cpu_ms[0],
           w->cpu_ms[0] / first->cpu_ms[0]);
}

static void write_data(const char *path)
{
    size_t num = (SEQ_LEN + 1) * 1024;
    uint16_t *tokens = malloc(num * sizeof(*tokens));
    for (size_t i = 0; i < num; i++)
        tokens[i] = (uint16_t)(rng_u64(3, 4, i) % VOCAB);
    struct error err = {0};
    ASSERT(fs_write_atomic(path, tokens, num * sizeof(*tokens), 0600, &err) == 0);
    free(tokens);
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 3;
    int64_t micro = argc > 2 ? atoll(argv[2]) : 2, num_micro = argc > 3 ? atoll(argv[3]) : 1;
    int layers = argc > 4 ? atoi(argv[4]) : 12;
    if (layers < 1 || layers > 48 || rounds < 1 || rounds > MAX_ROUNDS || micro < 1 || micro > 64 ||
        num_micro < 1 || num_micro > 16)
        return 2;
    gang_quiet();
    char *dir = gang_make_dir(), data_path[512], config_path[512];
    fs_join(data_path, sizeof(data_path), dir, "data.bin");
    fs_join(config_path, sizeof(config_path), dir, "config.json");
    write_data(data_path);
    struct error err = {0};
    char config[1024];
    int len = snprintf(config, sizeof(config), config_format, layers);
    ASSERT(fs_write_atomic(config_path, config, (size_t)len, 0600, &err) == 0);
    const struct golden sizes = {.name = "bench", .seq_len = SEQ_LEN};
    struct gang_spec spec = {
        .golden = &sizes,
        .data = 2,
        .micro = micro,
        .batch = 2 * micro * num_micro,
        .steps = STEPS,
        .backend = "cpu",
        .precision = "fp32",
        .data_path = data_path,
        .config = config_path,
        .bucket_mb = "25",
    };
    static struct way ways[] = {
        {.name = "stage 0"},
        {.name = "stage 0, sums last", .sums_last = true},
        {.name = "stage 1", .zero_stage = 1},
        {.name = "stage 1, sums last", .zero_stage = 1, .sums_last = true},
        {.name = "stage 2", .zero_stage = 2},
        {.name = "stage 3", .zero_stage = 3},
    };
    size_t num_ways = sizeof(ways) / sizeof(ways[0]);
    for (int round = 0; round < rounds; round++)
        for (size_t i = 0; i < num_ways; i++)
            run_way(&ways[i], spec);
    printf("micro-batch %lld x %d, %lld of them; a step against stage 0's: median, fastest, least "
           "CPU time of all ranks\n",
           (long long)micro, SEQ_LEN, (long long)num_micro);
    for (size_t i = 0; i < num_ways; i++)
        print_way(&ways[i], &ways[0]);
    gang_remove_dir(dir);
    return 0;
}
