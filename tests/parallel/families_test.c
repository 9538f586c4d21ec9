/* Every family against Hugging Face: logits, hidden states, loss and every gradient of one batch,
 * plain and packed; in fp64, where only the stored numbers' fp32 differs, and in fp32. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/fs.h"
#include "model/config.h"
#include "reference.h"
#include "runtime/ckpt/ckpt.h"
#include "solo.h"

/* A batch, and whose weights it was computed with. */
static const struct {
    const struct golden *batch, *weights;
} cases[] = {
    {&golden_tiny, &golden_tiny},           {&golden_tied, &golden_tied},
    {&golden_qwen2, &golden_qwen2},         {&golden_qwen3, &golden_qwen3},
    {&golden_gpt2, &golden_gpt2},           {&golden_deep, &golden_deep},
    {&golden_packed, &golden_tiny},         {&golden_packed_gpt2, &golden_gpt2},
    {&golden_deep_tied, &golden_deep_tied},
};
#define NUM_CASES (sizeof(cases) / sizeof(cases[0]))

/* How far from the reference: logits and hidden states absolute (relative where above 1), loss
 * relative, gradients relative L2 of a parameter, a gradient that is zero in theory absolute. The
 * stored logits and gradients are fp32 copies of fp64 numbers, the loss is fp64. */
struct precision {
    const char *backend;
    enum dtype dtype;
    double activations, loss, grad, zero;
};
static const struct precision fp64 = {"ref", DTYPE_F64, 2e-7, 1e-12, 2e-7, 1e-14};
static const struct precision fp32_ref = {"ref", DTYPE_F32, 2e-5, 1e-6, 1e-5, 1e-7};
static const struct precision fp32_cpu = {"cpu", DTYPE_F32, 2e-5, 1e-6, 1e-5, 1e-7};

static ModelConfig *read_config(const struct golden *golden)
{
    ModelConfig *config = NULL;
    struct error err = {0};
    char *text;
    size_t len;
    const char *path = golden_path(golden, "config.json");
    if (fs_read_file(path, 1 << 20, &text, &len, &err) != 0 ||
        config_parse(path, text, len, &config, &err) != 0)
        fail_msg("%s", err.text);
    free(text);
    return config;
}

static void open_case(struct solo *s, size_t i, const struct precision *p, int64_t micro,
                      bool trains, ModelConfig *config)
{
    struct error err = {0};
    const struct solo_options options = {
        .config = config,
        .backend = p->backend,
        .dtype = p->dtype,
        .micro = micro,
        .seq_len = cases[i].batch->seq_len,
        .trains = trains,
    };
    solo_open(s, &options);
    struct ckpt_state state = {
        .table = &s->table, .dtype = p->dtype, .weights = {.data = s->weights}};
    if (ckpt_load_hf(NULL, golden_path(cases[i].weights, ""), &state, &err) != 0)
        fail_msg("%s", err.text);
}

static struct batch rows_of(const struct reference *r, int64_t seq_len, int64_t row)
{
    int64_t at = row * seq_len;
    return (struct batch){
        .ids = r->ids + at,
        .targets = r->targets + at,
        .positions = r->positions != NULL ? r->positions + at : NULL,
        .segments = r->segments != NULL ? r->segments + at : NULL,
    };
}

static void check_numbers(const char *what, const struct golden *golden, const struct precision *p,
                          const void *got, const double *want, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double x = solo_number(p->dtype, got, i);
        if (!(fabs(x - want[i]) <= p->activations * fmax(1.0, fabs(want[i]))))
            fail_msg("%s %s: %s[%lld] is %.9g, not %.9g", golden->name, p->backend, what,
                     (long long)i, x, want[i]);
    }
}

/* ---- forward only -----------------------------------------------------------------------------
 */

static void check_logits(size_t i, const struct precision *p)
{
    const struct golden *golden = cases[i].batch;
    ModelConfig *config = read_config(cases[i].weights);
    struct reference r = reference_open(golden);
    struct solo s;
    open_case(&s, i, p, REFERENCE_ROWS, false, config);
    struct batch batch = rows_of(&r, golden->seq_len, 0);
    batch.targets = NULL;
    solo_run(&s, &batch, 0.0);
    int64_t n = REFERENCE_ROWS * golden->seq_len * config->vocab_size;
    double *want = reference_read(&r, "logits", n);
    check_numbers("logits", golden, p, model_logits(s.model), want, n);
    free(want);
    solo_close(&s);
    reference_close(&r);
    model_config__free_unpacked(config, NULL);
}

static void logits_equal_the_reference_in_fp64(void **state)
{
    (void)state;
    for (size_t i = 0; i < NUM_CASES; i++)
        check_logits(i, &fp64);
}

static void logits_equal_the_reference_in_fp32(void **state)
{
    (void)state;
    for (size_t i = 0; i < NUM_CASES; i++) {
        check_logits(i, &fp32_ref);
        check_logits(i, &fp32_cpu);
    }
}

/* ---- forward and backward ---------------------------------------------------------------------
 */

/* hidden.0 is the embedding, hidden.l the output of block l; the last one of the file is behind the
 * final norm. */
