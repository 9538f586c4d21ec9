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
#include "drawn.h"
#include "process_gang.h"
#include "tests/effort.h"

#define NUM_STEPS 4
#define MAX_RANKS 4

/* ---- one case ---------------------------------------------------------------------------------
 */

struct drawn_case {
    struct drawn d;
    int64_t stop_step;
    bool bf16;
    const char *schedule, *schedule_again;
};

/* Head widths and lengths on both sides of the kernels' tiles. */
static void draw_case(uint64_t seed, struct drawn_case *c)
{
    static const char *const schedules[] = {"random,random", "reverse,lazy", "forward,random",
                                            "forward,eager", "random,lazy",  "reverse,eager"};
    const struct drawn_choice choice = {
        .heads = DRAWN_LIST(6, 5, 1, 4, 3, 6, 8),
        .kv_heads = DRAWN_LIST(3, 1, 1, 2, 3, 2, 1),
        .head_dim = DRAWN_LIST(8, 24, 40, 80, 128, 16, 64, 6, 20, 96),
        .hidden = DRAWN_LIST(24, 33, 40, 56, 72, 7, 136),
        .heads_to_ffn = DRAWN_LIST(1, 3, 8, 13, 24),
        .vocab = DRAWN_LIST(331, 97, 257, 2, 1000, 2049),
        .seq_len = DRAWN_LIST(33, 16, 7, 1, 65, 130),
        .large_vocab_seq_len = DRAWN_LIST(7, 1),
        .batch = DRAWN_LIST(12, 6, 3, 9, 4),
        .long_batch = DRAWN_LIST(3, 6, 2),
    };
    *c = (struct drawn_case){.d = {.stream = "gpu sweep", .seed = seed}};
    struct drawn *d = &c->d;
    drawn_shape(d, &choice);
    drawn_layout(d, DRAWN_LIST(1, 2, 3, 4), MAX_RANKS);
    d->shuffled = PICK(d, 0, 1) != 0;
    d->shared_token = PICK(d, 0, 1) != 0;
    d->packed = PICK(d, 0, 0, 1) != 0;
    d->adam = PICK(d, 0, 0, 1) != 0;
    c->bf16 = PICK(d, 0, 1) != 0;
    c->stop_step = PICK(d, 1, 2, 3);
    drawn_bucket_and_clip(d);
    c->schedule = schedules[PICK(d, 0, 1, 2, 3, 4, 5)];
    c->schedule_again = schedules[PICK(d, 0, 1, 2, 3, 4, 5)];
}

static const char *words_of(const struct drawn_case *c)
{
    static char words[600];
    char common[512];
    drawn_words(&c->d, common, sizeof(common));
    snprintf(words, sizeof(words), "TANDEM_SEED=%llu: %s %s; %s, stop %lld, %s",
             (unsigned long long)c->d.seed, c->bf16 ? "bf16" : "fp32", common, c->schedule,
             (long long)c->stop_step, c->schedule_again);
    return words;
}

/* ---- its runs ---------------------------------------------------------------------------------
 */

static struct gang_spec spec_of(const struct drawn_case *c, const struct shape_files *files)
{
    struct gang_spec spec = drawn_spec(&c->d, files, NUM_STEPS);
    spec.micro = c->d.micro;
    return spec;
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
    drawn_lay_out(&c->d, &spec);
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
                                   .seed = (int64_t)c->d.seed};
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
    shape_write(&files, &c.d.shape, NULL, NULL);
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
                               .env = c->d.seed % 2 ? direct : captured,
                               .schedule = c->schedule,
                               .seed = (int64_t)c->d.seed};
    process_gang_run(g);
    spec.backend = c->bf16 ? "ref" : "cpu";
    spec.precision = c->bf16 ? "bf16" : "fp32";
    drawn_lay_out(&c->d, &spec);
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
    c.d.shuffled = c.d.packed = c.d.shared_token = false;
    bool gpt2 = strcmp(c.d.shape.family, "gpt2") == 0;
    c.d.shape.tied = gpt2;
    int64_t step = gpt2 ? 1 : PICK(&c.d, 1, 2, 3, 4);
    /* So that there are tokens that come late. */
    c.d.shape.vocab = c.d.shape.vocab < 331 ? 1000 : c.d.shape.vocab;
    shape_write(&files, &c.d.shape, NULL, NULL);
    int64_t token = step <= 1 ? 0 : first_seen(&files, &c.d.shape, step);
    shape_remove(&files);
    if (token < 0)
        return;
    struct planted p = {.value = values[PICK(&c.d, 0, 1, 2)]};
    if (gpt2)
        p.name = PICK(&c.d, 0, 1) ? "transformer.h.0.mlp.c_fc.bias" : "transformer.ln_f.weight";
    else if (step > 1)
        p = (struct planted){"model.embed_tokens.weight", token * c.d.shape.hidden, p.value};
    else
        p.name = PICK(&c.d, 0, 1) ? "model.layers.0.mlp.up_proj.weight"
                                  : "model.layers.0.input_layernorm.weight";
    shape_write(&files, &c.d.shape, plant, &p);
    struct gang_spec spec = spec_of(&c, &files);
    check_same_fault(&c, spec, step);
    shape_remove(&files);
}

static void every_drawn_shape_and_layout_computes_what_the_reference_does(void **state)
{
    (void)state;
    uint64_t first = (uint64_t)effort_number("TANDEM_SEED", 1);
    uint64_t cases = (uint64_t)effort_number("TANDEM_CASES", effort(300, 5, 1));
    for (uint64_t i = 0; i < cases; i++)
        run_case(first + i);
}

/* Read a step late, found from weights that stood still since: the step, the rank and the words are
 * those of a host's, which reads each step at its end. */
static void what_is_not_finite_is_blamed_as_on_the_host(void **state)
{
    (void)state;
    uint64_t first = (uint64_t)effort_number("TANDEM_SEED", 1);
    uint64_t cases = (uint64_t)effort_number("TANDEM_CASES", effort(100, 3, 1));
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
