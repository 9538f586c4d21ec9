/* Training on packed documents: Hugging Face's curves, one divisor over ranks and micro-batches
 * whose targets are unequal in number, steps without targets, FLOPs of the documents' own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../effort.h"
#include "base/buf.h"
#include "base/fs.h"
#include "gang.h"
#include "model/family.h"

/* The curves' file has 16 digits; sums in another order move the last ones. */
#define F64_TOLERANCE 1e-12
#define F32_LOSS_TOLERANCE 2e-6
#define F32_NORM_TOLERANCE 5e-6
/* Another layout: rounding only. */
#define SAME 1e-12

static char dir[64], path[128];

static int make_dir(void **state)
{
    (void)state;
    snprintf(dir, sizeof(dir), "/tmp/tandem-packed-train-XXXXXX");
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/train.jsonl", dir);
    return 0;
}

static int remove_dir(void **state)
{
    (void)state;
    return fs_remove_tree(dir, NULL);
}

static void check_close(const char *what, int64_t step, double got, double want, double tolerance)
{
    if (!(fabs(got - want) <= tolerance * fabs(want)))
        fail_msg("step %lld: %s %.17g, wanted %.17g, off by %.2e", (long long)step, what, got, want,
                 fabs(got / want - 1.0));
}

/* ---- the reference's curves -------------------------------------------------------------------
 */

static void check_curve(const struct golden *golden, const struct golden *model, int64_t data,
                        int64_t micro, const char *backend)
{
    bool ref = strcmp(backend, "ref") == 0;
    double loss[GOLDEN_STEPS], norm[GOLDEN_STEPS], off_loss = 0, off_norm = 0;
    char rows[512], folder[512];
    golden_curve(golden, "loss_f64", loss);
    golden_curve(golden, "grad_norm_f64", norm);
    snprintf(rows, sizeof(rows), "%s", golden_path(golden, "train.jsonl"));
    snprintf(folder, sizeof(folder), "%s", golden_path(model, ""));
    const int64_t steps = effort(GOLDEN_STEPS, GOLDEN_STEPS, 6);
    struct gang_spec spec = {
        .golden = golden,
        .data = data,
        .micro = micro,
        .steps = steps,
        .backend = backend,
        .precision = ref ? "fp64" : "fp32",
        .data_path = rows,
        .format = "tokenized-jsonl",
        .window = "T",
        .model_path = folder,
    };
    struct gang g = {.plan = gang_plan(&spec)};
    gang_run_well(&g);
    assert_int_equal(g.num_steps, steps);
    for (int64_t i = 0; i < steps; i++) {
        const StepMetrics *m = &g.steps[i];
        off_loss = fmax(off_loss, fabs(m->loss / loss[i] - 1.0));
        off_norm = fmax(off_norm, fabs(m->grad_norm / norm[i] - 1.0));
        check_close("loss", i + 1, m->loss, loss[i], ref ? F64_TOLERANCE : F32_LOSS_TOLERANCE);
        check_close("grad_norm", i + 1, m->grad_norm, norm[i],
                    ref ? F64_TOLERANCE : F32_NORM_TOLERANCE);
    }
    print_message("%s %s data %lld micro %lld: loss %.1e, grad_norm %.1e\n", golden->name, backend,
                  (long long)data, (long long)micro, off_loss, off_norm);
    plan__free_unpacked((Plan *)g.plan, NULL);
}

/* Both rows at once, one after the other, one on each of two ranks: their targets are unequal in
 * number, and the curve is the same. */
static void check_layouts(const struct golden *golden, const struct golden *model)
{
    static const char *const backends[] = {"ref", "cpu"};
    for (size_t i = 0; i < 2; i++) {
        if (!effort_is_set("TANDEM_SAMPLE")) {
            check_curve(golden, model, 1, 1, backends[i]);
            check_curve(golden, model, 1, 2, backends[i]);
        }
        check_curve(golden, model, 2, 1, backends[i]);
    }
}

static void sft_packed_follows_the_reference(void **state)
{
    (void)state;
    check_layouts(&golden_packed, &golden_tiny);
}

