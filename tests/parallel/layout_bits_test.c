/* Determinism: the same layout gives the same bits, however its threads fall in time, and also
 * where compute runs behind the thread that gives it its work, as on an accelerator. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "plan/plan.h"
#include "record.h"
#include "shapes.h"
#include "tests/effort.h"

#define NUM_STEPS 4

struct case_layout {
    int shape;
    int64_t data, tensor, zero_stage, shard_size, micro;
    bool sequence_parallel, packed;
};

static const struct case_layout layouts[] = {
    {1, 3, 2, 3, 0, 1, true, false},  {0, 6, 1, 2, 3, 1, false, false},
    {3, 2, 6, 1, 0, 5, true, false},  {2, 3, 5, 0, 0, 2, true, false},
    {0, 4, 3, 3, 2, 3, false, false}, {0, 2, 3, 3, 0, 1, true, true},
    {3, 1, 1, 0, 0, 1, false, true},
};
#define NUM_LAYOUTS ((int)(sizeof(layouts) / sizeof(layouts[0])))

static void assert_same_tensors(const struct whole *a, const struct whole *b, const char *words)
{
    for (int32_t i = 0; i < a->num; i++) {
        const struct whole_tensor *x = &a->tensors[i], *y = whole_find(b, x->name);
        if (memcmp(x->values, y->values, (size_t)x->numel * sizeof(*x->values)) != 0)
            fail_msg("%s: %s differs from run to run", words, x->name);
    }
}

static void assert_same_runs(const struct run *a, const struct run *b, const char *words)
{
    assert_int_equal(a->gang.num_steps, NUM_STEPS);
    assert_int_equal(b->gang.num_steps, NUM_STEPS);
    for (int i = 0; i < NUM_STEPS; i++) {
        const StepMetrics *x = &a->gang.steps[i], *y = &b->gang.steps[i];
        if (memcmp(&x->loss, &y->loss, sizeof(double)) != 0 ||
            memcmp(&x->grad_norm, &y->grad_norm, sizeof(double)) != 0)
            fail_msg("%s: step %d: loss %.17g and %.17g, norm %.17g and %.17g", words, i + 1,
                     x->loss, y->loss, x->grad_norm, y->grad_norm);
    }
    assert_same_tensors(&a->record.grads, &b->record.grads, words);
    assert_same_tensors(&a->record.weights, &b->record.weights, words);
    assert_same_tensors(&a->record.exp_avg, &b->record.exp_avg, words);
    assert_same_tensors(&a->record.exp_avg_sq, &b->record.exp_avg_sq, words);
}

static void run_with(struct run *r, const struct gang_spec *spec, int32_t threads, bool queued,
                     const char *words)
{
    run_prepare(r, spec);
    r->gang.queued_compute = queued;
    r->plan->threads_per_rank = threads;
    assert_int_equal(plan_set_memory(r->plan, NULL), 0);
    run_go(r, words);
}

/* queued: so runs the second time. */
static void check_twice(const struct case_layout *l, const char *precision, int32_t threads,
                        bool queued)
{
    struct shape_files files;
    struct run a, b;
    char words[200];
    shape_write(&files, &shapes[l->shape], NULL, NULL);
    struct gang_spec spec = {
        .golden = &files.sizes,
        .model_path = files.dir,
        .data_path = l->packed ? files.packed : files.tokens,
        .format = l->packed ? "tokenized-jsonl" : "u16",
        .steps = NUM_STEPS,
        .backend = strcmp(precision, "fp64") == 0 ? "ref" : "cpu",
        .precision = precision,
        .order = "shuffled",
        .data = l->data,
        .tensor = l->tensor,
        .zero_stage = l->zero_stage,
        .shard_size = l->shard_size,
        .micro = l->micro,
        .sequence_parallel = l->sequence_parallel,
    };
    snprintf(words, sizeof(words), "%s %s, data %lld, tensor %lld, zero_stage %lld, %d threads%s%s",
             shapes[l->shape].family, precision, (long long)l->data, (long long)l->tensor,
             (long long)l->zero_stage, (int)threads, l->packed ? ", packed" : "",
             queued ? ", compute queued" : "");
    run_with(&a, &spec, threads, false, words);
    run_with(&b, &spec, threads, queued, words);
    assert_same_runs(&a, &b, words);
    run_free(&a);
    run_free(&b);
    shape_remove(&files);
}

