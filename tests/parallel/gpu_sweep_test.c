/* Shapes, data and layouts that nobody tuned for, on simulated GPUs: tandem-rank as processes, the
 * host shut out of device memory, each rank's streams and threads in an order of their own. What
 * comes out has to be what the reference backend makes of it on one rank; passes launched piece by
 * piece or as captured work, at one go or stopped and taken up again, give the same bits.
 * TANDEM_SEED=N begins elsewhere (a failure prints its own), TANDEM_CASES=N takes so many;
 * TANDEM_FULL=1 hundreds, TANDEM_SAMPLE=1 (sanitizers) one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/fs.h"
#include "base/rng.h"
#include "process_gang.h"
#include "shapes.h"
#include "tests/effort.h"

#define NUM_STEPS 4
#define MAX_RANKS 4

/* ---- one case ---------------------------------------------------------------------------------
 */

struct drawn_case {
    uint64_t seed, next;
    struct shape shape;
    int64_t data, tensor, zero_stage, shard_size, micro, stop_step;
    bool sequence_parallel, shuffled, shared_token, packed, adam, bf16;
    const char *bucket_mb, *clip, *schedule, *schedule_again;
};

static int64_t pick(struct drawn_case *c, const int64_t *list, size_t num)
{
    return list[rng_u64(c->seed, rng_stream("gpu sweep"), c->next++) % num];
}
#define PICK(c, ...)                                                                               \
    pick((c), (const int64_t[]){__VA_ARGS__},                                                      \
         sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t))

static int64_t divisor_of(struct drawn_case *c, int64_t n)
{
    int64_t list[64];
    size_t num = 0;
    for (int64_t i = 1; i <= n; i++)
        if (n % i == 0 && num < 64)
            list[num++] = i;
    return pick(c, list, num);
}

/* Head widths and lengths on both sides of the kernels' tiles. */
static void draw_shape(struct drawn_case *c)
{
    static const char *const families[] = {"llama", "qwen2", "qwen3", "gpt2"};
    const int64_t groups[][2] = {{6, 3}, {5, 1}, {1, 1}, {4, 2}, {3, 3}, {6, 2}, {8, 1}};
    struct shape *s = &c->shape;
    size_t group = (size_t)PICK(c, 0, 1, 2, 3, 4, 5, 6);
    s->family = families[PICK(c, 0, 1, 2, 3)];
    bool gpt2 = strcmp(s->family, "gpt2") == 0;
    s->heads = groups[group][0];
    s->kv_heads = gpt2 ? s->heads : groups[group][1];
    s->head_dim = PICK(c, 8, 24, 40, 80, 128, 16, 64, 6, 20, 96);
    s->hidden = gpt2 ? s->heads * s->head_dim : PICK(c, 24, 33, 40, 56, 72, 7, 136);
    s->ffn = s->heads * PICK(c, 1, 3, 8, 13, 24);
    s->layers = PICK(c, 1, 2, 3);
    s->vocab = PICK(c, 331, 97, 257, 2, 1000, 2049);
    s->seq_len = s->vocab > 1000 ? PICK(c, 7, 1) : PICK(c, 33, 16, 7, 1, 65, 130);
    s->batch = PICK(c, 12, 6, 3, 9, 4);
    if (s->seq_len > 64 || s->head_dim > 64)
        s->batch = PICK(c, 3, 6, 2);
    s->tied = gpt2 || PICK(c, 0, 1) != 0;
    s->llama3 = !gpt2 && PICK(c, 0, 1) != 0;
}

static void draw_layout(struct drawn_case *c)
{
    const struct shape *s = &c->shape;
    do {
        c->data = PICK(c, 1, 2, 3, 4);
        c->tensor = divisor_of(c, s->heads);
    } while (s->batch % c->data != 0 || c->data * c->tensor > MAX_RANKS ||
             (s->kv_heads % c->tensor != 0 && c->tensor % s->kv_heads != 0));
    c->zero_stage = PICK(c, 0, 1, 2, 3);
    c->shard_size = c->zero_stage > 0 && PICK(c, 0, 1) != 0 ? divisor_of(c, c->data) : 0;
    c->sequence_parallel = PICK(c, 0, 1) != 0;
    c->micro = divisor_of(c, s->batch / c->data);
}

