/* What ranks take of a simulated GPU against what the plan said, to the byte: tandem-rank as
 * processes, four families, both types. The table shows both. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include "tests/effort.h"
#include "tests/parallel/process_gang.h"

/* The norm's sums are planned for as many runs as there are tensors; neighbours are one run. What
 * that comes to here: nothing, a launch of them takes 192. */
static const struct {
    const struct golden *golden;
    int64_t data, tensor, micro, zero_stage, shard_size;
    bool sequence, bf16, sgd;
} cases[] = {
    {&golden_tiny, 1, 1, 2, 0, 0, false, true, false},
    {&golden_gpt2, 2, 2, 1, 3, 0, true, true, false},
    {&golden_tiny, 1, 1, 2, 0, 0, false, false, false},
    {&golden_qwen3, 2, 1, 2, 1, 0, false, true, false},
    {&golden_qwen2, 2, 1, 1, 2, 0, false, true, true},
    {&golden_tiny, 4, 1, 1, 3, 2, false, true, false},
    {&golden_gpt2, 1, 4, 4, 0, 0, false, false, false},
    {&golden_qwen3, 1, 2, 2, 0, 0, true, true, false},
};
#define NUM_CASES ((int)(sizeof(cases) / sizeof(*cases)))

/* Prints it; is it wrong? */
static bool run(int i)
{
    static const char *const env[] = {"CUSIM_DEVICES=4", "CUSIM_PROTECT=1", NULL};
    struct gang_spec spec = {
        .golden = cases[i].golden,
        .backend = "cuda",
        .precision = cases[i].bf16 ? "bf16" : "fp32",
        .steps = 2,
        .data = cases[i].data,
        .tensor = cases[i].tensor,
        .micro = cases[i].micro,
        .zero_stage = cases[i].zero_stage,
        .shard_size = cases[i].shard_size,
        .sequence_parallel = cases[i].sequence,
        .optimizer = cases[i].sgd ? "name: sgd, lr: 0.01" : NULL,
    };
    char what[160];
    snprintf(what, sizeof(what), "%s %s d%lld t%lld z%lld/%lld%s%s", spec.golden->name,
             spec.precision, (long long)spec.data, (long long)spec.tensor,
             (long long)spec.zero_stage, (long long)spec.shard_size, cases[i].sequence ? " sp" : "",
             cases[i].sgd ? " sgd" : "");
    char *dir = gang_make_dir();
    struct process_gang g = {.plan = gang_plan(&spec), .job_dir = dir, .env = env};
    process_gang_run_well(&g, what);
    const MemoryEstimate *m = g.plan->memory;
    int64_t planned = m->total_bytes - m->overhead_bytes, used = g.memory.used_bytes;
    bool wrong = used != planned || g.memory.planned_bytes != m->total_bytes;
    print_message("%s: planned %lld, given out %lld bytes%s\n", what, (long long)planned,
                  (long long)used, wrong ? "  <- WRONG" : "");
    plan__free_unpacked((Plan *)(uintptr_t)g.plan, NULL);
    gang_remove_dir(dir);
    return wrong;
}

/* All of a device's memory that a rank takes is in the plan, and all that is in the plan is taken;
 * but for what the plan states as the libraries' own. */
static void ranks_take_of_a_gpu_what_the_plan_said(void **state)
{
    (void)state;
    int num_wrong = 0, num = effort(NUM_CASES, NUM_CASES, 2);
    for (int i = 0; i < num; i++)
        num_wrong += run(i);
    assert_int_equal(num_wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_take_of_a_gpu_what_the_plan_said),
    };
    gang_quiet();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
