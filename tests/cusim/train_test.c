/* The whole trainer on simulated GPUs: tandem-rank as processes, with the CUDA plug-in's twin,
 * NCCL's fake and the saver's copies. The host can't reach into device memory (CUSIM_PROTECT), and
 * streams run behind their callers in several orders, each rank's in another one. What comes out
 * has to be the reference's curve: fp32 within fp32's own rounding, bf16 within bf16's, and near
 * what the reference backend makes of bf16.
 *
 * By default each layout runs once for eight steps, models, types and orders by turns; with
 * TANDEM_FULL=1 each for 20, with both models and types in all orders; under sanitizers
 * (TANDEM_SAMPLE=1) two runs of three steps.
 * TANDEM_SEED=N draws other orders; TANDEM_VERBOSE=1 prints distances. cusim_train_test FROM [TO]:
 * only those runs of the list; cusim_train_test PATTERN: the tests whose names fit it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "base/fs.h"
#include "tests/effort.h"
#include "tests/parallel/bad_model.h"
#include "tests/parallel/process_gang.h"

/* ---- what runs --------------------------------------------------------------------------------
 */

struct layout {
    int64_t data, tensor, micro, zero_stage, shard_size;
    bool sequence_parallel;
};

/* Of four samples, eight heads and four KV heads. */
static const struct layout layouts[] = {
    {.data = 1, .tensor = 1, .micro = 2},
    {.data = 2, .tensor = 1, .micro = 1},
    {.data = 4, .tensor = 1, .micro = 1, .zero_stage = 1},
    {.data = 1, .tensor = 2, .micro = 4},
    {.data = 1, .tensor = 4, .micro = 2, .sequence_parallel = true},
    {.data = 2, .tensor = 1, .micro = 2, .zero_stage = 2},
    {.data = 4, .tensor = 1, .micro = 1, .zero_stage = 3},
    {.data = 4, .tensor = 1, .micro = 1, .zero_stage = 3, .shard_size = 2},
    {.data = 2, .tensor = 2, .micro = 1, .zero_stage = 3, .sequence_parallel = true},
};
#define NUM_LAYOUTS ((int)(sizeof(layouts) / sizeof(*layouts)))

static const char *const schedules[] = {"random,random", "reverse,lazy", "forward,random",
                                        "forward,eager", "random,lazy"};
#define NUM_SCHEDULES ((int)(sizeof(schedules) / sizeof(*schedules)))

static const struct golden *const models[] = {&golden_tiny, &golden_gpt2};

struct run {
    int layout, model, schedule;
    bool bf16;
};

/* The runs of this effort, in order; false: there are no more. */
static bool take_run(int i, struct run *out)
{
    if (effort_is_set("TANDEM_FULL")) {
        *out = (struct run){i % NUM_LAYOUTS, i / NUM_LAYOUTS % 2, i / NUM_LAYOUTS / 4,
                            i / NUM_LAYOUTS / 2 % 2 == 1};
        return out->schedule < NUM_SCHEDULES;
    }
    if (effort_is_set("TANDEM_SAMPLE")) {
        *out = (struct run){i == 0 ? NUM_LAYOUTS - 1 : 1, i, i, i == 0};
        return i < 2;
    }
    /* Models and types by turns. */
    *out = (struct run){i, i % 2, i % NUM_SCHEDULES, (i + 1) / 2 % 2 == 1};
    return i < NUM_LAYOUTS;
}

static int64_t num_steps(void)
{
    return effort(GOLDEN_STEPS, 8, 3);
}

/* ---- what it has to be ------------------------------------------------------------------------
 */

struct curve {
    double loss[GOLDEN_STEPS], norm[GOLDEN_STEPS];
};

