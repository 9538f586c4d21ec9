/* Runs that go wrong must show: a NaN that goes in comes out. And what the fast exponential does at
 * its ends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/parity/ops_run.h"

static struct error last;

static bool has_nan(const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (isnan(x[i])) {
            return true;
        }
    }
    return false;
}

static void a_nan_comes_through_matrix_products(void **state)
{
    (void)state;
    struct side x = side_open("cpu", 2);
    enum { N = 70 };
    float *a = side_draw(&x, DTYPE_F32, N * N, 1, 1);
    float *b = side_draw(&x, DTYPE_F32, N * N, 2, 1);
    float *c = side_poison(&x, DTYPE_F32, N * N);
    struct gemm_args g = {
        .m = N, .n = N, .k = N, .alpha = 1, .a = a, .lda = N, .b = b, .ldb = N, .c = c, .ldc = N};
    a[5 * N + 9] = NAN;
    assert_int_equal(x.k->gemm(x.dev, x.s, DTYPE_F32, &g, &last), 0);
    assert_true(isnan(c[5 * N]) && isnan(c[5 * N + N - 1]));
    assert_false(has_nan(c, 5 * N));
    side_close(&x);
}

static void a_nan_comes_through_norms_and_activations(void **state)
{
    (void)state;
    struct side x = side_open("cpu", 2);
    enum { R = 3, D = 37, N = R * D };
    float *in = side_draw(&x, DTYPE_F32, N, 1, 1);
    float *w = side_draw(&x, DTYPE_F32, D, 2, 1);
    float *y = side_zeros(&x, DTYPE_F32, N);
    float rstd[R];
    in[D + 2] = NAN;
    assert_int_equal(x.k->rmsnorm_fwd(x.dev, x.s, DTYPE_F32, y, rstd, in, w, R, D, 1e-5, &last), 0);
    assert_true(isnan(rstd[1]) && isnan(y[D]) && !isnan(y[0]));
    assert_int_equal(x.k->swiglu_fwd(x.dev, x.s, DTYPE_F32, y, in, in, N, &last), 0);
    assert_true(isnan(y[D + 2]) && !isnan(y[D + 1]));
    double sum = 0;
    struct span all = {0, N};
    assert_int_equal(x.k->sum_squares(x.dev, x.s, DTYPE_F32, &sum, in, &all, 1, &sum, &last), 0);
    assert_true(isnan(sum));
    side_close(&x);
}

static void a_nan_comes_through_layer_norm_gelu_and_biases(void **state)
{
    (void)state;
    struct side x = side_open("cpu", 2);
    enum { R = 3, D = 37, N = R * D };
    float *in = side_draw(&x, DTYPE_F32, N, 1, 1);
    float *w = side_draw(&x, DTYPE_F32, D, 2, 1);
    float *y = side_zeros(&x, DTYPE_F32, N);
    float sum[D] = {0};
    float mean[R];
    float rstd[R];
    in[D + 2] = NAN;
    assert_int_equal(
        x.k->layernorm_fwd(x.dev, x.s, DTYPE_F32, y, mean, rstd, in, w, w, R, D, 1e-5, &last), 0);
    assert_true(isnan(mean[1]) && isnan(rstd[1]) && isnan(y[D]) && !isnan(y[0]));
    assert_int_equal(x.k->gelu_fwd(x.dev, x.s, DTYPE_F32, y, in, N, &last), 0);
    assert_true(isnan(y[D + 2]) && !isnan(y[D + 1]));
    assert_int_equal(x.k->gelu_bwd(x.dev, x.s, DTYPE_F32, y, w, in, D + 3, &last), 0);
    assert_true(isnan(y[D + 2]) && !isnan(y[D + 1]));
    assert_int_equal(x.k->column_sum(x.dev, x.s, DTYPE_F32, sum, in, R, D, &last), 0);
    assert_true(isnan(sum[2]) && !isnan(sum[1]));
    assert_int_equal(x.k->add_bias(x.dev, x.s, DTYPE_F32, y, sum, 1, D, &last), 0);
    assert_true(isnan(y[2]) && !isnan(y[1]));
    side_close(&x);
}

/* Each rank has its maximum without the NaN; the sum of the rank that has it is one. */
static void a_nan_comes_through_a_cut_vocabulary(void **state)
{
    (void)state;
    static const char *const backends[] = {"ref", "cpu"};
    enum { V = 333 };
    for (int i = 0; i < 2; i++) {
        struct side x = side_open(backends[i], 1);
        float *logits = side_draw(&x, DTYPE_F32, V, 1, 1);
        int32_t target = 7;
        double max;
        double sums[2];
        double nll;
        struct logits_part part = {logits, 1, V, V, 0, &target};
        logits[200] = NAN;
        assert_int_equal(x.k->ce_max(x.dev, x.s, DTYPE_F32, &max, &part, &last), 0);
        assert_int_equal(x.k->ce_sum(x.dev, x.s, DTYPE_F32, sums, &max, &part, &last), 0);
        assert_true(isnan(sums[0]));
        assert_int_equal(
            x.k->ce_finish(x.dev, x.s, DTYPE_F32, &nll, logits, &max, sums, 1, &part, &last), 0);
        assert_true(isnan(nll) && isnan(logits[0]) && isnan(logits[7]));
        side_close(&x);
    }
}

