/* What is done to each number, pair or column by itself: activations, sums, casts, biases, what a
 * product leaves to do, rotary positions. */
#include "tests/cusim/numbers.h"

static const int64_t sizes[] = {1, 7, 256, 2049, 4101};
#define NUM_SIZES (int)(sizeof sizes / sizeof *sizes)

/* ---- activations ---- */

static void check_swiglu(enum dtype t, int64_t n, bool alias, size_t skip)
{
    cudaStream_t s = stream_open();
    const struct kernels *k = kernels_ref();
    struct numbers gate = numbers_draw(s, t, n, 1, false, skip);
    struct numbers up = numbers_draw(s, t, n, 2, false, skip);
    struct numbers dy = numbers_draw(s, t, n, 3, false, skip);
    struct numbers y = numbers_none(s, t, n, skip);
    struct numbers dgate = alias ? gate : numbers_none(s, t, n, skip);
    struct numbers dup = alias ? up : numbers_none(s, t, n, 0);
    MUST(cuda_swiglu_fwd(s, t, y.device, gate.device, up.device, n));
    MUST(cuda_swiglu_bwd(s, t, dgate.device, dup.device, dy.device, gate.device, up.device, n));
    AGREES(k->swiglu_fwd(ref, ref_stream, DTYPE_F64, y.ref, gate.ref, up.ref, n, &err));
    AGREES(k->swiglu_bwd(ref, ref_stream, DTYPE_F64, dgate.ref, dup.ref, dy.ref, gate.ref, up.ref,
                         n, &err));
    numbers_agree(s, "y", &y, allowed(t));
    numbers_agree(s, "dgate", &dgate, allowed(t));
    numbers_agree(s, "dup", &dup, allowed(t));
    if (!alias) {
        numbers_free(&dgate);
        numbers_free(&dup);
    }
    numbers_free(&gate);
    numbers_free(&up);
    numbers_free(&dy);
    numbers_free(&y);
    MUST(cudaStreamDestroy(s));
}

static void check_gelu(enum dtype t, int64_t n, int alias, size_t skip)
{
    cudaStream_t s = stream_open();
    const struct kernels *k = kernels_ref();
    struct numbers x = numbers_draw(s, t, n, 1, false, skip);
    struct numbers keep = numbers_draw(s, t, n, 1, false, skip);
    struct numbers dy = numbers_draw(s, t, n, 3, false, skip);
    struct numbers y = alias ? keep : numbers_none(s, t, n, skip);
    struct numbers dx = alias == 1 ? dy : alias == 2 ? x : numbers_none(s, t, n, skip);
    MUST(cuda_gelu_fwd(s, t, y.device, alias ? keep.device : x.device, n));
    MUST(cuda_gelu_bwd(s, t, dx.device, dy.device, x.device, n));
    AGREES(k->gelu_fwd(ref, ref_stream, DTYPE_F64, y.ref, alias ? keep.ref : x.ref, n, &err));
    AGREES(k->gelu_bwd(ref, ref_stream, DTYPE_F64, dx.ref, dy.ref, x.ref, n, &err));
    numbers_agree(s, "y", &y, allowed(t));
    numbers_agree(s, "dx", &dx, allowed(t));
    if (!alias) {
        numbers_free(&y);
        numbers_free(&dx);
    }
    numbers_free(&x);
    numbers_free(&keep);
    numbers_free(&dy);
    MUST(cudaStreamDestroy(s));
}

static void activations_agree_with_the_reference(void **state)
{
    (void)state;
    for (int i = 0; i < NUM_SCHEDULES; i++) {
        schedule_take(i);
        for (int j = 0; j < NUM_SIZES; j++) {
            enum dtype t = (i + j) % 2 ? DTYPE_BF16 : DTYPE_F32;
            size_t skip = i % 3 ? 0 : dtype_size(t);
            check_swiglu(t, sizes[j], i % 2, skip);
            check_gelu(t, sizes[j], i % 3, skip);
        }
    }
}

/* Far out they are 0 or x, and their slopes 0 or 1: nothing overflows on the way, and what isn't
 * finite shows. */