/* Under sanitizers each test has a layout of its own. */
static bool runs(int i, int test)
{
    return effort(1, 1, 0) || i == test;
}

static void a_layout_gives_the_same_bits_each_time(void **state)
{
    (void)state;
    for (int i = 0; i < NUM_LAYOUTS; i++) {
        if (!runs(i, 0))
            continue;
        check_twice(&layouts[i], "fp64", 1, false);
        check_twice(&layouts[i], "fp32", 1, false);
        if (effort(1, 1, 0))
            check_twice(&layouts[i], "bf16", 1, false);
    }
}

/* Which thread takes which piece of the work changes no sum. */
static void two_threads_a_rank_give_the_same_bits_each_time(void **state)
{
    (void)state;
    for (int i = 0; i < NUM_LAYOUTS; i++) {
        if (!runs(i, 1))
            continue;
        check_twice(&layouts[i], "fp32", 2, false);
        check_twice(&layouts[i], "bf16", 2, false);
    }
}

/* Whatever is given to compute may run later: nothing that it reads is changed before, nothing that
 * it writes is read before. */
static void compute_may_run_behind_its_caller(void **state)
{
    (void)state;
    for (int i = NUM_LAYOUTS - 1; i >= NUM_LAYOUTS - effort(NUM_LAYOUTS, NUM_LAYOUTS, 2); i--) {
        check_twice(&layouts[i], "fp64", 1, true);
        if (effort(1, 1, 0) || i + 1 == NUM_LAYOUTS)
            check_twice(&layouts[i], "bf16", 1, true);
    }
}

static double *saved_weights(const struct gang_spec *spec, bool queued, size_t *numel)
{
    char dir[600];
    struct param_table table;
    struct gang g = {.plan = gang_plan(spec), .queued_compute = queued};
    char *job_dir = gang_make_dir();
    g.job_dir = job_dir;
    gang_run_well(&g);
    assert_int_equal(g.num_checkpoints, NUM_STEPS);
    assert_int_equal(params_expand(g.plan, 0, &table, NULL), 0);
    *numel = (size_t)table.flat_numel;
    double *all = calloc(NUM_STEPS * *numel, sizeof(*all));
    assert_non_null(all);
    for (int i = 0; i < NUM_STEPS; i++) {
        snprintf(dir, sizeof(dir), "%s/%s", job_dir, g.checkpoints[i]);
        double *weights = gang_weights(g.plan, dir);
        memcpy(all + (size_t)i * *numel, weights, *numel * sizeof(*weights));
        free(weights);
    }
    params_free(&table);
    gang_remove_dir(job_dir);
    plan__free_unpacked((Plan *)g.plan, NULL);
    return all;
}

/* A save that copies nothing waits for the step that it is of. */
static void saves_hold_the_weights_of_their_step_where_compute_is_behind(void **state)
{
    struct gang_spec spec = {
        .golden = &golden_tied,
        .data = 2,
        .zero_stage = 1,
        .steps = NUM_STEPS,
    };
    static const char *const ways[] = {"interval: 1, async: false, export_at_end: false",
                                       "interval: 1, async: true, export_at_end: false"};
    (void)state;
    for (int i = 0; i < 2; i++) {
        size_t num_a, num_b;
        spec.checkpoint = ways[i];
        double *a = saved_weights(&spec, false, &num_a), *b = saved_weights(&spec, true, &num_b);
        assert_int_equal(num_a, num_b);
        assert_memory_equal(a, b, NUM_STEPS * num_a * sizeof(*a));
        free(a);
        free(b);
    }
}

int main(void)
{
    gang_quiet();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_layout_gives_the_same_bits_each_time),
        cmocka_unit_test(two_threads_a_rank_give_the_same_bits_each_time),
        cmocka_unit_test(compute_may_run_behind_its_caller),
        cmocka_unit_test(saves_hold_the_weights_of_their_step_where_compute_is_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