static void draw_case(uint64_t seed, struct drawn_case *c)
{
    static const char *const buckets[] = {"0.001", "0.05", "25"};
    static const char *const clips[] = {"0", "0.05", "1.0"};
    static const char *const schedules[] = {"random,random", "reverse,lazy", "forward,random",
                                            "forward,eager", "random,lazy",  "reverse,eager"};
    *c = (struct drawn_case){.seed = seed};
    draw_shape(c);
    draw_layout(c);
    c->shuffled = PICK(c, 0, 1) != 0;
    c->shared_token = PICK(c, 0, 1) != 0;
    c->packed = PICK(c, 0, 0, 1) != 0;
    c->adam = PICK(c, 0, 0, 1) != 0;
    c->bf16 = PICK(c, 0, 1) != 0;
    c->stop_step = PICK(c, 1, 2, 3);
    c->bucket_mb = buckets[PICK(c, 0, 1, 2)];
    c->clip = clips[PICK(c, 0, 1, 2)];
    c->schedule = schedules[PICK(c, 0, 1, 2, 3, 4, 5)];
    c->schedule_again = schedules[PICK(c, 0, 1, 2, 3, 4, 5)];
}

static const char *words_of(const struct drawn_case *c)
{
    static char words[600];
    const struct shape *s = &c->shape;
    snprintf(words, sizeof(words),
             "TANDEM_SEED=%llu: %s %s, heads %lld/%lld x %lld, hidden %lld, ffn %lld, layers %lld, "
             "vocab %lld%s%s, seq %lld, batch %lld, data %lld, tensor %lld%s, zero_stage %lld, "
             "shard_size %lld, micro %lld, %s%s, window %s, bucket_mb %s, clip %s, %s, %s; stop "
             "%lld, %s",
             (unsigned long long)c->seed, c->bf16 ? "bf16" : "fp32", s->family, (long long)s->heads,
             (long long)s->kv_heads, (long long)s->head_dim, (long long)s->hidden,
             (long long)s->ffn, (long long)s->layers, (long long)s->vocab, s->tied ? ", tied" : "",
             s->llama3 ? ", llama3 rope" : "", (long long)s->seq_len, (long long)s->batch,
             (long long)c->data, (long long)c->tensor, c->sequence_parallel ? " with sequence" : "",
             (long long)c->zero_stage, (long long)c->shard_size, (long long)c->micro,
             c->packed ? "packed " : "", c->shuffled ? "shuffled" : "sequential",
             c->shared_token ? "T" : "T+1", c->bucket_mb, c->clip, c->adam ? "adamw" : "sgd",
             c->schedule, (long long)c->stop_step, c->schedule_again);
    return words;
}

/* ---- its runs ---------------------------------------------------------------------------------
 */

static struct gang_spec spec_of(const struct drawn_case *c, const struct shape_files *files)
{
    return (struct gang_spec){
        .golden = &files->sizes,
        .model_path = files->dir,
        .data_path = c->packed ? files->packed : files->tokens,
        .format = c->packed ? "tokenized-jsonl" : "u16",
        .window = c->packed || c->shared_token ? "T" : "T+1",
        .order = c->shuffled ? "shuffled" : "sequential",
        .steps = NUM_STEPS,
        .micro = c->micro,
        .clip = c->clip,
        .optimizer = c->adam ? NULL : "name: sgd, lr: 0.05, weight_decay: 0.01",
    };
}

/* On one rank, by the host backend called so. */
static void run_reference(struct gang_spec spec, const char *backend, const char *precision,
                          struct gang *out)
{
    spec.backend = backend;
    spec.precision = precision;
    *out = (struct gang){.plan = gang_plan(&spec)};
    gang_run_well(out);
    plan__free_unpacked((Plan *)out->plan, NULL);
}

static const char *const direct[] = {"CUSIM_DEVICES=4", "CUSIM_PROTECT=1", "TANDEM_CUDA_GRAPHS=0",
                                     NULL};
static const char *const captured[] = {"CUSIM_DEVICES=4", "CUSIM_PROTECT=1", "TANDEM_CUDA_GRAPHS=1",
                                       NULL};

