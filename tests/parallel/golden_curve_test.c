/* The trainer against Hugging Face's own curves: 20 steps of every reference case, over layouts.
 *
 * fp64 on ref must agree to 1e-10, whatever the layout; fp32 on cpu to fp32's own rounding. The
 * larger cases take ref minutes: a sample of them runs by default, all with TANDEM_FULL=1. Under
 * sanitizers (TANDEM_SAMPLE=1) one layout of the small cases runs: the one with most ranks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gang.h"

#define F64_TOLERANCE 1e-10
#define F32_LOSS_TOLERANCE 2e-6
#define F32_NORM_TOLERANCE 5e-6

static bool is_set(const char *name)
{
    const char *word = getenv(name);
    return word != NULL && strcmp(word, "0") != 0;
}

static bool full(void)
{
    return is_set("TANDEM_FULL");
}

static void check_close(const char *what, int64_t step, double got, double want, double tolerance)
{
    if (!(fabs(got - want) <= tolerance * fabs(want)))
        fail_msg("step %lld: %s %.17g, reference %.17g, off by %.2e", (long long)step, what, got,
                 want, fabs(got / want - 1.0));
}

static void check_curve(const struct gang_spec *spec, double loss_tolerance, double norm_tolerance)
{
    double loss[GOLDEN_STEPS], norm[GOLDEN_STEPS], lr[GOLDEN_STEPS];
    golden_curve(spec->golden, "loss_f64", loss);
    golden_curve(spec->golden, "grad_norm_f64", norm);
    golden_curve(spec->golden, "lr", lr);
    struct gang g = {.plan = gang_plan(spec)};
    gang_run_well(&g);
    assert_int_equal(g.num_steps, GOLDEN_STEPS);
    assert_int_equal(g.first_step, 1);
    int64_t batch_tokens = spec->golden->batch * spec->golden->seq_len;
    for (int64_t i = 0; i < GOLDEN_STEPS; i++) {
        const StepMetrics *m = &g.steps[i];
        check_close("loss", i + 1, m->loss, loss[i], loss_tolerance);
        check_close("grad_norm", i + 1, m->grad_norm, norm[i], norm_tolerance);
        check_close("lr", i + 1, m->lr, lr[i], 1e-15);
        assert_int_equal(m->tokens, (i + 1) * batch_tokens);
        assert_true(m->has_mfu == (g.plan->peak_flops > 0.0) && m->step_ms > 0.0);
    }
    plan__free_unpacked((Plan *)g.plan, NULL);
}

/* Every micro-batch size that divides a rank's share. `sampled`: only the first and the last one
 * unless all are asked for. */
static void check_layouts(const struct golden *golden, const char *backend, const int64_t *sizes,
                          size_t num, bool sampled)
{
    bool ref = strcmp(backend, "ref") == 0, sample = is_set("TANDEM_SAMPLE");
    if (sample && golden->batch > 4)
        return;
    for (size_t i = sample ? num - 1 : 0; i < num; i++) {
        int64_t share = golden->batch / sizes[i];
        for (int64_t micro = 1; micro <= share; micro++) {
            if (share % micro != 0 || (sampled && !full() && micro != 1 && micro != share))
                continue;
            struct gang_spec spec = {
                .golden = golden,
                .data = sizes[i],
                .micro = micro,
                .backend = backend,
                .precision = ref ? "fp64" : "fp32",
            };
            print_message("%s %s data %lld micro %lld\n", golden->name, backend,
                          (long long)sizes[i], (long long)micro);
            check_curve(&spec, ref ? F64_TOLERANCE : F32_LOSS_TOLERANCE,
                        ref ? F64_TOLERANCE : F32_NORM_TOLERANCE);
        }
    }
}

#define CHECK_LAYOUTS(golden, backend, sampled, ...)                                               \
    do {                                                                                           \
        const int64_t sizes[] = {__VA_ARGS__};                                                     \
        check_layouts(golden, backend, sizes, sizeof(sizes) / sizeof(sizes[0]), sampled);          \
    } while (0)

static void llama_tiny_follows_the_reference_in_fp64(void **state)
{
    (void)state;
    CHECK_LAYOUTS(&golden_tiny, "ref", false, 1, 2, 4);
}

/* Tied embeddings: both uses of the matrix count once. RoPE with llama3's scaling. */
static void llama_tied_follows_the_reference_in_fp64(void **state)
{
    (void)state;
    CHECK_LAYOUTS(&golden_tied, "ref", false, 1, 2);
}

static void llama_deep_follows_the_reference_in_fp64(void **state)
{
    (void)state;
    if (full())
        CHECK_LAYOUTS(&golden_deep, "ref", false, 1, 4, 8);
    else
        CHECK_LAYOUTS(&golden_deep, "ref", true, 8);
}

/* Sizes that are no powers of two. */
static void llama_deep_tied_follows_the_reference_in_fp64(void **state)
{
    (void)state;
    if (full())
        CHECK_LAYOUTS(&golden_deep_tied, "ref", false, 3, 6);
    else
        CHECK_LAYOUTS(&golden_deep_tied, "ref", true, 3);
}

static void llama_tiny_follows_the_reference_in_fp32(void **state)
{
    (void)state;
    CHECK_LAYOUTS(&golden_tiny, "cpu", false, 1, 2, 4);
}

static void llama_tied_follows_the_reference_in_fp32(void **state)
{
    (void)state;
    CHECK_LAYOUTS(&golden_tied, "cpu", false, 1, 2);
}

static void llama_deep_follows_the_reference_in_fp32(void **state)
{
    (void)state;
    CHECK_LAYOUTS(&golden_deep, "cpu", false, 1, 4, 8);
}

static void llama_deep_tied_follows_the_reference_in_fp32(void **state)
{
    (void)state;
    CHECK_LAYOUTS(&golden_deep_tied, "cpu", false, 3, 6);
}

/* golden_curve_test [PATTERN]: only the tests whose names fit it. */
int main(int argc, char **argv)
{
    gang_quiet();
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llama_tiny_follows_the_reference_in_fp64),
        cmocka_unit_test(llama_tied_follows_the_reference_in_fp64),
        cmocka_unit_test(llama_deep_follows_the_reference_in_fp64),
        cmocka_unit_test(llama_deep_tied_follows_the_reference_in_fp64),
        cmocka_unit_test(llama_tiny_follows_the_reference_in_fp32),
        cmocka_unit_test(llama_tied_follows_the_reference_in_fp32),
        cmocka_unit_test(llama_deep_follows_the_reference_in_fp32),
        cmocka_unit_test(llama_deep_tied_follows_the_reference_in_fp32),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