static void check_hidden(const struct solo *s, const struct reference *r, size_t i, int64_t row,
                         const struct precision *p, const ModelConfig *config)
{
    int64_t n = cases[i].batch->seq_len * config->hidden_size;
    for (int32_t l = 0; l < config->num_hidden_layers; l++) {
        char name[32];
        snprintf(name, sizeof(name), "hidden.%d", l);
        double *want = reference_read(r, name, REFERENCE_ROWS * n);
        check_numbers(name, cases[i].batch, p, model_residual(s->model, l), want + row * n, n);
        free(want);
    }
}

/* The bias of keys moves all scores of a query alike, and softmax is blind to that: in GPT-2's
 * fused vector that third is zero in theory. */
static void check_fused_bias(const char *name, const struct precision *p, const double *got,
                             const double *want, int64_t numel)
{
    int64_t third = numel / 3;
    for (int64_t i = third; i < 2 * third; i++)
        if (!(fabs(got[i] - want[i]) <= p->zero))
            fail_msg("%s[%lld] is %.3g, not %.3g", name, (long long)i, got[i], want[i]);
    for (int part = 0; part < 3; part += 2) {
        double off = reference_off(got + part * third, want + part * third, third);
        if (!(off <= p->grad))
            fail_msg("%s: part %d is off by %.2e", name, part, off);
    }
}

static void check_grad(const struct solo *s, const struct reference *r, const struct param *param,
                       const struct golden *golden, const struct precision *p)
{
    char name[PARAM_NAME_MAX + 8];
    snprintf(name, sizeof(name), "grad.%s", param->name);
    double *want = reference_read(r, name, param->numel);
    double *got = malloc((size_t)param->numel * sizeof(*got));
    assert_non_null(got);
    for (int64_t i = 0; i < param->numel; i++)
        got[i] = solo_number(p->dtype, s->grads, param->offset + i);
    double off = reference_off(got, want, param->numel);
    if (param->role == ROLE_QKV_BIAS)
        check_fused_bias(name, p, got, want, param->numel);
    else if (!(off <= p->grad))
        fail_msg("%s %s: %s: off by %.2e", golden->name, p->backend, name, off);
    free(got);
    free(want);
}

/* Row by row, as micro-batches of one: their targets may be unequal in number, and still the loss
 * is sum / count of all. */
static void check_training(size_t i, const struct precision *p)
{
    const struct golden *golden = cases[i].batch;
    ModelConfig *config = read_config(cases[i].weights);
    struct reference r = reference_open(golden);
    struct solo s;
    open_case(&s, i, p, 1, true, config);
    for (int64_t row = 0; row < REFERENCE_ROWS; row++) {
        struct batch batch = rows_of(&r, golden->seq_len, row);
        solo_run(&s, &batch, 1.0 / (double)r.num_targets);
        check_hidden(&s, &r, i, row, p, config);
    }
    double *want = reference_read(&r, "loss_f64", 1);
    double loss = *s.loss / (double)r.num_targets;
    if (!(fabs(loss / want[0] - 1.0) < p->loss))
        fail_msg("%s %s: loss is %.17g, not %.17g", golden->name, p->backend, loss, want[0]);
    free(want);
    assert_true(s.table.num_params > 0);
    for (int32_t j = 0; j < s.table.num_params; j++)
        check_grad(&s, &r, &s.table.params[j], golden, p);
    solo_close(&s);
    reference_close(&r);
    model_config__free_unpacked(config, NULL);
}

static void loss_and_gradients_equal_the_reference_in_fp64(void **state)
{
    (void)state;
    for (size_t i = 0; i < NUM_CASES; i++)
        check_training(i, &fp64);
}

static void loss_and_gradients_equal_the_reference_in_fp32(void **state)
{
    (void)state;
    for (size_t i = 0; i < NUM_CASES; i++) {
        check_training(i, &fp32_ref);
        check_training(i, &fp32_cpu);
    }
}

/* A position that doesn't begin anew in each document shows where positions are learned; under RoPE
 * only the segments do. */
static void packed_documents_do_not_see_each_other(void **state)
{
    (void)state;
    for (size_t i = 0; i < NUM_CASES; i++) {
        if (cases[i].batch != &golden_packed && cases[i].batch != &golden_packed_gpt2)
            continue;
        ModelConfig *config = read_config(cases[i].weights);
        struct reference r = reference_open(cases[i].batch);
        struct solo s;
        open_case(&s, i, &fp64, REFERENCE_ROWS, false, config);
        int64_t n = REFERENCE_ROWS * cases[i].batch->seq_len * config->vocab_size;
        double *want = reference_read(&r, "logits", n);
        for (int without = 0; without < 2; without++) {
            struct batch batch = rows_of(&r, cases[i].batch->seq_len, 0);
            *(without == 0 ? &batch.segments : &batch.positions) = NULL;
            batch.targets = NULL;
            solo_run(&s, &batch, 0.0);
            double off = reference_off(model_logits(s.model), want, n);
            bool sees = without == 0 || config->model_type[0] == 'g';
            assert_true(sees ? off > 1e-3 : off < 1e-6);
        }
        free(want);
        solo_close(&s);
        reference_close(&r);
        model_config__free_unpacked(config, NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_equal_the_reference_in_fp64),
        cmocka_unit_test(logits_equal_the_reference_in_fp32),
        cmocka_unit_test(loss_and_gradients_equal_the_reference_in_fp64),
        cmocka_unit_test(loss_and_gradients_equal_the_reference_in_fp32),
        cmocka_unit_test(packed_documents_do_not_see_each_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
