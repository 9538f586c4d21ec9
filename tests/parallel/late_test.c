/* Compute that runs behind its caller, as on an accelerator: what a step came to is read when the
 * next one has been enqueued, and that changes nothing but when it is known. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "bad_model.h"
#include "base/buf.h"
#include "base/fs.h"
#include "gang.h"
#include "tests/effort.h"

static void check_same_curve(const struct gang *a, const struct gang *b, int64_t begin)
{
    assert_true(b->num_steps > 0);
    for (int64_t i = 0; i < b->num_steps; i++) {
        const StepMetrics *x = &a->steps[begin + i], *y = &b->steps[i];
        assert_int_equal(x->step, y->step);
        assert_memory_equal(&x->loss, &y->loss, sizeof(double));
        assert_memory_equal(&x->grad_norm, &y->grad_norm, sizeof(double));
        assert_memory_equal(&x->lr, &y->lr, sizeof(double));
        assert_true(x->step_ms > 0.0 && y->step_ms > 0.0);
    }
}

static void check_same_weights(const struct gang *a, const struct gang *b)
{
    char dir[512];
    double *weights[2];
    const struct gang *gangs[] = {a, b};
    if (a->plan->mesh->tensor > 1)
        return; /* of one tensor rank alone a whole table can be made */
    for (int i = 0; i < 2; i++) {
        const struct gang *g = gangs[i];
        assert_true(g->num_checkpoints > 0);
        fs_join(dir, sizeof(dir), g->job_dir, g->checkpoints[g->num_checkpoints - 1]);
        weights[i] = gang_weights(g->plan, dir);
    }
    /* Both moments, too. */
    size_t num = 3 * (size_t)a->plan->stages[0]->flat_numel;
    assert_memory_equal(weights[0], weights[1], num * sizeof(double));
    free(weights[0]);
    free(weights[1]);
}

/* ---- bits -------------------------------------------------------------------------------------
 */

static void run_both_ways(struct gang_spec spec)
{
    char *dirs[] = {gang_make_dir(), gang_make_dir()};
    spec.checkpoint = "interval: 3, async: true, export_at_end: false";
    struct gang at_once = {.plan = gang_plan(&spec), .job_dir = dirs[0]};
    struct gang late = {.plan = at_once.plan, .job_dir = dirs[1], .queued_compute = true};
    gang_run_well(&at_once);
    gang_run_well(&late);
    assert_int_equal(late.num_steps, spec.steps);
    assert_int_equal(late.first_step, 1);
    check_same_curve(&at_once, &late, 0);
    check_same_weights(&at_once, &late);
    /* Each at its step, though training had gone on when it was written. */
    assert_int_equal(late.num_checkpoints, at_once.num_checkpoints);
    for (int i = 0; i < late.num_checkpoints; i++)
        assert_int_equal(late.checkpoint_steps[i], at_once.checkpoint_steps[i]);
    plan__free_unpacked((Plan *)at_once.plan, NULL);
    gang_remove_dir(dirs[0]);
    gang_remove_dir(dirs[1]);
}

/* Who reads late trains to the same bits: on one rank, and where gradients, weights and rows are
 * shared out. */
static void late_reading_changes_no_bit(void **state)
{
    (void)state;
    struct gang_spec spec = {.golden = &golden_tiny, .steps = 8};
    run_both_ways(spec);
    for (int zero = effort(1, 1, 3); zero <= 3; zero += effort(1, 2, 2)) {
        spec.data = 2;
        spec.tensor = zero > 1 ? 2 : 1;
        spec.sequence_parallel = zero > 1;
        spec.zero_stage = zero;
        run_both_ways(spec);
    }
}

/* Targets of a step are counted in the step before it: each is divided by its own number, in a run
 * that begins in the middle, too. */
