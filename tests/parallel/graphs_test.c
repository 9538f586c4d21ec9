/* Training on simulated GPUs with passes as captured work (runtime/rank/passes.h), the ranks as
 * processes: the same bits as without, in every layout, and most passes are launched as one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/fs.h"
#include "process_gang.h"
#include "tests/effort.h"

#define STEPS 5

struct run {
    StepMetrics steps[GANG_MAX_STEPS];
    int captured; /* as rank 0 says; -1: nothing */
    long long launched, direct;
};

static void read_counts(const char *job_dir, struct run *out)
{
    char path[512], *text;
    size_t len;
    struct error err = {0};
    assert_true(fs_join(path, sizeof(path), job_dir, "rank-0.log"));
    if (fs_read_file(path, 1 << 20, &text, &len, &err) != 0)
        fail_msg("%s", err.text);
    const char *line = strstr(text, "passes: ");
    out->captured = -1;
    if (line != NULL)
        assert_int_equal(sscanf(line,
                                "passes: %d captured, launched %lld times; %lld launched piece",
                                &out->captured, &out->launched, &out->direct),
                         3);
    free(text);
}

static struct run run(const Plan *plan, const char *schedule, const char *graphs)
{
    char in_order[64], with_graphs[64];
    struct run out = {0};
    snprintf(in_order, sizeof(in_order), "CUSIM_SCHEDULE=%s", schedule);
    snprintf(with_graphs, sizeof(with_graphs), "TANDEM_CUDA_GRAPHS=%s", graphs);
    const char *const env[] = {in_order, with_graphs, "TANDEM_LOG=info", NULL};
    struct process_gang *g = calloc(1, sizeof(*g));
    g->plan = plan;
    g->job_dir = gang_make_dir();
    g->env = env;
    process_gang_run_well(g, with_graphs);
    assert_int_equal(g->num_steps, STEPS);
    memcpy(out.steps, g->steps, sizeof(out.steps));
    read_counts(g->job_dir, &out);
    gang_remove_dir((char *)(uintptr_t)g->job_dir);
    free(g);
    return out;
}

static void check_same_curve(const struct run *a, const struct run *b)
{
    for (int i = 0; i < STEPS; i++) {
        const StepMetrics *x = &a->steps[i], *y = &b->steps[i];
        assert_int_equal(x->step, y->step);
        assert_memory_equal(&x->loss, &y->loss, sizeof(double));
        assert_memory_equal(&x->grad_norm, &y->grad_norm, sizeof(double));
    }
}

static void check_both_ways(struct gang_spec spec, const char *schedule)
{
    spec.backend = "cuda";
    spec.steps = STEPS;
    Plan *plan = gang_plan(&spec);
    struct run direct = run(plan, schedule, "0"), captured = run(plan, schedule, "1");
    check_same_curve(&direct, &captured);
    assert_int_equal(direct.captured, -1);
    if (spec.tensor > 1) {
        assert_int_equal(captured.captured, -1);
    } else {
        /* Of five steps: each pass once piece by piece, then as one. */
        assert_true(captured.captured > 0);
        assert_int_equal(captured.captured, captured.direct);
        assert_true(captured.launched >= 4 * captured.direct);
    }
    plan__free_unpacked(plan, NULL);
}

static void one_rank_trains_to_the_same_bits(void **state)
{
    (void)state;
    struct gang_spec spec = {.golden = &golden_tiny, .precision = "bf16"};
    check_both_ways(spec, "random,random,3");
    spec.precision = "fp32";
    spec.micro = 2;
    if (effort(1, 1, 0))
        check_both_ways(spec, "reverse,lazy,1");
}

/* Gathers, slots and sums stand between the passes. */
static void ranks_that_share_their_state_do_too(void **state)
{
    (void)state;
    struct gang_spec spec = {.golden = &golden_tiny, .precision = "bf16", .data = 2};
    spec.zero_stage = 3;
    check_both_ways(spec, "random,random,5");
    for (int stage = 0; stage < 3 && effort(1, 0, 0); stage++) {
        spec.zero_stage = stage;
        check_both_ways(spec, "forward,lazy,1");
    }
}

/* Its ranks talk within a pass. */
static void tensor_ranks_capture_nothing(void **state)
{
    (void)state;
    struct gang_spec spec = {.golden = &golden_tiny, .precision = "fp32", .tensor = 2};
    check_both_ways(spec, "forward,eager,1");
}

/* Whoever wants it off must not get it in silence. */
static void a_switch_that_is_neither_is_refused(void **state)
{
    (void)state;
    struct gang_spec spec = {
        .golden = &golden_tiny, .precision = "fp32", .backend = "cuda", .steps = 1};
    const char *const env[] = {"TANDEM_CUDA_GRAPHS=off", NULL};
    struct process_gang *g = calloc(1, sizeof(*g));
    Plan *plan = gang_plan(&spec);
    g->plan = plan;
    g->job_dir = gang_make_dir();
    g->env = env;
    process_gang_run(g);
    assert_int_not_equal(g->ranks[0].status, 0);
    assert_non_null(
        strstr(g->ranks[0].fault, "TANDEM_CUDA_GRAPHS: \"off\": set it to 0 (off) or 1"));
    gang_remove_dir((char *)(uintptr_t)g->job_dir);
    free(g);
    plan__free_unpacked(plan, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_switch_that_is_neither_is_refused),
        cmocka_unit_test(one_rank_trains_to_the_same_bits),
        cmocka_unit_test(ranks_that_share_their_state_do_too),
        cmocka_unit_test(tensor_ranks_capture_nothing),
    };
    gang_quiet();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