/* Learned positions: forgetting that they restart in each document shows. */
static void sft_packed_gpt2_follows_the_reference(void **state)
{
    (void)state;
    check_layouts(&golden_packed_gpt2, &golden_gpt2);
}

/* ---- one divisor ------------------------------------------------------------------------------
 */

#define T 8
static const struct golden short_rows = {"llama-tiny", 4, T};

/* A row of `tokens` tokens whose last `targets` have targets; each document has `length`. */
static void put_row(struct buf *b, int64_t seed, int64_t tokens, int64_t targets, int64_t length)
{
    static const char *const keys[] = {"input_ids", "labels", "segment_ids"};
    for (int k = 0; k < 3; k++) {
        buf_printf(b, "%s\"%s\": [", k ? "], " : "{", keys[k]);
        for (int64_t i = 0; i < tokens; i++) {
            int64_t id = (seed * 37 + i * 11 + k) % 250;
            int64_t v = k == 2 ? i / length : k == 1 && i < tokens - targets ? -100 : id;
            buf_printf(b, "%s%lld", i ? ", " : "", (long long)v);
        }
    }
    buf_puts(b, "]}\n");
}

static void write_rows(const int64_t (*rows)[3], size_t num)
{
    struct buf b = {0};
    struct error err = {0};
    for (size_t i = 0; i < num; i++)
        put_row(&b, (int64_t)i, rows[i][0], rows[i][1], rows[i][2]);
    if (fs_write_atomic(path, b.data, b.len, 0600, &err) != 0)
        fail_msg("%s", err.text);
    buf_free(&b);
}

static struct gang_spec spec_of(int64_t batch, int64_t data, int64_t micro, int64_t steps)
{
    return (struct gang_spec){
        .golden = &short_rows,
        .batch = batch,
        .data = data,
        .micro = micro,
        .steps = steps,
        .data_path = path,
        .format = "tokenized-jsonl",
        .window = "T",
        /* SGD: a gradient that is off by a factor shows. */
        .optimizer = "name: sgd, lr: 0.1",
    };
}

static void run_steps(const struct gang_spec *spec, StepMetrics *out)
{
    struct gang g = {.plan = gang_plan(spec)};
    gang_run_well(&g);
    assert_int_equal(g.num_steps, spec->steps);
    memcpy(out, g.steps, (size_t)spec->steps * sizeof(*out));
    plan__free_unpacked((Plan *)g.plan, NULL);
}

/* Rank A has 1 target, rank B 3: the step's loss is the sum of all four over 4, not the mean of two
 * means. Each row's own loss comes from a run of that row alone. */
static void uneven_targets_over_ranks_are_divided_once(void **state)
{
    (void)state;
    static const int64_t rows[][3] = {{5, 1, 5}, {8, 3, 4}};
    StepMetrics alone[2], both;
    write_rows(rows, 2);
    for (int i = 0; i < 2; i++) {
        write_rows(rows, 2);
        struct gang_spec spec = spec_of(1, 1, 1, 2);
        /* Without training between them. */
        spec.optimizer = "name: sgd, lr: 0.0";
        run_steps(&spec, alone);
    }
    struct gang_spec spec = spec_of(2, 2, 1, 1);
    run_steps(&spec, &both);
    double want = (1 * alone[0].loss + 3 * alone[1].loss) / 4;
    check_close("loss", 1, both.loss, want, SAME);
    double mean_of_means = (alone[0].loss + alone[1].loss) / 2;
    assert_true(fabs(mean_of_means / want - 1) > 1e-4);
}

/* Rows of 0 to 8 targets, in one micro-batch, accumulated, over ranks: the same losses, gradients
 * (by their norm) and, through SGD, weights. One rank of four has no target at all. */