static void targets_are_counted_for_their_own_step(void **state)
{
    (void)state;
    char data_path[512], model_path[512], resume[512];
    snprintf(data_path, sizeof(data_path), "%s", golden_path(&golden_packed, "train.jsonl"));
    snprintf(model_path, sizeof(model_path), "%s", golden_path(&golden_tiny, ""));
    struct gang_spec spec = {
        .golden = &golden_packed,
        .data_path = data_path,
        .model_path = model_path,
        .format = "tokenized-jsonl",
        .data = 2,
        .steps = 7,
    };
    run_both_ways(spec);
    spec.checkpoint = "interval: 3, async: true, export_at_end: false";
    char *dir = gang_make_dir();
    struct gang whole = {.plan = gang_plan(&spec), .job_dir = dir, .queued_compute = true};
    gang_run_well(&whole);
    fs_join(resume, sizeof(resume), dir, whole.checkpoints[0]);
    struct gang rest = {.plan = whole.plan, .resume_dir = resume, .queued_compute = true};
    gang_run_well(&rest);
    assert_int_equal(rest.first_step, 4);
    check_same_curve(&whole, &rest, 3);
    plan__free_unpacked((Plan *)whole.plan, NULL);
    gang_remove_dir(dir);
}

/* ---- commands ---------------------------------------------------------------------------------
 */

/* A stop that names its step is exact, from the first step of an attempt on; a checkpoint of that
 * state is there, and the run goes on from it to the same bits. */
static void a_stop_is_at_the_step_that_it_names(void **state)
{
    (void)state;
    struct gang_spec spec = {.golden = &golden_tiny, .data = 2, .zero_stage = 2, .steps = 7};
    const Plan *plan = gang_plan(&spec);
    struct gang whole = {.plan = plan};
    gang_run_well(&whole);
    for (int64_t step = 1; step <= 3; step += effort(1, 1, 2)) {
        char *dir = gang_make_dir(), resume[512];
        struct gang first = {
            .plan = plan, .job_dir = dir, .stop_step = step, .queued_compute = true};
        gang_run_well(&first);
        assert_int_equal(first.num_steps, step);
        assert_int_equal(first.num_checkpoints, 1);
        assert_int_equal(first.checkpoint_steps[0], step);
        assert_true(first.ranks[0].paused && first.ranks[1].paused);
        fs_join(resume, sizeof(resume), dir, first.checkpoints[0]);
        struct gang rest = {.plan = plan, .resume_dir = resume, .queued_compute = true};
        gang_run_well(&rest);
        assert_int_equal(rest.first_step, step + 1);
        assert_int_equal(rest.num_steps, 7 - step);
        check_same_curve(&whole, &rest, step);
        gang_remove_dir(dir);
    }
    plan__free_unpacked((Plan *)plan, NULL);
}

/* Rank 0 hears of it behind step 2, when step 3 is under way; what it says in step 4 all know when
 * step 5 is. */
static void save_and_stop(struct gang *g, const StepMetrics *m)
{
    RankDown down = RANK_DOWN__INIT;
    CheckpointNow now = CHECKPOINT_NOW__INIT;
    StopAtStep stop = STOP_AT_STEP__INIT;
    if (m->step == 2) {
        down.body_case = RANK_DOWN__BODY_CHECKPOINT;
        down.checkpoint = &now;
        gang_command(g, &down);
    } else if (m->step == 6) {
        down.body_case = RANK_DOWN__BODY_STOP_AT_STEP;
        down.stop_at_step = &stop;
        gang_command(g, &down);
    }
}

static void commands_without_a_step_take_effect_two_steps_later(void **state)
{
    (void)state;
    struct gang_spec spec = {.golden = &golden_tiny, .data = 4, .steps = 20};
    struct gang g = {.plan = gang_plan(&spec), .on_step = save_and_stop, .queued_compute = true};
    gang_run_well(&g);
    assert_int_equal(g.num_checkpoints, 2);
    assert_int_equal(g.checkpoint_steps[0], 5);
    assert_int_equal(g.checkpoint_steps[1], 9);
    assert_int_equal(g.num_steps, 9);
    for (int i = 0; i < 4; i++)
        assert_true(g.ranks[i].paused);
    plan__free_unpacked((Plan *)g.plan, NULL);
}

