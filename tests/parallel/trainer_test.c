/* What holds for any run of a gang: bits, sums, resuming, commands, and what becomes of faults. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "bad_model.h"
#include "base/fs.h"
#include "gang.h"
#include "tests/effort.h"
#include "plan/params.h"

static void check_same_curve(const struct gang *a, const struct gang *b, int64_t begin)
{
    assert_true(b->num_steps > 0);
    for (int64_t i = 0; i < b->num_steps; i++) {
        const StepMetrics *x = &a->steps[begin + i], *y = &b->steps[i];
        assert_int_equal(x->step, y->step);
        assert_memory_equal(&x->loss, &y->loss, sizeof(double));
        assert_memory_equal(&x->grad_norm, &y->grad_norm, sizeof(double));
        assert_memory_equal(&x->lr, &y->lr, sizeof(double));
    }
}

static double *last_weights(const struct gang *g)
{
    char dir[512];
    assert_true(g->num_checkpoints > 0);
    fs_join(dir, sizeof(dir), g->job_dir, g->checkpoints[g->num_checkpoints - 1]);
    return gang_weights(g->plan, dir);
}

static void check_same_weights(const struct gang *a, const struct gang *b)
{
    double *x = last_weights(a), *y = last_weights(b);
    /* Weights and both moments. */
    assert_memory_equal(x, y, 3 * (size_t)a->plan->stages[0]->flat_numel * sizeof(*x));
    free(x);
    free(y);
}

/* Determinism: the same layout gives the same bits, however threads and buckets fall. */
static void the_same_layout_twice_gives_the_same_bits(void **state)
{
    (void)state;
    struct gang_spec spec = {.golden = &golden_tiny, .data = 2, .steps = 8};
    char *dir_a = gang_make_dir(), *dir_b = gang_make_dir();
    struct gang a = {.plan = gang_plan(&spec), .job_dir = dir_a};
    spec.bucket_mb = "25";
    struct gang b = {.plan = gang_plan(&spec), .job_dir = dir_b};
    assert_true(a.plan->stages[0]->n_buckets > b.plan->stages[0]->n_buckets);
    gang_run_well(&a);
    gang_run_well(&b);
    assert_int_equal(a.num_steps, 8);
    check_same_curve(&a, &b, 0);
    check_same_weights(&a, &b);
    plan__free_unpacked((Plan *)a.plan, NULL);
    plan__free_unpacked((Plan *)b.plan, NULL);
    gang_remove_dir(dir_a);
    gang_remove_dir(dir_b);
}

/* Adam hides a constant factor in the gradient, SGD doesn't: no division too many anywhere. */
static void sgd_on_four_ranks_equals_sgd_on_one(void **state)
{
    (void)state;
    struct gang_spec spec = {
        .golden = &golden_tiny,
        .steps = 3,
        .optimizer = "name: sgd, lr: 0.5, weight_decay: 0.01",
        .clip = "0",
    };
    char *dir_a = gang_make_dir(), *dir_b = gang_make_dir();
    struct gang a = {.plan = gang_plan(&spec), .job_dir = dir_a};
    spec.data = 4;
    struct gang b = {.plan = gang_plan(&spec), .job_dir = dir_b};
    gang_run_well(&a);
    gang_run_well(&b);
    double *x = last_weights(&a), *y = last_weights(&b);
    struct param_table table;
    assert_int_equal(params_expand(a.plan, 0, &table, NULL), 0);
    for (int32_t i = 0; i < table.num_params; i++) {
        const struct param *p = &table.params[i];
        double off = 0.0, all = 0.0;
        for (int64_t j = p->offset; j < p->offset + p->numel; j++) {
            off += (x[j] - y[j]) * (x[j] - y[j]);
            all += x[j] * x[j];
        }
        if (!(sqrt(off) <= 1e-12 * sqrt(all)))
            fail_msg("%s: off by %.2e", p->name, sqrt(off / all));
    }
    params_free(&table);
    free(x);
    free(y);
    plan__free_unpacked((Plan *)a.plan, NULL);
    plan__free_unpacked((Plan *)b.plan, NULL);
    gang_remove_dir(dir_a);
    gang_remove_dir(dir_b);
}

/* The norm doesn't change when accumulation goes from 4 to 16 (under sanitizers to 8) at a fixed
 * global batch. */
