/* What a step does with all gradients at once: sums of squares over spans, the norm, clipping,
 * AdamW and SGD over runs. */
#include "tests/cusim/numbers.h"

/* ---- sums ---- */

/* The spans that the tests take of n numbers: some empty, some not at a multiple of 16 bytes. */
static int32_t spans_cut(struct span *spans, int32_t num, int64_t n)
{
    int64_t at = 0;
    for (int32_t i = 0; i < num; i++) {
        int64_t size = i + 1 == num ? n - at : (int64_t)(i % 5) * (n / (2 * num));
        spans[i] = (struct span){at, size};
        at += size;
    }
    return num;
}

static double sum_squares(cudaStream_t s, enum dtype t, int64_t n, int32_t num_spans, size_t skip,
                          double *want)
{
    static struct span spans[1000];
    struct numbers x = numbers_draw(s, t, n, 7, false, skip);
    void *out = side_put(s, NULL, sizeof(double));
    void *workspace = side_put(s, NULL, workspace_cuda_sum_squares(num_spans));
    spans_cut(spans, num_spans, n);
    MUST(cuda_sum_squares(s, t, out, x.device, spans, num_spans, workspace));
    memset(spans, 0xff, sizeof spans); /* they have been read */
    *want = 0;
    for (int64_t i = 0; i < n; i++) {
        *want += x.ref[i] * x.ref[i];
    }
    double got = double_of(s, out);
    numbers_free(&x);
    side_free(out, 0);
    side_free(workspace, 0);
    return got;
}

/* In double, and the same bits wherever the numbers lie and whoever runs first. */
static void sums_of_squares_agree_and_have_one_order(void **state)
{
    (void)state;
    static const int64_t sizes[] = {0, 1, 3, 1027, 9001};
    for (int j = 0; j < 5; j++) {
        double first[2] = {0};
        for (int i = 0; i < 2 * NUM_SCHEDULES; i++) {
            schedule_take(i % NUM_SCHEDULES);
            enum dtype t = i % 2 ? DTYPE_BF16 : DTYPE_F32;
            cudaStream_t s = stream_open();
            double want;
            double got = sum_squares(s, t, sizes[j], 1, (size_t)(i / 2 % 9) * dtype_size(t), &want);
            assert_true(fabs(got - want) <= 1e-13 * want);
            first[i % 2] = i < 2 ? got : first[i % 2];
            assert_memory_equal(&got, &first[i % 2], sizeof got);
            MUST(cudaStreamDestroy(s));
        }
    }
}

/* As many spans as take several launches; none. */
static void sums_of_squares_over_many_spans_agree(void **state)
{
    (void)state;
    static const int32_t nums[] = {0,  2, 17, WORKSPACE_SQUARES_SPANS, WORKSPACE_SQUARES_SPANS + 1,
                                   900};
    for (int i = 0; i < 6; i++) {
        schedule_take(i % NUM_SCHEDULES);
        cudaStream_t s = stream_open();
        double want;
        int64_t before = cusim_counted().launches;
        double got =
            sum_squares(s, i % 2 ? DTYPE_BF16 : DTYPE_F32, nums[i] ? 20011 : 0, nums[i], 4, &want);
        assert_true(fabs(got - want) <= 1e-13 * want);
        assert_true(cusim_counted().launches - before <= workspace_squares_launches(nums[i]) + 1);
        MUST(cudaStreamDestroy(s));
    }
}

/* Floats whose squares a float can't hold. */
static void squares_neither_overflow_nor_vanish(void **state)
{
    (void)state;
    schedule_take(1);
    cudaStream_t s = stream_open();
    float x[3] = {3e30f, 4e30f, 1e-30f};
    struct span spans[2] = {{0, 2}, {2, 1}};
    void *device = side_put(s, x, sizeof x);
    void *out = side_put(s, NULL, 2 * sizeof(double));
    void *workspace = side_put(s, NULL, workspace_cuda_sum_squares(2));
    MUST(cuda_sum_squares(s, DTYPE_F32, out, device, spans, 1, workspace));
    MUST(cuda_sum_squares(s, DTYPE_F32, (double *)out + 1, device, spans + 1, 1, workspace));
    assert_true(fabs(double_of(s, out) / 25e60 - 1) < 1e-6);
    assert_true(fabs(double_of(s, (double *)out + 1) / 1e-60 - 1) < 1e-6);
    side_free(device, 0);
    side_free(out, 0);
    side_free(workspace, 0);
    MUST(cudaStreamDestroy(s));
}

static void doubles_are_summed(void **state)
{
    (void)state;
    static const int64_t sizes[] = {0, 1, 255, 4099};
    for (int i = 0; i < 4; i++) {
        schedule_take(i % NUM_SCHEDULES);
        cudaStream_t s = stream_open();
        struct numbers x = numbers_draw(s, DTYPE_F64, sizes[i], 3, false, 8);
        void *out = side_put(s, NULL, sizeof(double));
        MUST(cuda_sum_double(s, out, x.device, sizes[i]));
        double want = 0;
        for (int64_t j = 0; j < sizes[i]; j++) {
            want += x.ref[j];
        }
        assert_true(fabs(double_of(s, out) - want) <= 1e-12 * sqrt((double)sizes[i]));
        numbers_free(&x);
        side_free(out, 0);
        MUST(cudaStreamDestroy(s));
    }
}