/* What the reference backend makes of bf16, on one rank. */
static const struct curve *bf16_of_ref(int model)
{
    static struct curve curves[2];
    static bool made[2];
    struct curve *c = &curves[model];
    if (made[model])
        return c;
    struct gang_spec spec = {
        .golden = models[model], .precision = "bf16", .steps = num_steps(), .micro = 2};
    struct gang g = {.plan = gang_plan(&spec)};
    gang_run_well(&g);
    for (int64_t i = 0; i < g.num_steps; i++) {
        c->loss[i] = g.steps[i].loss;
        c->norm[i] = g.steps[i].grad_norm;
    }
    plan__free_unpacked((Plan *)g.plan, NULL);
    made[model] = true;
    return c;
}

static void check_near(const char *what, const struct process_gang *g, const struct curve *want,
                       double loss_bar, double norm_bar)
{
    double loss = 0.0, norm = 0.0;
    for (int64_t i = 0; i < g->num_steps; i++) {
        const StepMetrics *m = &g->steps[i];
        loss = fmax(loss, fabs(m->loss / want->loss[i] - 1.0));
        norm = fmax(norm, fabs(m->grad_norm / want->norm[i] - 1.0));
        if (!(fabs(m->loss / want->loss[i] - 1.0) <= loss_bar) ||
            !(fabs(m->grad_norm / want->norm[i] - 1.0) <= norm_bar))
            fail_msg("%s: step %lld: loss %.9g, not %.9g; norm %.9g, not %.9g", what,
                     (long long)m->step, m->loss, want->loss[i], m->grad_norm, want->norm[i]);
    }
    if (effort_is_set("TANDEM_VERBOSE"))
        print_message("%s: loss %.1e, norm %.1e\n", what, loss, norm);
}

static void check_curve(const char *what, const struct process_gang *g, const struct run *run)
{
    struct curve want;
    golden_curve(models[run->model], "loss_f64", want.loss);
    golden_curve(models[run->model], "grad_norm_f64", want.norm);
    if (!run->bf16) {
        check_near(what, g, &want, 2e-6, 5e-6);
        return;
    }
    check_near(what, g, &want, 2e-3, 1.5e-2);
    check_near(what, g, bf16_of_ref(run->model), 2e-3, 1.5e-2);
}

/* ---- a run ------------------------------------------------------------------------------------
 */

static const char *const gpus[] = {"CUSIM_DEVICES=4", "CUSIM_PROTECT=1", "TANDEM_LOG=debug", NULL};

static int64_t seed(void)
{
    const char *text = getenv("TANDEM_SEED");
    return text != NULL && *text != 0 ? atoll(text) : 1;
}

/* "memory: 11162 of 11162 bytes for weights": each piece is as large as the plan has it, but for
 * scratch of the norm, of which the plan has a bound. */
static void check_memory(const char *what, const struct process_gang *g)
{
    char path[600], *text, *at, kind[64];
    size_t len;
    long long used, planned;
    int num = 0;
    snprintf(path, sizeof(path), "%s/rank-0.log", g->job_dir);
    assert_int_equal(fs_read_file(path, 4 << 20, &text, &len, NULL), 0);
    for (at = strstr(text, "memory: "); at != NULL; at = strstr(at + 1, "memory: ")) {
        if (sscanf(at, "memory: %lld of %lld bytes for %63[^\n]", &used, &planned, kind) != 3)
            continue;
        bool bound = strcmp(kind, "batch and tables") == 0;
        if (used > planned || used < planned - (bound ? planned / 2 + 4096 : 0))
            fail_msg("%s: %lld of %lld bytes for %s", what, used, planned, kind);
        num++;
    }
    assert_true(num >= 10);
    free(text);
}