static Plan *gpu_plan(const struct drawn_case *c, struct gang_spec spec)
{
    spec.backend = "cuda";
    spec.precision = c->bf16 ? "bf16" : "fp32";
    spec.data = c->data;
    spec.tensor = c->tensor;
    spec.zero_stage = c->zero_stage;
    spec.shard_size = c->shard_size;
    spec.sequence_parallel = c->sequence_parallel;
    spec.bucket_mb = c->bucket_mb;
    return gang_plan(&spec);
}

static double apart(double x, double want)
{
    double d = fabs(x / want - 1.0);
    return isnan(d) && !(isnan(x) && isnan(want)) ? HUGE_VAL : d;
}

struct distance {
    double loss, norm;
};

static struct distance distance_of(const StepMetrics *a, const StepMetrics *want)
{
    struct distance d = {0};
    for (int i = 0; i < NUM_STEPS; i++) {
        d.loss = fmax(d.loss, apart(a[i].loss, want[i].loss));
        d.norm = fmax(d.norm, apart(a[i].grad_norm, want[i].grad_norm));
    }
    return d;
}

static void check_bits(const struct drawn_case *c, const StepMetrics *a, const StepMetrics *want)
{
    for (int i = 0; i < NUM_STEPS; i++)
        if (memcmp(&a[i].loss, &want[i].loss, sizeof(double)) != 0 ||
            memcmp(&a[i].grad_norm, &want[i].grad_norm, sizeof(double)) != 0)
            fail_msg("%s: taken up again: step %d: loss %.17g, not %.17g; norm %.17g, not %.17g",
                     words_of(c), i + 1, a[i].loss, want[i].loss, a[i].grad_norm,
                     want[i].grad_norm);
}

/* On one rank of a host, from what the GPUs saved: as near to them as a host's run is. */
static void end_on_host(const struct drawn_case *c, struct gang_spec spec, const char *resume,
                        const StepMetrics *want)
{
    struct gang *g = calloc(1, sizeof(*g));
    spec.backend = c->bf16 ? "ref" : "cpu";
    spec.precision = c->bf16 ? "bf16" : "fp32";
    g->plan = gang_plan(&spec);
    g->resume_dir = resume;
    gang_run_well(g);
    assert_int_equal(g->first_step, c->stop_step + 1);
    for (int i = 0; i < g->num_steps; i++) {
        double loss = apart(g->steps[i].loss, want[c->stop_step + i].loss);
        double norm = apart(g->steps[i].grad_norm, want[c->stop_step + i].grad_norm);
        if (!(loss <= (c->bf16 ? 4e-3 : 4e-6)) || !(norm <= (c->bf16 ? 4e-2 : 2e-5)))
            fail_msg("%s: taken up on a host: step %d off by loss %.2e, norm %.2e", words_of(c),
                     (int)c->stop_step + i + 1, loss, norm);
    }
    plan__free_unpacked((Plan *)g->plan, NULL);
    free(g);
}

static void run_gpus(const struct drawn_case *c, const struct gang_spec *spec, StepMetrics *out)
{
    Plan *plan = gpu_plan(c, *spec);
    char *dirs[] = {gang_make_dir(), gang_make_dir(), gang_make_dir()}, resume[512];
    struct process_gang *whole = calloc(3, sizeof(*whole)), *begun = whole + 1, *rest = whole + 2;
    *whole = (struct process_gang){.plan = plan,
                                   .job_dir = dirs[0],
                                   .env = direct,
                                   .schedule = c->schedule,
                                   .seed = (int64_t)c->seed};
    *begun = *rest = *whole;
    process_gang_run_well(whole, words_of(c));
    assert_int_equal(whole->num_steps, NUM_STEPS);
    memcpy(out, whole->steps, NUM_STEPS * sizeof(*out));

    begun->job_dir = dirs[1];
    begun->env = captured;
    begun->schedule = c->schedule_again;
    begun->stop_step = c->stop_step;
    process_gang_run_well(begun, words_of(c));
    assert_int_equal(begun->num_steps, c->stop_step);
    assert_int_equal(begun->num_checkpoints, 1);
    fs_join(resume, sizeof(resume), dirs[1], begun->checkpoints[0]);
    rest->job_dir = dirs[2];
    rest->env = captured;
    rest->resume_dir = resume;
    process_gang_run_well(rest, words_of(c));
    assert_int_equal(rest->first_step, c->stop_step + 1);
    assert_int_equal(rest->num_steps, NUM_STEPS - c->stop_step);
    memcpy(&begun->steps[c->stop_step], rest->steps,
           (size_t)rest->num_steps * sizeof(*rest->steps));
    check_bits(c, begun->steps, out);
    end_on_host(c, *spec, resume, out);
    for (int i = 0; i < 3; i++)
        gang_remove_dir(dirs[i]);
    free(whole);
    plan__free_unpacked(plan, NULL);
}