static void accumulation_does_not_change_the_norm(void **state)
{
    (void)state;
    const int batch = effort(16, 16, 8);
    struct gang_spec spec = {
        .golden = &golden_tiny, .batch = batch, .steps = 2, .micro = batch / 4};
    struct gang a = {.plan = gang_plan(&spec)};
    spec.micro = 1;
    struct gang b = {.plan = gang_plan(&spec)};
    assert_int_equal(a.plan->micro_batches, 4);
    assert_int_equal(b.plan->micro_batches, batch);
    gang_run_well(&a);
    gang_run_well(&b);
    for (int i = 0; i < 2; i++) {
        assert_true(fabs(a.steps[i].grad_norm / b.steps[i].grad_norm - 1.0) < 1e-12);
        assert_true(fabs(a.steps[i].loss / b.steps[i].loss - 1.0) < 1e-12);
    }
    plan__free_unpacked((Plan *)a.plan, NULL);
    plan__free_unpacked((Plan *)b.plan, NULL);
}

/* Resume: key by key equal to the run that never stopped, from a checkpoint that was written while
 * training went on. */
static void a_resumed_run_gives_the_bits_of_the_whole_one(void **state)
{
    (void)state;
    struct gang_spec spec = {
        .golden = &golden_tied,
        .data = 2,
        .steps = 9,
        .checkpoint = "interval: 4, async: true, export_at_end: false",
    };
    char *dir_a = gang_make_dir(), *dir_b = gang_make_dir(), resume[512];
    const Plan *plan = gang_plan(&spec);
    struct gang whole = {.plan = plan, .job_dir = dir_a};
    gang_run_well(&whole);
    assert_int_equal(whole.num_checkpoints, 3);
    for (int i = 0; i < 3; i++)
        assert_int_equal(whole.checkpoint_steps[i], i < 2 ? 4 * (i + 1) : 9);
    fs_join(resume, sizeof(resume), dir_a, whole.checkpoints[0]);
    struct gang rest = {.plan = plan, .job_dir = dir_b, .resume_dir = resume};
    gang_run_well(&rest);
    assert_int_equal(rest.first_step, 5);
    assert_int_equal(rest.num_steps, 5);
    check_same_curve(&whole, &rest, 4);
    check_same_weights(&whole, &rest);
    plan__free_unpacked((Plan *)plan, NULL);
    gang_remove_dir(dir_a);
    gang_remove_dir(dir_b);
}

/* ---- commands ---------------------------------------------------------------------------------
 */

static void stop_in_step_three(struct gang *g, const StepMetrics *m)
{
    RankDown down = RANK_DOWN__INIT;
    StopAtStep stop = STOP_AT_STEP__INIT;
    down.body_case = RANK_DOWN__BODY_STOP_AT_STEP;
    down.stop_at_step = &stop;
    if (m->step == 3)
        gang_command(g, &down);
}

/* All ranks leave at the same step boundary, with a checkpoint from which the job goes on. */
static void a_stop_pauses_all_ranks_at_one_step_boundary(void **state)
{
    (void)state;
    struct gang_spec spec = {.golden = &golden_tiny, .data = 4, .steps = 10};
    char *dir_a = gang_make_dir(), *dir_b = gang_make_dir(), resume[512];
    const Plan *plan = gang_plan(&spec);
    struct gang whole = {.plan = plan};
    gang_run_well(&whole);
    struct gang first = {.plan = plan, .job_dir = dir_a, .on_step = stop_in_step_three};
    gang_run_well(&first);
    /* Late, the ranks hear two steps after it what rank 0 has decided. */
    int64_t last = effort_is_set("TANDEM_QUEUED") ? 6 : 4;
    assert_int_equal(first.num_steps, last);
    assert_int_equal(first.num_checkpoints, 1);
    assert_int_equal(first.checkpoint_steps[0], last);
    assert_string_equal(first.export_dir, "");
    for (int i = 0; i < 4; i++)
        assert_true(first.ranks[i].paused);
    fs_join(resume, sizeof(resume), dir_a, first.checkpoints[0]);
    struct gang rest = {.plan = plan, .job_dir = dir_b, .resume_dir = resume};
    gang_run_well(&rest);
    assert_int_equal(rest.first_step, last + 1);
    check_same_curve(&whole, &rest, last);
    plan__free_unpacked((Plan *)plan, NULL);
    gang_remove_dir(dir_a);
    gang_remove_dir(dir_b);
}

static void stop_after_step_six(struct gang *g, const StepMetrics *m)
{
    RankDown down = RANK_DOWN__INIT;
    StopAtStep stop = STOP_AT_STEP__INIT;
    stop.has_step = 1;
    stop.step = 6;
    down.body_case = RANK_DOWN__BODY_STOP_AT_STEP;
    down.stop_at_step = &stop;
    if (m->step == 1)
        gang_command(g, &down);
}