static void activations_of_large_numbers_stay_finite(void **state)
{
    (void)state;
    schedule_take(0);
    static const float x[] = {-1e30f, -1000, -100, -88.5f, -60,  -20,  20,
                              60,     88.5f, 100,  1000,   1e5f, 1e30f};
    enum { N = sizeof x / sizeof *x };
    float one[N], got[4 * N], nan[2] = {NAN, INFINITY};
    for (int i = 0; i < N; i++) {
        one[i] = 1;
    }
    cudaStream_t s = stream_open();
    float *in = side_put(s, x, sizeof x);
    float *ones = side_put(s, one, sizeof one);
    float *out = side_put(s, NULL, sizeof got);
    MUST(cuda_gelu_fwd(s, DTYPE_F32, out, in, N));
    MUST(cuda_gelu_bwd(s, DTYPE_F32, out + N, ones, in, N));
    MUST(cuda_swiglu_fwd(s, DTYPE_F32, out + 2 * N, in, ones, N));
    MUST(cuda_swiglu_bwd(s, DTYPE_F32, out + 3 * N, ones, ones, in, ones, N));
    side_get(s, got, out, sizeof got);
    for (int i = 0; i < 4 * N; i++) {
        float want = x[i % N] < 0 ? 0 : i / N % 2 ? 1 : x[i % N];
        if (!(fabsf(got[i] - want) <= 1e-6f * fmaxf(want, 1))) {
            fail_msg("%d of %g: want %g, got %g", i / N, (double)x[i % N], (double)want,
                     (double)got[i]);
        }
    }
    side_free(in, 0);
    in = side_put(s, nan, sizeof nan);
    MUST(cuda_gelu_fwd(s, DTYPE_F32, out, in, 1));
    MUST(cuda_gelu_bwd(s, DTYPE_F32, out + 1, ones, in, 1));
    MUST(cuda_swiglu_fwd(s, DTYPE_F32, out + 2, in, ones, 1));
    MUST(cuda_gelu_fwd(s, DTYPE_F32, out + 3, in + 1, 1));
    side_get(s, got, out, 4 * sizeof(float));
    assert_true(isnan(got[0]) && isnan(got[1]) && isnan(got[2]) && isinf(got[3]));
    side_free(in, 0);
    side_free(ones, 0);
    side_free(out, 0);
    MUST(cudaStreamDestroy(s));
}

/* ---- sums, multiples ---- */

static void sums_and_multiples_agree_with_the_reference(void **state)
{
    (void)state;
    static const enum dtype types[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F64};
    const struct kernels *k = kernels_ref();
    for (int i = 0; i < NUM_SCHEDULES; i++) {
        schedule_take(i);
        for (int j = 0; j < NUM_SIZES; j++) {
            enum dtype t = types[(i + j) % 3];
            cudaStream_t s = stream_open();
            int64_t n = sizes[j];
            struct numbers a = numbers_draw(s, t, n, 1, false, dtype_size(t) * (size_t)(i % 2));
            struct numbers b = numbers_draw(s, t, n, 2, false, 0);
            struct numbers y = i % 3 ? i % 3 == 1 ? a : b : numbers_none(s, t, n, 0);
            MUST(cuda_add(s, t, y.device, a.device, b.device, n));
            MUST(cuda_scale(s, t, y.device, 0.37, n));
            AGREES(k->add(ref, ref_stream, DTYPE_F64, y.ref, a.ref, b.ref, n, &err));
            AGREES(k->scale(ref, ref_stream, DTYPE_F64, y.ref, 0.37, n, &err));
            numbers_agree(s, "y", &y, allowed(t));
            if (i % 3 == 0) {
                numbers_free(&y);
            }
            numbers_free(&a);
            numbers_free(&b);
            MUST(cudaStreamDestroy(s));
        }
    }
}

/* 0 times a NaN is one: what isn't finite must not get lost. */
static void a_multiple_by_zero_keeps_what_is_not_finite(void **state)
{
    (void)state;
    schedule_take(0);
    double x[3] = {(double)NAN, (double)INFINITY, 7};
    cudaStream_t s = stream_open();
    void *device = side_put(s, x, sizeof x);
    MUST(cuda_scale(s, DTYPE_F64, device, 0, 3));
    side_get(s, x, device, sizeof x);
    assert_true(isnan(x[0]) && isnan(x[1]) && x[2] == 0);
    side_free(device, 0);
    MUST(cudaStreamDestroy(s));
}

/* ---- casts ---- */

