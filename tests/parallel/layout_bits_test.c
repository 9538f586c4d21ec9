/* Determinism: the same layout gives the same bits, however its threads fall in time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
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
    bool sequence_parallel;
};

static const struct case_layout layouts[] = {
    {1, 3, 2, 3, 0, 1, true}, {0, 6, 1, 2, 3, 1, false}, {3, 2, 6, 1, 0, 5, true},
    {2, 3, 5, 0, 0, 2, true}, {0, 4, 3, 3, 2, 3, false},
};

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

static void run_with(struct run *r, const struct gang_spec *spec, int32_t threads,
                     const char *words)
{
    run_prepare(r, spec);
    r->plan->threads_per_rank = threads;
    assert_int_equal(plan_set_memory(r->plan, NULL), 0);
    run_go(r, words);
}

static void check_twice(const struct case_layout *l, const char *precision, int32_t threads)
{
    struct shape_files files;
    struct run a, b;
    char words[200];
    shape_write(&files, &shapes[l->shape], NULL, NULL);
    struct gang_spec spec = {
        .golden = &files.sizes,
        .model_path = files.dir,
        .data_path = files.tokens,
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
    snprintf(words, sizeof(words), "%s %s, data %lld, tensor %lld, zero_stage %lld, %d threads",
             shapes[l->shape].family, precision, (long long)l->data, (long long)l->tensor,
             (long long)l->zero_stage, (int)threads);
    run_with(&a, &spec, threads, words);
    run_with(&b, &spec, threads, words);
    assert_same_runs(&a, &b, words);
    run_free(&a);
    run_free(&b);
    shape_remove(&files);
}

static int num_layouts(void)
{
    const int num = (int)(sizeof(layouts) / sizeof(layouts[0]));
    return effort(num, num, 2);
}

static void a_layout_gives_the_same_bits_each_time(void **state)
{
    (void)state;
    for (int i = 0; i < num_layouts(); i++) {
        check_twice(&layouts[i], "fp64", 1);
        check_twice(&layouts[i], "fp32", 1);
    }
}

/* Which thread takes which piece of the work changes no sum. */
static void two_threads_a_rank_give_the_same_bits_each_time(void **state)
{
    (void)state;
    for (int i = 0; i < num_layouts(); i++)
        check_twice(&layouts[i], "fp32", 2);
}

int main(void)
{
    gang_quiet();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_layout_gives_the_same_bits_each_time),
        cmocka_unit_test(two_threads_a_rank_give_the_same_bits_each_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