static void a_stop_can_name_its_step(void **state)
{
    (void)state;
    struct gang_spec spec = {.golden = &golden_tiny, .data = 2, .steps = 10};
    struct gang g = {.plan = gang_plan(&spec), .on_step = stop_after_step_six};
    gang_run_well(&g);
    assert_int_equal(g.num_steps, 6);
    assert_true(g.ranks[0].paused && g.ranks[1].paused);
    plan__free_unpacked((Plan *)g.plan, NULL);
}

/* A stop at the last step is no pause: the job is done. */
static void a_stop_at_the_last_step_changes_nothing(void **state)
{
    (void)state;
    struct gang_spec spec = {.golden = &golden_tiny, .data = 2, .steps = 6};
    struct gang g = {.plan = gang_plan(&spec), .on_step = stop_after_step_six};
    gang_run_well(&g);
    assert_int_equal(g.num_steps, 6);
    assert_false(g.ranks[0].paused);
    plan__free_unpacked((Plan *)g.plan, NULL);
}

static void save_in_step_two(struct gang *g, const StepMetrics *m)
{
    RankDown down = RANK_DOWN__INIT;
    CheckpointNow now = CHECKPOINT_NOW__INIT;
    down.body_case = RANK_DOWN__BODY_CHECKPOINT;
    down.checkpoint = &now;
    if (m->step == 2)
        gang_command(g, &down);
}

static void a_checkpoint_on_request_is_written_once_and_training_goes_on(void **state)
{
    (void)state;
    struct gang_spec spec = {.golden = &golden_tiny, .data = 2, .steps = 6};
    struct gang g = {.plan = gang_plan(&spec), .on_step = save_in_step_two};
    gang_run_well(&g);
    assert_int_equal(g.num_steps, 6);
    assert_int_equal(g.num_checkpoints, 2);
    assert_int_equal(g.checkpoint_steps[0], effort_is_set("TANDEM_QUEUED") ? 5 : 3);
    assert_int_equal(g.checkpoint_steps[1], 6);
    plan__free_unpacked((Plan *)g.plan, NULL);
}

/* ---- the end ----------------------------------------------------------------------------------
 */

static void the_final_weights_are_left_as_a_model_folder(void **state)
{
    (void)state;
    struct gang_spec spec = {
        .golden = &golden_tiny,
        .data = 2,
        .steps = 2,
        .checkpoint = "interval: 0, export_at_end: true",
    };
    char *dir = gang_make_dir(), path[512];
    struct gang g = {.plan = gang_plan(&spec), .job_dir = dir};
    gang_run_well(&g);
    assert_string_equal(g.export_dir, "export");
    snprintf(path, sizeof(path), "%s/export/model.safetensors", dir);
    assert_true(fs_exists(path));
    snprintf(path, sizeof(path), "%s/export/config.json", dir);
    assert_true(fs_exists(path));
    plan__free_unpacked((Plan *)g.plan, NULL);
    gang_remove_dir(dir);
}

/* ---- faults -----------------------------------------------------------------------------------
 */

/* A copy of the case's tokens with one changed. */
static void write_tokens(const char *path, const struct golden *golden, size_t at, uint16_t token)
{
    char *data;
    size_t len;
    assert_int_equal(fs_read_file(golden_path(golden, "train.bin"), 1 << 20, &data, &len, NULL), 0);
    memcpy(data + 2 * at, &token, sizeof(token));
    assert_int_equal(fs_write_atomic(path, data, len, 0600, NULL), 0);
    free(data);
}

/* The rank that met it says file and position; the others leave with its name, soon. */
static void a_bad_token_is_named_by_the_rank_that_read_it(void **state)
{
    (void)state;
    char *dir = gang_make_dir(), data_path[512];
    snprintf(data_path, sizeof(data_path), "%s/bad.bin", dir);
    /* Third sample of the first step: rank 1 of 2. */
    write_tokens(data_path, &golden_tiny, 2 * 33 + 5, 999);
    struct gang_spec spec = {.golden = &golden_tiny, .data = 2, .data_path = data_path};
    struct gang g = {.plan = gang_plan(&spec), .job_dir = dir};
    gang_run(&g);
    assert_int_equal(g.num_steps, 0);
    assert_int_equal(g.ranks[1].rc, -1);
    assert_non_null(strstr(g.ranks[1].fault, "bad.bin"));
    assert_non_null(strstr(g.ranks[1].fault, "step 1"));
    assert_false(g.ranks[1].retryable);
    assert_int_equal(g.ranks[0].rc, -1);
    assert_non_null(strstr(g.ranks[0].fault, "rank 1"));
    assert_true(g.ranks[0].retryable);
    plan__free_unpacked((Plan *)g.plan, NULL);
    gang_remove_dir(dir);
}