static void check_run(int number, const struct run *run)
{
    const struct layout *l = &layouts[run->layout];
    struct gang_spec spec = {
        .golden = models[run->model],
        .backend = "cuda",
        .precision = run->bf16 ? "bf16" : "fp32",
        .steps = num_steps(),
        .data = l->data,
        .tensor = l->tensor,
        .micro = l->micro,
        .zero_stage = l->zero_stage,
        .shard_size = l->shard_size,
        .sequence_parallel = l->sequence_parallel,
        .checkpoint = "interval: 9, async: true, export_at_end: false",
    };
    char what[240];
    snprintf(what, sizeof(what),
             "run %d: %s %s data %lld tensor %lld%s zero_stage %lld/%lld %s,%lld", number,
             spec.golden->name, spec.precision, (long long)l->data, (long long)l->tensor,
             l->sequence_parallel ? " (sequence)" : "", (long long)l->zero_stage,
             (long long)l->shard_size, schedules[run->schedule], (long long)seed());
    char *dir = gang_make_dir();
    struct process_gang g = {
        .plan = gang_plan(&spec),
        .job_dir = dir,
        .env = gpus,
        .schedule = schedules[run->schedule],
        .seed = seed(),
    };
    process_gang_run_well(&g, what);
    if (g.num_steps != num_steps())
        fail_msg("%s: %lld steps", what, (long long)g.num_steps);
    check_curve(what, &g, run);
    check_memory(what, &g);
    assert_true(g.num_checkpoints > 0);
    plan__free_unpacked((Plan *)g.plan, NULL);
    gang_remove_dir(dir);
}

/* ---- commands and faults ----------------------------------------------------------------------
 */

static struct gang_spec small_spec(int64_t data, int64_t tensor, int64_t zero_stage)
{
    return (struct gang_spec){
        .golden = &golden_tiny,
        .backend = "cuda",
        .precision = "fp32",
        .steps = 4,
        .batch = effort(0, 0, 2),
        .data = data,
        .tensor = tensor,
        .zero_stage = zero_stage,
    };
}

/* A run that stops and is taken up again gives the bits of one that never did: what is saved is the
 * state of that step, and all of it. */
static void a_run_is_taken_up_where_it_stopped(void **state)
{
    (void)state;
    for (int bf16 = 0; bf16 < effort(2, 2, 1); bf16++) {
        struct gang_spec spec = small_spec(2, 1, bf16 ? 3 : 1);
        spec.precision = bf16 ? "bf16" : "fp32";
        const Plan *plan = gang_plan(&spec);
        char *dirs[] = {gang_make_dir(), gang_make_dir(), gang_make_dir()}, resume[512];
        struct process_gang whole = {.plan = plan,
                                     .job_dir = dirs[0],
                                     .env = gpus,
                                     .schedule = "random,random",
                                     .seed = seed()};
        struct process_gang begun = whole, rest = whole;
        process_gang_run_well(&whole, "whole run");
        begun.job_dir = dirs[1];
        begun.stop_step = 2;
        begun.schedule = "reverse,lazy";
        process_gang_run_well(&begun, "run that stops");
        assert_int_equal(begun.num_steps, 2);
        assert_true(begun.ranks[0].paused && begun.ranks[1].paused);
        assert_int_equal(begun.num_checkpoints, 1);
        assert_int_equal(begun.checkpoint_steps[0], 2);
        fs_join(resume, sizeof(resume), dirs[1], begun.checkpoints[0]);
        rest.job_dir = dirs[2];
        rest.resume_dir = resume;
        process_gang_run_well(&rest, "rest");
        assert_int_equal(rest.first_step, 3);
        assert_int_equal(rest.num_steps, 2);
        for (int i = 0; i < 4; i++) {
            const StepMetrics *m = i < 2 ? &begun.steps[i] : &rest.steps[i - 2];
            assert_memory_equal(&m->loss, &whole.steps[i].loss, sizeof(double));
            assert_memory_equal(&m->grad_norm, &whole.steps[i].grad_norm, sizeof(double));
        }
        plan__free_unpacked((Plan *)plan, NULL);
        for (int i = 0; i < 3; i++)
            gang_remove_dir(dirs[i]);
    }
}