/* A rank behind the end of the vocabulary has no column: the least maximum, and nothing to add. A
 * row whose target is ignored has neither, whatever its logits. */
static void a_part_without_columns_adds_nothing(void **state)
{
    (void)state;
    static const char *const backends[] = {"ref", "cpu"};
    for (int i = 0; i < 2; i++) {
        struct side x = side_open(backends[i], 1);
        float logits[4] = {NAN, NAN, NAN, INFINITY};
        float dlogits[4] = {1, 1, 1, 1};
        int32_t targets[2] = {5, -100};
        double max[2];
        double sums[4];
        double nll[2];
        struct logits_part none = {logits, 2, 2, 0, 8, targets};
        assert_int_equal(x.k->ce_max(x.dev, x.s, DTYPE_F32, max, &none, &last), 0);
        assert_true(max[0] == -INFINITY && max[1] == 0);
        max[0] = 3;
        assert_int_equal(x.k->ce_sum(x.dev, x.s, DTYPE_F32, sums, max, &none, &last), 0);
        assert_true(sums[0] == 0 && sums[1] == 0 && sums[2] == 0 && sums[3] == 0);
        struct logits_part all = {logits, 2, 2, 2, 0, targets};
        sums[0] = 2;
        sums[2] = 1;
        assert_int_equal(
            x.k->ce_finish(x.dev, x.s, DTYPE_F32, nll, dlogits, max, sums, 1, &all, &last), 0);
        assert_true(fabs(nll[0] - (log(2) + 2)) < 1e-15 && nll[1] == 0);
        assert_true(isnan(dlogits[0]) && dlogits[2] == 0 && dlogits[3] == 0);
        assert_int_equal(
            x.k->ce_finish(x.dev, x.s, DTYPE_F32, nll, dlogits, max, sums, 1, &none, &last), 0);
        assert_true(dlogits[0] == 0 && dlogits[1] == 0 && nll[1] == 0);
        side_close(&x);
    }
}

/* A maximum forgets NaNs; the sum behind it must not. */
static void a_nan_comes_through_the_loss(void **state)
{
    (void)state;
    struct side x = side_open("cpu", 1);
    enum { V = 333 };
    for (int at = 0; at < V; at += 83) {
        float *logits = side_draw(&x, DTYPE_F32, V, 1, 1);
        float *dlogits = side_zeros(&x, DTYPE_F32, V);
        double nll = 0;
        int32_t target = 100;
        logits[at] = NAN;
        assert_int_equal(x.k->cross_entropy(x.dev, x.s, DTYPE_F32, &nll, dlogits, logits, &target,
                                            1, 1, V, V, &last),
                         0);
        assert_true(isnan(nll));
        assert_true(isnan(dlogits[0]) && isnan(dlogits[V - 1]));
    }
    side_close(&x);
}