static void run_case(uint64_t seed)
{
    struct drawn_case c;
    struct shape_files files;
    StepMetrics got[NUM_STEPS];
    struct gang *truth = calloc(2, sizeof(*truth)), *host = truth + 1;
    draw_case(seed, &c);
    shape_write(&files, &c.shape, NULL, NULL);
    struct gang_spec spec = spec_of(&c, &files);
    run_reference(spec, "ref", "fp64", truth);
    run_reference(spec, c.bf16 ? "ref" : "cpu", c.bf16 ? "bf16" : "fp32", host);
    run_gpus(&c, &spec, got);
    struct distance d = distance_of(got, truth->steps), h = distance_of(host->steps, truth->steps);
    double loss_bar = c.bf16 ? fmax(4e-3, 3.0 * h.loss) : fmax(2e-6, 3.0 * h.loss);
    double norm_bar = c.bf16 ? fmax(3e-2, 3.0 * h.norm) : fmax(5e-6, 3.0 * h.norm);
    if (effort_is_set("TANDEM_VERBOSE"))
        print_message("loss %.1e (%.1e), norm %.1e (%.1e) %s\n", d.loss, h.loss, d.norm, h.norm,
                      words_of(&c));
    if (!(d.loss <= loss_bar) || !(d.norm <= norm_bar))
        fail_msg("%s: off by loss %.2e, norm %.2e (host backends %.2e, %.2e)", words_of(&c), d.loss,
                 d.norm, h.loss, h.norm);
    free(truth);
    shape_remove(&files);
}

/* ---- what isn't finite ------------------------------------------------------------------------
 */

/* A weight of an embedding's row that no input needs before a certain step, or of any tensor. */
struct planted {
    const char *name; /* of the tensor */
    int64_t idx;
    double value;
};

static double plant(void *arg, const char *name, int64_t idx, bool norm)
{
    const struct planted *p = arg;
    return idx == p->idx && strcmp(name, p->name) == 0 ? p->value
                                                       : shape_draw(NULL, name, idx, norm);
}

/* A token that is an input of that step and of none before; -1: there is none. */
static int64_t first_seen(const struct shape_files *f, const struct shape *s, int64_t step)
{
    char *text;
    size_t len;
    int64_t row = s->seq_len + 1, found = -1;
    assert_int_equal(fs_read_file(f->tokens, 1 << 20, &text, &len, NULL), 0);
    const uint16_t *tokens = (const uint16_t *)(const void *)text;
    int64_t num_rows = (int64_t)(len / sizeof(*tokens)) / row, begin = (step - 1) * s->batch;
    for (int64_t i = begin * row; i < (begin + s->batch) * row && found < 0; i++) {
        bool seen = i % row == row - 1 || i >= num_rows * row;
        for (int64_t j = 0; j < begin * row && !seen; j++)
            seen = tokens[j] == tokens[i] && j % row != row - 1;
        found = seen ? -1 : tokens[i];
    }
    free(text);
    return found;
}