/* ---- clip ---- */

static double clip(double squares, double max_norm, double *norm)
{
    cudaStream_t s = stream_open();
    double *words = side_put(s, &squares, sizeof squares);
    double *scale = side_put(s, NULL, sizeof(double));
    MUST(cuda_clip(s, words, scale, words, max_norm)); /* in place */
    *norm = double_of(s, words);
    double got = double_of(s, scale);
    side_free(words, 0);
    side_free(scale, 0);
    MUST(cudaStreamDestroy(s));
    return got;
}

static void clip_scales_down_and_marks_what_is_not_finite(void **state)
{
    (void)state;
    schedule_take(2);
    double norm;
    assert_true(fabs(clip(16, 1, &norm) - 1 / (4 + 1e-6)) < 1e-15);
    assert_true(norm == 4);
    assert_true(clip(0.25, 1, &norm) == 1 && norm == 0.5);
    assert_true(clip(16, 0, &norm) == 1 && norm == 4);
    assert_true(clip(0, 1, &norm) == 1 && norm == 0);
    assert_true(isnan(clip((double)INFINITY, 1, &norm)) && isinf(norm));
    assert_true(isnan(clip((double)NAN, 0, &norm)) && isnan(norm));
}

/* ---- adamw, sgd ---- */

/* Numbers between runs: nothing may touch them. */
#define GAP 3

struct step {
    struct numbers w, m, v, g;
    struct step_run runs[200];
    int32_t num;
    void *low;
    double *scale;
    int64_t total;
    size_t skip;
};

/* num runs of n numbers and a few more each; low: bf16 copies, which lie at other places. */
static struct step step_new(cudaStream_t s, int32_t num, int64_t n, double decay, double scale,
                            size_t skip)
{
    struct step x = {.num = num, .skip = skip};
    int64_t at = 0;
    for (int32_t i = 0; i < num; i++) {
        int64_t size = n + i % 3;
        x.runs[i] = (struct step_run){at, at, at + i % 2, at + i / 2 % 2, size, i % 2 ? decay : 0};
        at += size + GAP;
    }
    x.total = at;
    x.w = numbers_draw(s, DTYPE_F32, at, 1, false, skip);
    x.m = numbers_draw(s, DTYPE_F32, at, 2, false, skip);
    x.v = numbers_draw(s, DTYPE_F32, at, 3, true, skip);
    x.g = numbers_draw(s, DTYPE_F32, at, 4, false, skip);
    x.low = side_put_at(s, NULL, (size_t)at * 2, skip / 2);
    x.scale = side_put(s, &scale, sizeof scale);
    return x;
}

static void step_free(struct step *x)
{
    numbers_free(&x->w);
    numbers_free(&x->m);
    numbers_free(&x->v);
    numbers_free(&x->g);
    side_free(x->low, x->skip / 2);
    side_free(x->scale, 0);
}

static struct step_args args_of(struct step *x, bool adam, bool low)
{
    return (struct step_args){.runs = x->runs,
                              .num_runs = x->num,
                              .w = x->w.device,
                              .m = adam ? x->m.device : NULL,
                              .v = adam ? x->v.device : NULL,
                              .g = x->g.device,
                              .low = low ? x->low : NULL,
                              .grad_scale = x->scale,
                              .lr = 1e-2,
                              .beta1 = 0.9,
                              .beta2 = 0.95,
                              .eps = 1e-8,
                              .bias1 = 1 - pow(0.9, 3),
                              .bias2 = 1 - pow(0.95, 3)};
}

/* The copies are the weights that were written, rounded; between the runs lies what lay there. */
static void low_agrees(cudaStream_t s, const struct step *x, const struct step_run *runs)
{
    float *w = malloc((size_t)x->total * sizeof *w);
    uint16_t *low = malloc((size_t)x->total * sizeof *low);
    side_get(s, w, x->w.device, (size_t)x->total * sizeof *w);
    side_get(s, low, x->low, (size_t)x->total * sizeof *low);
    for (int32_t i = 0; i < x->num; i++) {
        for (int64_t j = 0; j < runs[i].n; j++) {
            double want = (double)as_bf16(w[runs[i].w + j]);
            assert_true(decode(DTYPE_BF16, low, runs[i].low + j) == want);
        }
        assert_true(isnan(decode(DTYPE_BF16, low, runs[i].low + runs[i].n)));
    }
    free(w);
    free(low);
}