/* All pairs of types give the bits that the host's casts give: the narrower type's nearest. */
static void casts_round_as_the_host_does(void **state)
{
    (void)state;
    static const enum dtype types[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F64};
    for (int i = 0; i < 9 * 3; i++) {
        schedule_take(i % NUM_SCHEDULES);
        enum dtype from = types[i % 3];
        enum dtype to = types[i / 3 % 3];
        int64_t n = sizes[2 + i % 3];
        cudaStream_t s = stream_open();
        struct numbers x = numbers_draw(s, from, n, 5, false, i < 9 ? 0 : dtype_size(from));
        void *dst = side_put(s, NULL, (size_t)n * dtype_size(to));
        void *want = malloc((size_t)n * dtype_size(to));
        void *got = malloc((size_t)n * dtype_size(to));
        void *in = malloc((size_t)n * dtype_size(from));
        side_get(s, in, x.device, (size_t)n * dtype_size(from));
        MUST(cuda_cast(s, dst, to, x.device, from, n));
        AGREES(kernels_ref()->cast(ref, ref_stream, want, to, in, from, n, &err));
        side_get(s, got, dst, (size_t)n * dtype_size(to));
        assert_memory_equal(got, want, (size_t)n * dtype_size(to));
        free(want);
        free(got);
        free(in);
        numbers_free(&x);
        side_free(dst, 0);
        MUST(cudaStreamDestroy(s));
    }
}

/* Ties to even; from f64 by way of f32. */
static void casts_of_ties_and_of_what_is_not_finite(void **state)
{
    (void)state;
    schedule_take(0);
    static const double x[] = {1 + 0x1p-8, 1 + 0x3p-8, 1 + 0x1p-8 + 0x1p-20, 1 + 0x1p-8 + 0x1p-40,
                               3.4e38,     1e300,      -(double)INFINITY,    (double)NAN};
    static const double want[] = {1,
                                  1 + 0x1p-6,
                                  1 + 0x1p-7,
                                  1,
                                  (double)INFINITY,
                                  (double)INFINITY,
                                  -(double)INFINITY,
                                  (double)NAN};
    uint16_t got[8];
    cudaStream_t s = stream_open();
    void *src = side_put(s, x, sizeof x);
    void *dst = side_put(s, NULL, sizeof got);
    MUST(cuda_cast(s, dst, DTYPE_BF16, src, DTYPE_F64, 8));
    side_get(s, got, dst, sizeof got);
    for (int i = 0; i < 8; i++) {
        double y = decode(DTYPE_BF16, got, i);
        assert_true(isnan(want[i]) ? isnan(y) : y == want[i]);
    }
    assert_int_equal(cuda_cast(s, dst, DTYPE_I32, src, DTYPE_F64, 8), cudaErrorInvalidValue);
    side_free(src, 0);
    side_free(dst, 0);
    MUST(cudaStreamDestroy(s));
}

/* ---- biases ---- */

static void check_bias(enum dtype t, int64_t r, int64_t n, size_t skip)
{
    cudaStream_t s = stream_open();
    const struct kernels *k = kernels_ref();
    struct numbers y = numbers_draw(s, t, r * n, 1, false, skip);
    struct numbers b = numbers_draw(s, t, n, 2, false, skip);
    struct numbers db = numbers_draw(s, DTYPE_F32, n, 3, false, 0);
    void *workspace = side_put(s, NULL, WORKSPACE_CUDA_COLUMN_SUM);
    MUST(cuda_column_sum(s, t, db.device, y.device, r, n, workspace));
    MUST(cuda_add_bias(s, t, y.device, b.device, r, n));
    AGREES(k->column_sum(ref, ref_stream, DTYPE_F64, db.ref, y.ref, r, n, &err));
    AGREES(k->add_bias(ref, ref_stream, DTYPE_F64, y.ref, b.ref, r, n, &err));
    numbers_agree(s, "y", &y, allowed(t));
    numbers_agree(s, "db", &db, allowed(DTYPE_F32));
    numbers_free(&y);
    numbers_free(&b);
    numbers_free(&db);
    side_free(workspace, 0);
    MUST(cudaStreamDestroy(s));
}

/* Few rows, and so many that blocks share them. */
static void biases_and_their_gradients_agree(void **state)
{
    (void)state;
    for (int i = 0; i < NUM_SCHEDULES; i++) {
        schedule_take(i);
        enum dtype t = i % 2 ? DTYPE_BF16 : DTYPE_F32;
        check_bias(t, 1, 1, 0);
        check_bias(t, 5, 331, i % 3 ? 0 : dtype_size(t));
        check_bias(t, 131, 40, i % 3 ? 0 : dtype_size(t));
        check_bias(t, 97, 13, 0);
    }
    schedule_take(1);
    check_bias(DTYPE_BF16, 3, effort(8200, 8200, 520), 0);
    check_bias(DTYPE_F32, effort(17000, 17000, 300), 8, 0);
}