static void a_nan_comes_through_attention(void **state)
{
    (void)state;
    struct side x = side_open("cpu", 2);
    struct shape s = {.b = 1, .t = 90, .h = 2, .kv = 1, .e = 16};
    int64_t num_q = s.t * s.h * s.e;
    int64_t num_k = s.t * s.e;
    float *k = side_draw(&x, DTYPE_F32, num_k, 2, 1);
    float *o = side_zeros(&x, DTYPE_F32, num_q);
    k[70 * s.e + 3] = NAN;
    struct attention_args a = {
        .b = s.b,
        .t = s.t,
        .h = s.h,
        .kv = s.kv,
        .e = s.e,
        .scale = 0.25,
        .q = side_draw(&x, DTYPE_F32, num_q, 1, 1),
        .k = k,
        .v = side_draw(&x, DTYPE_F32, num_k, 3, 1),
        .o = o,
        .lse = side_zeros(&x, DTYPE_F32, s.h * s.t),
        .workspace = x.dev->ops->alloc(
            x.dev, x.k->attention_workspace(x.dev, DTYPE_F32, s.b, s.t, s.h, s.kv, s.e),
            MEM_DEVICE),
    };
    assert_int_equal(x.k->attention_fwd(x.dev, x.s, DTYPE_F32, &a, &last), 0);
    assert_false(has_nan(o, 64 * s.h * s.e));
    assert_true(isnan(o[70 * s.h * s.e]) && isnan(o[89 * s.h * s.e + s.e]));
    side_close(&x);
}

/* silu(g) = g / (1 + e^-g): each value within a few ulps, from one end of e^x to the other. */
static void the_exponential_is_right_to_the_last_bits(void **state)
{
    (void)state;
    struct side x = side_open("cpu", 1);
    enum { N = 200001 };
    float *gate = side_zeros(&x, DTYPE_F32, N);
    float *up = side_zeros(&x, DTYPE_F32, N);
    float *y = side_zeros(&x, DTYPE_F32, N);
    for (int i = 0; i < N; i++) {
        gate[i] = (float)((i - N / 2) * (80.0 / (N / 2)));
        up[i] = 1;
    }
    assert_int_equal(x.k->swiglu_fwd(x.dev, x.s, DTYPE_F32, y, gate, up, N, &last), 0);
    double worst = 0;
    for (int i = 0; i < N; i++) {
        double g = (double)gate[i];
        double want = g / (1 + exp(-g));
        double ulp = fmax(ldexp(fabs(want), -23), 1e-44);
        worst = fmax(worst, fabs((double)y[i] - want) / ulp);
    }
    assert_true(worst < 3);
    side_close(&x);
}

static void far_out_the_exponential_saturates(void **state)
{
    (void)state;
    struct side x = side_open("cpu", 1);
    float gate[] = {-1e30f, -200, -88.5f, 88.5f, 200, 1e30f};
    float up[] = {1, 1, 1, 1, 1, 1};
    float y[6];
    assert_int_equal(x.k->swiglu_fwd(x.dev, x.s, DTYPE_F32, y, gate, up, 6, &last), 0);
    assert_true(y[0] == 0 && y[1] == 0 && y[2] == 0);
    assert_true(y[3] == 88.5f && y[4] == 200 && y[5] == 1e30f);
    side_close(&x);
}

/* Where x^3 overflows the value is x or 0, the slope 1 or 0. */
static void far_out_gelu_is_the_identity_or_nothing(void **state)
{
    (void)state;
    static const enum dtype types[] = {DTYPE_F32, DTYPE_F64};
    static const double at[] = {-1e30, -200, -25, 25, 200, 1e30};
    struct side x = side_open("cpu", 1);
    for (int i = 0; i < 2; i++) {
        struct outputs out = {0};
        double ones[] = {1, 1, 1, 1, 1, 1};
        void *in = side_upload(&x, types[i], at, 6);
        void *dy = side_upload(&x, types[i], ones, 6);
        void *y = side_poison(&x, types[i], 6);
        assert_int_equal(x.k->gelu_fwd(x.dev, x.s, types[i], y, in, 6, &last), 0);
        assert_int_equal(x.k->gelu_bwd(x.dev, x.s, types[i], dy, dy, in, 6, &last), 0);
        side_output(&x, types[i], y, 6, &out);
        side_output(&x, types[i], dy, 6, &out);
        side_output(&x, types[i], in, 6, &out);
        for (int j = 0; j < 6; j++) {
            assert_true(out.value[0][j] == (j < 3 ? 0 : out.value[2][j]));
            assert_true(fabs(out.value[1][j] - (j < 3 ? 0 : 1)) < 1e-30);
        }
        outputs_free(&out);
    }
    side_close(&x);
}

