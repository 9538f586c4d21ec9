/* The whole trainer on simulated GPUs: tandem-rank as processes, with the CUDA plug-in's twin,
 * NCCL's fake and the saver's copies. The host can't reach into device memory (CUSIM_PROTECT), and
 * streams run behind their callers in several orders, each rank's in another one. What comes out
 * has to be the reference's curve: fp32 within fp32's own rounding, bf16 within bf16's, and near
 * what the reference backend makes of bf16.
 *
 * By default each layout runs with both types, once with each model, in one order each; with
 * TANDEM_FULL=1 all of them in all orders, under sanitizers (TANDEM_SAMPLE=1) two runs of six
 * steps. TANDEM_SEED=N draws other orders; TANDEM_VERBOSE=1 prints distances. cusim_train_test
 * [FROM [TO]]: only those runs of the list. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/effort.h"
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
    return effort(GOLDEN_STEPS, GOLDEN_STEPS, 6);
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

static int64_t seed(void)
{
    const char *text = getenv("TANDEM_SEED");
    return text != NULL && *text != 0 ? atoll(text) : 1;
}

static void check_run(int number, const struct run *run)
{
    static const char *const env[] = {"CUSIM_DEVICES=4", "CUSIM_PROTECT=1", NULL};
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
        .env = env,
        .schedule = schedules[run->schedule],
        .seed = seed(),
    };
    process_gang_run_well(&g, what);
    if (g.num_steps != num_steps())
        fail_msg("%s: %lld steps", what, (long long)g.num_steps);
    check_curve(what, &g, run);
    assert_true(g.num_checkpoints > 0);
    plan__free_unpacked((Plan *)g.plan, NULL);
    gang_remove_dir(dir);
}

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
    first = argc > 1 ? atoi(argv[1]) : 0;
    last = argc > 2 ? atoi(argv[2]) : argc > 1 ? first : last;
    print_message("TANDEM_SEED=%lld\n", (long long)seed());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(simulated_gpus_follow_the_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