/* Read a step late, and found from the weights before it: the words are those of a host's. */
static void a_step_that_is_not_finite_names_step_and_rank(void **state)
{
    (void)state;
    char *dir = gang_make_dir(), model_path[512];
    fs_join(model_path, sizeof(model_path), dir, "model");
    bad_model_write(model_path, 2);
    for (int tensor = 1; tensor <= effort(2, 2, 1); tensor++) {
        struct gang_spec spec = small_spec(2, tensor, tensor == 1 ? 2 : 0);
        spec.model_path = model_path;
        spec.batch = 0; /* whole batches, as bad_model_write counts */
        struct process_gang g = {.plan = gang_plan(&spec), .job_dir = dir, .env = gpus};
        char words[80];
        snprintf(words, sizeof(words), "step 2: the loss is not finite on rank %d (loss nan",
                 tensor);
        process_gang_run(&g);
        assert_int_equal(g.num_steps, 1);
        for (int i = 0; i < g.num_ranks; i++)
            if (g.ranks[i].status == 0 || strstr(g.ranks[i].fault, words) == NULL)
                fail_msg("rank %d left with %#x: %s", i, (unsigned)g.ranks[i].status,
                         g.ranks[i].fault);
        plan__free_unpacked((Plan *)g.plan, NULL);
    }
    gang_remove_dir(dir);
}

static void kill_rank_one(struct process_gang *g, const StepMetrics *m)
{
    if (m->step == 2)
        kill(g->ranks[1].pid, SIGKILL);
}

/* Whoever waits for it in a sum on the device leaves, and says whose end it was. */
static void a_killed_rank_takes_the_others_with_it(void **state)
{
    (void)state;
    struct gang_spec spec = small_spec(2, effort(2, 2, 1), 2);
    spec.steps = 1000000;
    char *dir = gang_make_dir();
    struct process_gang g = {
        .plan = gang_plan(&spec), .job_dir = dir, .env = gpus, .on_step = kill_rank_one};
    process_gang_run(&g);
    assert_true(WIFSIGNALED(g.ranks[1].status));
    for (int i = 0; i < g.num_ranks; i++)
        if (i != 1 && (!WIFEXITED(g.ranks[i].status) || WEXITSTATUS(g.ranks[i].status) != 1 ||
                       strstr(g.ranks[i].fault, "rank 1 ") == NULL))
            fail_msg("rank %d left with %#x: %s", i, (unsigned)g.ranks[i].status, g.ranks[i].fault);
    plan__free_unpacked((Plan *)g.plan, NULL);
    gang_remove_dir(dir);
}

/* Without a driver there are words for it, and no harm. */
static void a_host_without_a_driver_says_so(void **state)
{
    (void)state;
    static const char *const env[] = {"TANDEM_CUDA_DRIVER=/nowhere/libcuda.so.1", NULL};
    struct gang_spec spec = small_spec(1, 1, 0);
    char *dir = gang_make_dir();
    struct process_gang g = {.plan = gang_plan(&spec), .job_dir = dir, .env = env};
    process_gang_run(&g);
    assert_true(WIFEXITED(g.ranks[0].status) && WEXITSTATUS(g.ranks[0].status) == 1);
    if (strstr(g.ranks[0].fault, "no NVIDIA driver") == NULL)
        fail_msg("%s", g.ranks[0].fault);
    plan__free_unpacked((Plan *)g.plan, NULL);
    gang_remove_dir(dir);
}

/* ---- all of it --------------------------------------------------------------------------------
 */

static int first, last = 1 << 30;

static void simulated_gpus_follow_the_reference(void **state)
{
    struct run run;
    (void)state;
    for (int i = 0; take_run(i, &run); i++)
        if (i >= first && i <= last)
            check_run(i, &run);
}

int main(int argc, char **argv)
{
    gang_quiet();
    bool numbers = argc > 1 && argv[1][0] >= '0' && argv[1][0] <= '9';
    if (argc > 1)
        cmocka_set_test_filter(numbers ? "simulated*" : argv[1]);
    first = numbers ? atoi(argv[1]) : 0;
    last = numbers ? atoi(argv[argc > 2 ? 2 : 1]) : last;
    print_message("TANDEM_SEED=%lld\n", (long long)seed());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(simulated_gpus_follow_the_reference),
        cmocka_unit_test(a_run_is_taken_up_where_it_stopped),
        cmocka_unit_test(a_step_that_is_not_finite_names_step_and_rank),
        cmocka_unit_test(a_killed_rank_takes_the_others_with_it),
        cmocka_unit_test(a_host_without_a_driver_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