/* An unknown backend is an error of who asked, with the known ones in the text. */
static void an_unknown_backend_is_refused(void **state)
{
    (void)state;
    struct device *dev;
    const struct kernels *k;
    struct error err = {0};
    assert_int_equal(kernels_open(&(struct kernels_options){"gpu", 1, 0}, &dev, &k, &err), -1);
    assert_int_equal(err.code, ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "cpu"));
    assert_int_equal(kernels_open(&(struct kernels_options){"cpu", 0, 0}, &dev, &k, &err), -1);
    assert_int_equal(err.code, ERR_INVALID_ARGUMENT);
}

/* bf16 rounds to the nearest, ties to even, and keeps infinities and NaNs. */
static void casts_round_to_nearest_even(void **state)
{
    (void)state;
    struct side x = side_open("cpu", 2);
    static const float in[] = {1,   1.00390625f, 1.01171875f,   -2.5f,
                               NAN, INFINITY,    3.3895314e38f, 0.1f};
    static const uint16_t want[] = {0x3F80, 0x3F80, 0x3F82, 0xC020, 0, 0x7F80, 0x7F7F, 0x3DCD};
    uint16_t got[8];
    float back[8];
    double wide[8];
    assert_int_equal(x.k->cast(x.dev, x.s, got, DTYPE_BF16, in, DTYPE_F32, 8, &last), 0);
    assert_int_equal(x.k->cast(x.dev, x.s, back, DTYPE_F32, got, DTYPE_BF16, 8, &last), 0);
    assert_int_equal(x.k->cast(x.dev, x.s, wide, DTYPE_F64, in, DTYPE_F32, 8, &last), 0);
    for (int i = 0; i < 8; i++) {
        if (i == 4) {
            assert_true(isnan(back[i]) && isnan(wide[i]));
        } else {
            assert_int_equal(got[i], want[i]);
            assert_true(wide[i] == (double)in[i]);
        }
    }
    assert_true(back[3] == -2.5f);
    assert_int_equal(x.k->cast(x.dev, x.s, got, DTYPE_I32, in, DTYPE_F32, 8, &last), -1);
    assert_int_equal(last.code, ERR_UNIMPLEMENTED);
    side_close(&x);
}

static double clip_scale(const struct side *x, double squares, double max_norm)
{
    double words[3] = {squares};
    assert_int_equal(x->k->clip(x->dev, x->s, &words[1], &words[2], &words[0], max_norm, &last), 0);
    assert_true(words[1] == sqrt(squares) || isnan(squares));
    return words[2];
}

/* 0 = off; a norm that isn't finite is no number to multiply by, clipped or not. */
static void clipping_only_ever_shrinks(void **state)
{
    (void)state;
    struct side x = side_open("cpu", 1);
    assert_true(clip_scale(&x, 0.25, 1.0) == 1.0);
    assert_true(clip_scale(&x, 0.0, 1.0) == 1.0);
    assert_true(clip_scale(&x, 16.0, 1.0) == 1.0 / (4.0 + 1e-6));
    assert_true(clip_scale(&x, 1e18, 0.0) == 1.0);
    assert_true(isnan(clip_scale(&x, INFINITY, 1.0)) && isnan(clip_scale(&x, INFINITY, 0.0)));
    assert_true(isnan(clip_scale(&x, NAN, 1.0)) && isnan(clip_scale(&x, NAN, 0.0)));
    side_close(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_nan_comes_through_matrix_products),
        cmocka_unit_test(a_nan_comes_through_norms_and_activations),
        cmocka_unit_test(a_nan_comes_through_layer_norm_gelu_and_biases),
        cmocka_unit_test(a_nan_comes_through_the_loss),
        cmocka_unit_test(a_nan_comes_through_a_cut_vocabulary),
        cmocka_unit_test(a_part_without_columns_adds_nothing),
        cmocka_unit_test(a_nan_comes_through_attention),
        cmocka_unit_test(the_exponential_is_right_to_the_last_bits),
        cmocka_unit_test(far_out_the_exponential_saturates),
        cmocka_unit_test(far_out_gelu_is_the_identity_or_nothing),
        cmocka_unit_test(an_unknown_backend_is_refused),
        cmocka_unit_test(casts_round_to_nearest_even),
        cmocka_unit_test(clipping_only_ever_shrinks),
    };
    return cmocka_run_group_tests_name("op faults", tests, NULL, NULL);
}
