/* A step on GPUs allocates nothing and holds up neither device nor host: the whole of tandem-rank
 * on simulated ones, each rank's calls counted from step to step. What the host does wait for is
 * done long since where a GPU is slower than its host: the step before the one that it has just
 * enqueued, and the copy out of each of the two pieces of memory that batches go through. */
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
#include "quiet_steps.h"
#include "tests/effort.h"

#define STEPS 5
/* From here to the next step's beginning: the first is read at once, the second captures passes. */
#define SETTLED 3

struct counts {
    long long launches, allocations, waits, slow_copies;
};

/* At the beginning of each step. */
static void read_counts(const struct process_gang *g, int rank, struct counts out[STEPS])
{
    char path[512], *text;
    size_t len;
    struct error err = {0};
    int num = 0, step;
    snprintf(path, sizeof(path), "%s/rank-%d.log", g->job_dir, rank);
    if (fs_read_file(path, 1 << 20, &text, &len, &err) != 0)
        fail_msg("%s", err.text);
    for (const char *at = strstr(text, "counted: "); at != NULL; at = strstr(at + 1, "counted: ")) {
        assert_in_range(num, 0, STEPS - 1);
        struct counts *c = &out[num++];
        assert_int_equal(sscanf(at, QUIET_STEPS_LINE, &step, &c->launches, &c->allocations,
                                &c->waits, &c->slow_copies),
                         5);
        assert_int_equal(step, num);
    }
    assert_int_equal(num, STEPS);
    free(text);
}

static void check_rank(const struct process_gang *g, int rank, const char *what, long long waits)
{
    struct counts at[STEPS];
    read_counts(g, rank, at);
    for (int i = SETTLED - 1; i + 1 < STEPS; i++) {
        const struct counts *a = &at[i], *b = &at[i + 1];
        if (b->allocations != a->allocations || b->waits != a->waits + waits ||
            b->slow_copies != a->slow_copies || b->launches <= a->launches)
            fail_msg("%s: rank %d: step %d allocates %lld times, waits %lld times (%lld it may), "
                     "makes %lld copies that wait and %lld launches",
                     what, rank, i + 1, b->allocations - a->allocations, b->waits - a->waits, waits,
                     b->slow_copies - a->slow_copies, b->launches - a->launches);
    }
}

static void check(struct gang_spec spec, const char *graphs)
{
    static struct process_gang g;
    char what[160], with_graphs[64];
    snprintf(with_graphs, sizeof(with_graphs), "TANDEM_CUDA_GRAPHS=%s", graphs);
    const char *const env[] = {"CUSIM_DEVICES=4", "CUSIM_PROTECT=1", with_graphs, NULL};
    spec.backend = "cuda";
    spec.steps = STEPS;
    g = (struct process_gang){.plan = gang_plan(&spec),
                              .job_dir = gang_make_dir(),
                              .bin_dir = QUIET_STEPS_BIN_DIR,
                              .env = env,
                              .schedule = "random,random",
                              .seed = 1};
    snprintf(what, sizeof(what), "%s, %s, %d ranks, graphs %s", spec.golden->name, spec.precision,
             (int)g.plan->mesh->num_ranks, graphs);
    process_gang_run_well(&g, what);
    assert_int_equal(g.num_steps, STEPS);
    int64_t samples = g.plan->spec->training->global_batch_size;
    int64_t micro_batches = samples / (g.plan->mesh->data * spec.micro);
    long long counted = spec.format != NULL; /* targets of packed rows */
    for (int rank = 0; rank < g.num_ranks; rank++)
        check_rank(&g, rank, what, 1 + micro_batches + counted);
    plan__free_unpacked((Plan *)(uintptr_t)g.plan, NULL);
    gang_remove_dir((char *)(uintptr_t)g.job_dir);
}

static void one_rank_takes_and_waits_for_nothing(void **state)
{
    (void)state;
    struct gang_spec spec = {.golden = &golden_tiny, .precision = "bf16", .micro = 2};
    check(spec, "1");
    if (effort(1, 1, 0)) {
        spec.golden = &golden_gpt2;
        check(spec, "0");
    }
}

static void ranks_that_share_their_state_do_not_either(void **state)
{
    (void)state;
    struct gang_spec spec = {.golden = &golden_gpt2, .precision = "bf16", .data = 2, .micro = 1};
    spec.zero_stage = 3;
    check(spec, "1");
    for (spec.zero_stage = 0; spec.zero_stage < 3 && effort(1, 0, 0); spec.zero_stage++)
        check(spec, "1");
}

static void tensor_ranks_do_not_either(void **state)
{
    (void)state;
    struct gang_spec spec = {.golden = &golden_tiny, .precision = "fp32", .tensor = 2, .micro = 2};
    spec.sequence_parallel = true;
    if (effort(1, 1, 0))
        check(spec, "1");
}

/* A step's targets are counted while the step before it runs. */
static void packed_rows_are_counted_on_the_way(void **state)
{
    (void)state;
    char data_path[512], model_path[512];
    snprintf(data_path, sizeof(data_path), "%s", golden_path(&golden_packed, "train.jsonl"));
    snprintf(model_path, sizeof(model_path), "%s", golden_path(&golden_tiny, ""));
    struct gang_spec spec = {.golden = &golden_packed,
                             .data_path = data_path,
                             .model_path = model_path,
                             .format = "tokenized-jsonl",
                             .precision = "bf16",
                             .data = 2,
                             .micro = 1};
    if (effort(1, 1, 0))
        check(spec, "1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank_takes_and_waits_for_nothing),
        cmocka_unit_test(ranks_that_share_their_state_do_not_either),
        cmocka_unit_test(tensor_ranks_do_not_either),
        cmocka_unit_test(packed_rows_are_counted_on_the_way),
    };
    gang_quiet();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