/* ---- what a product leaves to do ---- */

struct epilogue_case {
    enum dtype t, c_type;
    int64_t m, n, ldc;
    bool c0, bias, gelu, gelu_of;
    size_t skip;
};

static void check_epilogue(const struct epilogue_case *e)
{
    cudaStream_t s = stream_open();
    const struct kernels *k = kernels_ref();
    int64_t all = (e->m - 1) * e->ldc + e->n;
    struct numbers c = numbers_draw(s, e->c_type, all, 1, false, e->skip);
    struct numbers c0 = numbers_draw(s, e->c_type, all, 2, false, e->skip);
    struct numbers bias = numbers_draw(s, e->t, e->n, 3, false, e->skip);
    struct numbers gelu = numbers_draw(s, e->c_type, all, 4, false, e->skip);
    struct numbers of = numbers_draw(s, e->c_type, all, 5, false, e->skip);
    struct cuda_epilogue_args a = {.m = e->m,
                                   .n = e->n,
                                   .ldc = e->ldc,
                                   .c = c.device,
                                   .c_type = e->c_type,
                                   .beta = 0.5,
                                   .c0 = e->c0 ? c0.device : NULL,
                                   .bias = e->bias ? bias.device : NULL,
                                   .gelu = e->gelu ? gelu.device : NULL,
                                   .gelu_of = e->gelu_of ? of.device : NULL};
    MUST(cuda_epilogue(s, e->t, &a));
    for (int64_t i = 0; i < all; i++) {
        double slope;
        if (i % e->ldc >= e->n) {
            continue;
        }
        c.ref[i] += (e->c0 ? 0.5 * c0.ref[i] : 0) + (e->bias ? bias.ref[i % e->ldc] : 0);
        if (e->gelu_of) {
            AGREES(k->gelu_bwd(ref, ref_stream, DTYPE_F64, &slope, &c.ref[i], &of.ref[i], 1, &err));
            c.ref[i] = slope;
        }
        if (e->gelu) {
            AGREES(k->gelu_fwd(ref, ref_stream, DTYPE_F64, &gelu.ref[i], &c.ref[i], 1, &err));
        }
    }
    numbers_agree(s, "c", &c, allowed(e->c_type));
    numbers_agree(s, "gelu", &gelu, allowed(e->c_type));
    struct numbers *numbers[] = {&c, &c0, &bias, &gelu, &of};
    for (int i = 0; i < 5; i++) {
        numbers_free(numbers[i]);
    }
    MUST(cudaStreamDestroy(s));
}

/* Every set of what may be asked for; columns behind n stay as they are. */
static void epilogues_agree_with_plain_loops(void **state)
{
    (void)state;
    static const enum dtype types[3][2] = {
        {DTYPE_F32, DTYPE_F32}, {DTYPE_BF16, DTYPE_F32}, {DTYPE_BF16, DTYPE_BF16}};
    for (int i = 0; i < 3 * 3 * 4; i++) {
        schedule_take(i % NUM_SCHEDULES);
        struct epilogue_case e = {.t = types[i % 3][0],
                                  .c_type = types[i % 3][1],
                                  .m = 1 + i % 7,
                                  .n = i % 2 ? 328 : 37,
                                  .ldc = i % 2 ? 336 : 41,
                                  .c0 = i / 3 % 2,
                                  .bias = i / 6 % 2,
                                  .gelu = i / 12 == 1,
                                  .gelu_of = i / 12 == 2};
        check_epilogue(&e);
        e.skip = dtype_size(e.c_type);
        check_epilogue(&e);
    }
}

/* ---- rotary positions ---- */