/* ---- faults -----------------------------------------------------------------------------------
 */

/* Found when the step behind it is under way: the words name the step that went wrong and the rank
 * whose share it was, and no weight was changed by it or by what came behind it. */
static void a_step_that_is_not_finite_is_explained_from_the_weights_before_it(void **state)
{
    (void)state;
    char *dir = gang_make_dir(), model_path[512], words[64];
    fs_join(model_path, sizeof(model_path), dir, "model");
    bad_model_write(model_path, 3);
    struct gang_spec spec = {
        .golden = &golden_tiny, .data = 2, .tensor = 1, .model_path = model_path};
    for (int zero = 0; zero <= 3; zero += effort(1, 1, 3)) {
        spec.zero_stage = zero;
        spec.tensor = zero % 2 + 1;
        spec.sequence_parallel = zero == 3;
        spec.clip = zero == 1 ? "0" : NULL;
        struct gang g = {.plan = gang_plan(&spec), .job_dir = dir, .queued_compute = true};
        gang_run(&g);
        assert_int_equal(g.num_steps, 2);
        snprintf(words, sizeof(words), "step 3: the loss is not finite on rank %d (loss nan",
                 (int)spec.tensor);
        for (int i = 0; i < g.plan->mesh->num_ranks; i++) {
            assert_int_equal(g.ranks[i].rc, -1);
            assert_false(g.ranks[i].retryable);
            if (strstr(g.ranks[i].fault, words) == NULL)
                fail_msg("ZeRO-%d: rank %d: %s", zero, i, g.ranks[i].fault);
        }
        plan__free_unpacked((Plan *)g.plan, NULL);
    }
    gang_remove_dir(dir);
}

/* Twelve rows, of which one has a token that no model has; as many bytes as without it. */
static void write_rows(const char *path, int bad_row)
{
    struct buf b = {0};
    for (int i = 0; i < 12; i++) {
        buf_puts(&b,
                 "{\"input_ids\": [1, 2, 3, 4, 5, 6, 7, 8], \"labels\": [2, 3, 4, 5, 6, 7, 8, ");
        buf_printf(&b, "%5d]}\n", i == bad_row ? 99999 : 9);
    }
    assert_int_equal(fs_write_atomic(path, b.data, b.len, 0600, NULL), 0);
    buf_free(&b);
}

/* A row that is wrong is met a step early, and said when its step comes: what the steps before it
 * came to is told as ever. */
static void what_went_before_a_bad_row_is_told(void **state)
{
    (void)state;
    char *dir = gang_make_dir(), path[512];
    fs_join(path, sizeof(path), dir, "rows.jsonl");
    write_rows(path, -1);
    struct gang_spec spec = {
        .golden = &golden_tiny, .data_path = path, .format = "tokenized-jsonl", .steps = 3};
    struct gang g = {.plan = gang_plan(&spec), .queued_compute = true};
    write_rows(path, 9); /* of the third step of four rows; the plan has seen good ones */
    gang_run(&g);
    assert_int_equal(g.num_steps, 2);
    assert_int_equal(g.ranks[0].rc, -1);
    if (strstr(g.ranks[0].fault, "step 3: ") == NULL || strstr(g.ranks[0].fault, ":10") == NULL)
        fail_msg("%s", g.ranks[0].fault);
    plan__free_unpacked((Plan *)g.plan, NULL);
    gang_remove_dir(dir);
}

int main(void)
{
    gang_quiet();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(late_reading_changes_no_bit),
        cmocka_unit_test(targets_are_counted_for_their_own_step),
        cmocka_unit_test(a_stop_is_at_the_step_that_it_names),
        cmocka_unit_test(commands_without_a_step_take_effect_two_steps_later),
        cmocka_unit_test(a_step_that_is_not_finite_is_explained_from_the_weights_before_it),
        cmocka_unit_test(what_went_before_a_bad_row_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
