/* As old_gradients_test, on simulated GPUs whose memory is out of the host's reach, with passes as
 * captured work: what a first micro-batch writes and the others add are different graphs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "old_gradients.h"
#include "process_gang.h"
#include "tests/effort.h"

#define STEPS 4

static void run(struct process_gang *g, const Plan *plan, const char *old)
{
    static const char *const env[][4] = {
        {OLD_GRADIENTS "=" OLD_NAN, "CUSIM_PROTECT=1", "CUSIM_SCHEDULE=random,random,3", NULL},
        {OLD_GRADIENTS "=" OLD_ZERO, "CUSIM_SCHEDULE=random,random,3", NULL, NULL},
    };
    *g = (struct process_gang){
        .plan = plan,
        .job_dir = gang_make_dir(),
        .bin_dir = OLD_GRADIENTS_BIN_DIR,
        .env = env[strcmp(old, OLD_ZERO) == 0],
    };
    process_gang_run_well(g, old);
    assert_int_equal(g->num_steps, STEPS);
    gang_remove_dir((char *)(uintptr_t)g->job_dir);
}

/* The norm has every gradient in it, the losses the weights that were made of them. */
static void check(struct gang_spec spec)
{
    static struct process_gang gangs[2];
    spec.backend = "cuda";
    spec.steps = STEPS;
    Plan *plan = gang_plan(&spec);
    run(&gangs[0], plan, OLD_NAN);
    run(&gangs[1], plan, OLD_ZERO);
    for (int i = 0; i < STEPS; i++) {
        const StepMetrics *a = &gangs[0].steps[i], *b = &gangs[1].steps[i];
        assert_memory_equal(&a->loss, &b->loss, sizeof(double));
        assert_memory_equal(&a->grad_norm, &b->grad_norm, sizeof(double));
    }
    plan__free_unpacked(plan, NULL);
}

static void one_rank_begins_anew(void **state)
{
    (void)state;
    check((struct gang_spec){.golden = &golden_gpt2, .precision = "bf16", .micro = 2});
    if (effort(1, 0, 0))
        check((struct gang_spec){.golden = &golden_tied, .precision = "fp32", .micro = 1});
}

static void ranks_that_share_their_state_do(void **state)
{
    (void)state;
    struct gang_spec spec = {.golden = &golden_tied,
                             .precision = "bf16",
                             .batch = 4,
                             .data = 2,
                             .micro = 1,
                             .zero_stage = 3};
    check(spec);
    for (spec.zero_stage = 0; spec.zero_stage < 3 && effort(1, 0, 0); spec.zero_stage++)
        check(spec);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank_begins_anew),
        cmocka_unit_test(ranks_that_share_their_state_do),
    };
    gang_quiet();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