/* The words of the first rank that leaves with some. */
static void check_same_fault(const struct drawn_case *c, struct gang_spec spec, int64_t step)
{
    char begin[32];
    Plan *plan = gpu_plan(c, spec);
    struct process_gang *g = calloc(1, sizeof(*g));
    *g = (struct process_gang){.plan = plan,
                               .job_dir = gang_make_dir(),
                               .env = c->seed % 2 ? direct : captured,
                               .schedule = c->schedule,
                               .seed = (int64_t)c->seed};
    process_gang_run(g);
    spec.backend = c->bf16 ? "ref" : "cpu";
    spec.precision = c->bf16 ? "bf16" : "fp32";
    spec.data = c->data;
    spec.tensor = c->tensor;
    spec.zero_stage = c->zero_stage;
    spec.shard_size = c->shard_size;
    spec.sequence_parallel = c->sequence_parallel;
    spec.bucket_mb = c->bucket_mb;
    struct gang *host = calloc(1, sizeof(*host));
    host->plan = gang_plan(&spec);
    gang_run(host);
    snprintf(begin, sizeof(begin), "step %lld: the ", (long long)step);
    for (int i = 0; i < g->num_ranks; i++) {
        const char *want = host->ranks[i].fault;
        if (effort_is_set("TANDEM_VERBOSE") && i == 0)
            print_message("%s\n    %s\n", want, words_of(c));
        if (host->ranks[i].rc == 0 || strcmp(g->ranks[i].fault, want) != 0 ||
            strncmp(want, begin, strlen(begin)) != 0 || g->num_steps != host->num_steps ||
            g->num_steps != step - 1)
            fail_msg("%s: rank %d: after %lld steps: %s\non the host: after %lld: %s", words_of(c),
                     i, (long long)g->num_steps, g->ranks[i].fault, (long long)host->num_steps,
                     want);
    }
    gang_remove_dir((char *)(uintptr_t)g->job_dir);
    plan__free_unpacked((Plan *)host->plan, NULL);
    plan__free_unpacked(plan, NULL);
    free(host);
    free(g);
}

static void run_bad_case(uint64_t seed)
{
    static const double values[] = {NAN, HUGE_VAL, -HUGE_VAL};
    struct drawn_case c;
    struct shape_files files;
    draw_case(seed, &c);
    c.shuffled = c.packed = c.shared_token = false;
    bool gpt2 = strcmp(c.shape.family, "gpt2") == 0;
    c.shape.tied = gpt2;
    int64_t step = gpt2 ? 1 : PICK(&c, 1, 2, 3, 4);
    /* So that there are tokens that come late. */
    c.shape.vocab = c.shape.vocab < 331 ? 1000 : c.shape.vocab;
    shape_write(&files, &c.shape, NULL, NULL);
    int64_t token = step <= 1 ? 0 : first_seen(&files, &c.shape, step);
    shape_remove(&files);
    if (token < 0)
        return;
    struct planted p = {.value = values[PICK(&c, 0, 1, 2)]};
    if (gpt2)
        p.name = PICK(&c, 0, 1) ? "transformer.h.0.mlp.c_fc.bias" : "transformer.ln_f.weight";
    else if (step > 1)
        p = (struct planted){"model.embed_tokens.weight", token * c.shape.hidden, p.value};
    else
        p.name = PICK(&c, 0, 1) ? "model.layers.0.mlp.up_proj.weight"
                                : "model.layers.0.input_layernorm.weight";
    shape_write(&files, &c.shape, plant, &p);
    struct gang_spec spec = spec_of(&c, &files);
    check_same_fault(&c, spec, step);
    shape_remove(&files);
}

static uint64_t number_from(const char *name, uint64_t fallback)
{
    const char *text = getenv(name);
    return text != NULL && text[0] != '\0' ? strtoull(text, NULL, 10) : fallback;
}

static void every_drawn_shape_and_layout_computes_what_the_reference_does(void **state)
{
    (void)state;
    uint64_t first = number_from("TANDEM_SEED", 1);
    uint64_t cases = number_from("TANDEM_CASES", (uint64_t)effort(300, 5, 1));
    for (uint64_t i = 0; i < cases; i++)
        run_case(first + i);
}

/* Read a step late, found from weights that stood still since: the step, the rank and the words are
 * those of a host's, which reads each step at its end. */
static void what_is_not_finite_is_blamed_as_on_the_host(void **state)
{
    (void)state;
    uint64_t first = number_from("TANDEM_SEED", 1);
    uint64_t cases = number_from("TANDEM_CASES", (uint64_t)effort(100, 3, 1));
    for (uint64_t i = 0; i < cases; i++)
        run_bad_case(first + i);
}

int main(int argc, char **argv)
{
    gang_quiet();
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_drawn_shape_and_layout_computes_what_the_reference_does),
        cmocka_unit_test(what_is_not_finite_is_blamed_as_on_the_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