/* All ranks of all kinds of layouts name the step and the rank whose share it was, before any
 * weight is touched: of tensor ranks, which share it, the first. */
static void expect_not_finite(struct gang_spec spec, const char *dir)
{
    struct gang g = {.plan = gang_plan(&spec), .job_dir = dir};
    char words[64];
    snprintf(words, sizeof(words), "the loss is not finite on rank %d (", (int)spec.tensor);
    gang_run(&g);
    assert_int_equal(g.num_steps, 0);
    for (int i = 0; i < g.plan->mesh->num_ranks; i++) {
        assert_int_equal(g.ranks[i].rc, -1);
        assert_false(g.ranks[i].retryable);
        assert_non_null(strstr(g.ranks[i].fault, "step 1"));
        if (strstr(g.ranks[i].fault, words) == NULL || strstr(g.ranks[i].fault, "-nan") != NULL)
            fail_msg("data 2, tensor %d, ZeRO-%d: rank %d: %s", (int)spec.tensor,
                     (int)spec.zero_stage, i, g.ranks[i].fault);
    }
    plan__free_unpacked((Plan *)g.plan, NULL);
}

static void a_loss_that_is_not_finite_is_named_by_step_and_rank(void **state)
{
    (void)state;
    char *dir = gang_make_dir(), model_path[512];
    fs_join(model_path, sizeof(model_path), dir, "model");
    bad_model_write(model_path, 1);
    struct gang_spec spec = {
        .golden = &golden_tiny, .data = 2, .tensor = 1, .model_path = model_path};
    for (int zero = 0; zero <= 3; zero += effort(1, 1, 3))
        for (int tensor = 1; tensor <= 2; tensor++) {
            spec.zero_stage = zero;
            spec.tensor = tensor;
            spec.sequence_parallel = tensor > 1 && zero % 2 == 1;
            expect_not_finite(spec, dir);
        }
    gang_remove_dir(dir);
}

/* A disk that can't be written costs the checkpoint, not the run; but a run whose last state is
 * nowhere has not succeeded. */
static void a_failed_save_does_not_stop_training(void **state)
{
    (void)state;
    struct gang_spec spec = {
        .golden = &golden_tiny,
        .data = 2,
        .steps = 5,
        .checkpoint = "interval: 2, async: true, export_at_end: false",
    };
    char *dir = gang_make_dir(), path[512];
    snprintf(path, sizeof(path), "%s/ckpt", dir);
    assert_int_equal(fs_write_atomic(path, "", 0, 0600, NULL), 0);
    struct gang g = {.plan = gang_plan(&spec), .job_dir = dir};
    gang_run(&g);
    assert_int_equal(g.num_steps, 5);
    assert_int_equal(g.num_checkpoints, 0);
    assert_int_equal(g.ranks[0].rc, -1);
    assert_non_null(strstr(g.ranks[0].fault, "checkpoint of step 5"));
    plan__free_unpacked((Plan *)g.plan, NULL);
    gang_remove_dir(dir);
}

int main(void)
{
    gang_quiet();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_layout_twice_gives_the_same_bits),
        cmocka_unit_test(sgd_on_four_ranks_equals_sgd_on_one),
        cmocka_unit_test(accumulation_does_not_change_the_norm),
        cmocka_unit_test(a_resumed_run_gives_the_bits_of_the_whole_one),
        cmocka_unit_test(a_stop_pauses_all_ranks_at_one_step_boundary),
        cmocka_unit_test(a_stop_can_name_its_step),
        cmocka_unit_test(a_stop_at_the_last_step_changes_nothing),
        cmocka_unit_test(a_checkpoint_on_request_is_written_once_and_training_goes_on),
        cmocka_unit_test(the_final_weights_are_left_as_a_model_folder),
        cmocka_unit_test(a_bad_token_is_named_by_the_rank_that_read_it),
        cmocka_unit_test(a_loss_that_is_not_finite_is_named_by_step_and_rank),
        cmocka_unit_test(a_failed_save_does_not_stop_training),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