static void uneven_targets_over_micro_batches_are_divided_once(void **state)
{
    (void)state;
    static const int64_t rows[][3] = {{8, 8, 3}, {3, 1, 2}, {7, 0, 7}, {8, 5, 8},
                                      {1, 1, 1}, {8, 0, 2}, {6, 2, 3}, {5, 4, 1}};
    static const int64_t layouts[][2] = {{1, 1}, {1, 2}, {2, 1}, {2, 2}, {4, 1}};
    enum { STEPS = 4 };
    StepMetrics want[STEPS], got[STEPS];
    write_rows(rows, 8);
    struct gang_spec spec = spec_of(4, 1, 4, STEPS);
    run_steps(&spec, want);
    for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++) {
        spec = spec_of(4, layouts[i][0], layouts[i][1], STEPS);
        run_steps(&spec, got);
        for (int64_t n = 0; n < STEPS; n++) {
            check_close("loss", n + 1, got[n].loss, want[n].loss, SAME);
            check_close("grad_norm", n + 1, got[n].grad_norm, want[n].grad_norm, SAME);
        }
    }
}

/* Every rank says it, with the lines; it isn't tried again. */
static void a_step_without_any_target_is_an_error_that_names_its_lines(void **state)
{
    (void)state;
    static const int64_t rows[][3] = {{8, 8, 8}, {8, 0, 8}, {4, 0, 2}, {5, 0, 1}};
    write_rows(rows, 4);
    struct gang_spec spec = spec_of(2, 2, 1, 2);
    struct gang g = {.plan = gang_plan(&spec)};
    char want[512];
    gang_run(&g);
    snprintf(want, sizeof(want),
             "step 2: %s: every label of the step's 2 rows is -100, so there is nothing to learn "
             "(lines 3, 4)",
             path);
    assert_int_equal(g.num_steps, 1);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(g.ranks[i].rc, -1);
        assert_false(g.ranks[i].retryable);
        if (strstr(g.ranks[i].err.text, want) == NULL)
            fail_msg("rank %d says \"%s\", wanted \"%s\"", i, g.ranks[i].err.text, want);
    }
    plan__free_unpacked((Plan *)g.plan, NULL);
}

/* ---- FLOPs ------------------------------------------------------------------------------------
 */

/* What MFU and duration say that the first step computed: one row of the file, of so many tokens
 * which together attend to so many. */
static void check_flops(const int64_t (*rows)[3], size_t num, double tokens, double attended)
{
    write_rows(rows, num);
    struct gang_spec spec = spec_of(1, 1, 1, 1);
    spec.backend = "cpu";
    spec.precision = "fp32";
    struct gang g = {.plan = gang_plan(&spec)};
    gang_run_well(&g);
    const StepMetrics *m = &g.steps[0];
    assert_true(m->has_mfu && g.plan->peak_flops > 0);
    double flops = m->mfu * g.plan->peak_flops * m->step_ms * 1e-3;
    double want = tokens * family_flops_per_token(g.plan->model->config, attended / tokens);
    check_close("flops", 1, flops, want, 1e-9);
    plan__free_unpacked((Plan *)g.plan, NULL);
}

/* MFU counts what the documents need: tokens, and positions of a token's own document. Four short
 * documents are less work than one long one, padding is none; each step has its own. */
static void a_pack_of_four_documents_counts_fewer_flops_than_one(void **state)
{
    (void)state;
    static const int64_t one[][3] = {{8, 8, 8}}, four[][3] = {{8, 8, 2}};
    static const int64_t padded[][3] = {{5, 5, 5}}, mixed[][3] = {{8, 8, 8}, {8, 8, 2}};
    check_flops(one, 1, 8, 36);
    check_flops(four, 1, 8, 12);
    check_flops(padded, 1, 5, 15);
    check_flops(mixed, 2, 8, 36);
}

/* packed_train_test [PATTERN]: only the tests whose names fit it. */
int main(int argc, char **argv)
{
    gang_quiet();
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sft_packed_follows_the_reference),
        cmocka_unit_test(sft_packed_gpt2_follows_the_reference),
        cmocka_unit_test(uneven_targets_over_ranks_are_divided_once),
        cmocka_unit_test(uneven_targets_over_micro_batches_are_divided_once),
        cmocka_unit_test(a_step_without_any_target_is_an_error_that_names_its_lines),
        cmocka_unit_test(a_pack_of_four_documents_counts_fewer_flops_than_one),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