static void check_rope(enum dtype t, int64_t r, int64_t heads, int64_t e, bool given, bool backward,
                       size_t skip)
{
    cudaStream_t s = stream_open();
    enum { SEQ_LEN = 5, POSITIONS = 11 };
    struct numbers x = numbers_draw(s, t, r * heads * e, 1, false, skip);
    struct numbers cos = numbers_draw(s, DTYPE_F32, POSITIONS * e / 2, 2, false, 0);
    struct numbers sin = numbers_draw(s, DTYPE_F32, POSITIONS * e / 2, 3, false, 0);
    int32_t *positions = malloc((size_t)r * sizeof *positions);
    for (int64_t i = 0; i < r; i++) {
        positions[i] = (int32_t)(i * 7 % POSITIONS);
    }
    void *device = side_put(s, positions, (size_t)r * sizeof *positions);
    MUST(cuda_rope(s, t, x.device, cos.device, sin.device, given ? device : NULL, r, SEQ_LEN, heads,
                   e, backward));
    AGREES(kernels_ref()->rope(ref, ref_stream, DTYPE_F64, x.ref, cos.ref, sin.ref,
                               given ? positions : NULL, r, SEQ_LEN, heads, e, backward, &err));
    numbers_agree(s, "x", &x, allowed(t));
    side_free(device, 0);
    free(positions);
    numbers_free(&x);
    numbers_free(&cos);
    numbers_free(&sin);
    MUST(cudaStreamDestroy(s));
}

/* Heads of every width; several rows a block, and a row of more than a block. */
static void rotations_agree_with_the_reference(void **state)
{
    (void)state;
    for (int i = 0; i < NUM_SCHEDULES; i++) {
        schedule_take(i);
        enum dtype t = i % 2 ? DTYPE_BF16 : DTYPE_F32;
        check_rope(t, 1, 1, 2, i % 3, i % 2, 0);
        check_rope(t, 7, 3, 10, i % 2, i % 3, 0);
        check_rope(t, 13, 2, 64, i % 2, i % 3, i % 4 ? 0 : dtype_size(t));
        check_rope(t, 3, 33, 128, i % 3, i % 2, 0);
        check_rope(t, 9, 5, 26, i % 3, i % 2, 0);
    }
}

/* ---- nothing ---- */

static void nothing_to_do_is_no_launch(void **state)
{
    (void)state;
    schedule_take(0);
    cudaStream_t s = stream_open();
    int64_t before = cusim_counted().launches;
    struct cuda_epilogue_args none = {.n = 3, .ldc = 3, .c_type = DTYPE_F32};
    MUST(cuda_add(s, DTYPE_F32, NULL, NULL, NULL, 0));
    MUST(cuda_scale(s, DTYPE_BF16, NULL, 2, 0));
    MUST(cuda_cast(s, NULL, DTYPE_BF16, NULL, DTYPE_F32, 0));
    MUST(cuda_gelu_fwd(s, DTYPE_F32, NULL, NULL, 0));
    MUST(cuda_swiglu_bwd(s, DTYPE_F32, NULL, NULL, NULL, NULL, NULL, 0));
    MUST(cuda_rope(s, DTYPE_F32, NULL, NULL, NULL, NULL, 0, 1, 2, 8, false));
    MUST(cuda_add_bias(s, DTYPE_F32, NULL, NULL, 3, 0));
    MUST(cuda_column_sum(s, DTYPE_F32, NULL, NULL, 0, 3, NULL));
    MUST(cuda_epilogue(s, DTYPE_F32, &none));
    assert_int_equal(cusim_counted().launches, before);
    assert_int_equal(cuda_add(s, DTYPE_I32, NULL, NULL, NULL, 1), cudaErrorInvalidValue);
    assert_int_equal(cuda_gelu_fwd(s, DTYPE_F64, NULL, NULL, 1), cudaErrorInvalidValue);
    assert_int_equal(cuda_scale(s, DTYPE_F32, NULL, 1, -1), cudaErrorInvalidValue);
    MUST(cudaStreamDestroy(s));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(activations_agree_with_the_reference),
        cmocka_unit_test(activations_of_large_numbers_stay_finite),
        cmocka_unit_test(sums_and_multiples_agree_with_the_reference),
        cmocka_unit_test(a_multiple_by_zero_keeps_what_is_not_finite),
        cmocka_unit_test(casts_round_as_the_host_does),
        cmocka_unit_test(casts_of_ties_and_of_what_is_not_finite),
        cmocka_unit_test(biases_and_their_gradients_agree),
        cmocka_unit_test(epilogues_agree_with_plain_loops),
        cmocka_unit_test(rotations_agree_with_the_reference),
        cmocka_unit_test(nothing_to_do_is_no_launch),
    };
    return cmocka_run_group_tests(tests, open_ref, close_ref);
}