static void check_step(bool adam, bool low, int32_t num, int64_t n, size_t skip, double scale)
{
    cudaStream_t s = stream_open();
    struct step x = step_new(s, num, n, 0.1, scale, skip);
    struct step_args a = args_of(&x, adam, low);
    struct step_run keep[200];
    memcpy(keep, x.runs, sizeof keep);
    MUST(adam ? cuda_adamw(s, &a) : cuda_sgd(s, &a));
    struct step_args b = a;
    b.w = x.w.ref;
    b.m = x.m.ref;
    b.v = x.v.ref;
    b.g = x.g.ref;
    b.low = NULL;
    b.grad_scale = &scale;
    const struct kernels *k = kernels_ref();
    AGREES((adam ? k->adamw : k->sgd)(ref, ref_stream, DTYPE_F64, &b, &err));
    memset(x.runs, 0xff, sizeof x.runs); /* they have been read */
    numbers_agree(s, "w", &x.w, 4 * 0x1p-24);
    numbers_agree(s, "m", &x.m, 4 * 0x1p-24);
    numbers_agree(s, "v", &x.v, 4 * 0x1p-24);
    if (low) {
        low_agrees(s, &x, keep);
    }
    step_free(&x);
    MUST(cudaStreamDestroy(s));
}

/* Runs that begin anywhere, together and apart, and gaps that stay as they are. */
static void steps_agree_with_the_reference(void **state)
{
    (void)state;
    for (int i = 0; i < NUM_SCHEDULES; i++) {
        schedule_take(i);
        bool adam = i % 3 != 2;
        bool low = i % 2;
        check_step(adam, low, 1, 0, 0, 1);
        check_step(adam, low, 1, 1031, 0, 0.37);
        check_step(adam, low, 3, 131, 4 * (size_t)(i % 4), 0.37);
    }
}

/* More than a launch takes, and one that is more than a chunk. */
static void steps_over_many_runs_agree(void **state)
{
    (void)state;
    schedule_take(5 % NUM_SCHEDULES);
    check_step(true, true, 200, 5, 0, 0.37);
    check_step(false, true, 81, 9, 4, 1);
    check_step(true, true, 2, effort(8192 + 77, 8192 + 77, 77), 0, 0.37);
}

/* Nothing is changed where the scale isn't finite: neither weights nor moments nor copies. */
static void a_step_whose_scale_is_not_finite_changes_nothing(void **state)
{
    (void)state;
    static const double bad[] = {(double)NAN, (double)INFINITY, -(double)INFINITY};
    for (int i = 0; i < 6; i++) {
        schedule_take(i % NUM_SCHEDULES);
        cudaStream_t s = stream_open();
        struct step x = step_new(s, 2, 301, 0.1, bad[i % 3], 4);
        struct step_args a = args_of(&x, i < 3, true);
        MUST(i < 3 ? cuda_adamw(s, &a) : cuda_sgd(s, &a));
        numbers_agree(s, "w", &x.w, 0);
        numbers_agree(s, "m", &x.m, 0);
        numbers_agree(s, "v", &x.v, 0);
        uint16_t low;
        side_get(s, &low, x.low, sizeof low);
        assert_true(isnan(decode(DTYPE_BF16, &low, 0)));
        step_free(&x);
        MUST(cudaStreamDestroy(s));
    }
}

/* Nothing is allocated, nothing waits, and all runs take one launch. */
static void a_step_neither_allocates_nor_synchronises(void **state)
{
    (void)state;
    schedule_take(3 % NUM_SCHEDULES);
    cudaStream_t s = stream_open();
    struct step x = step_new(s, 70, 5, 0.1, 1, 0);
    void *workspace = side_put(s, NULL, workspace_cuda_sum_squares(1));
    struct span all = {0, x.total};
    struct step_args a = args_of(&x, true, true);
    struct cusim_counts before = cusim_counted();
    MUST(cuda_sum_squares(s, DTYPE_F32, x.scale, x.g.device, &all, 1, workspace));
    MUST(cuda_clip(s, workspace, x.scale, x.scale, 1));
    MUST(cuda_adamw(s, &a));
    struct cusim_counts after = cusim_counted();
    assert_int_equal(after.allocations, before.allocations);
    assert_int_equal(after.syncs, before.syncs);
    assert_int_equal(after.launches, before.launches + 4);
    MUST(cudaStreamSynchronize(s));
    step_free(&x);
    side_free(workspace, 0);
    MUST(cudaStreamDestroy(s));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_of_squares_agree_and_have_one_order),
        cmocka_unit_test(sums_of_squares_over_many_spans_agree),
        cmocka_unit_test(squares_neither_overflow_nor_vanish),
        cmocka_unit_test(doubles_are_summed),
        cmocka_unit_test(clip_scales_down_and_marks_what_is_not_finite),
        cmocka_unit_test(steps_agree_with_the_reference),
        cmocka_unit_test(steps_over_many_runs_agree),
        cmocka_unit_test(a_step_whose_scale_is_not_finite_changes_nothing),
        cmocka_unit_test(a_step_neither_allocates_nor_synchronises),
    };
    return cmocka_run_group_tests(tests, open_ref, close_ref);
}
