/* The CUDA kernels against the reference backend: odd sizes, every alignment, every schedule. */
#include "tests/cusim/side.h"

#include <math.h>
#include <stdio.h>

#include "base/rng.h"
#include "kernels/cuda/launch.h"
#include "kernels/kernels.h"
#include "tests/effort.h"

/* The reference, in f64 on the same numbers. */
static struct device *ref;
static struct stream *ref_stream;
static struct error err;

static int open_ref(void **state)
{
    (void)state;
    return device_open_ref(&ref, &err) ||
           ref->ops->stream_new(ref, STREAM_INLINE, &ref_stream, &err);
}

static int close_ref(void **state)
{
    (void)state;
    ref->ops->stream_free(ref, ref_stream);
    ref->ops->close(ref);
    return 0;
}

/* n numbers in a type of the device and, the same, as the reference has them. */
struct numbers {
    enum dtype t;
    int64_t n;
    size_t skip;
    double *ref;
    void *device;
};

static float as_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static void encode(enum dtype t, void *to, int64_t i, float x)
{
    if (t == DTYPE_F32) {
        ((float *)to)[i] = x;
    } else {
        uint32_t bits;
        memcpy(&bits, &x, sizeof bits);
        ((uint16_t *)to)[i] = (uint16_t)(bits >> 16);
    }
}

static double decode(enum dtype t, const void *from, int64_t i)
{
    if (t == DTYPE_F32) {
        return (double)((const float *)from)[i];
    }
    uint32_t bits = (uint32_t)((const uint16_t *)from)[i] << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return (double)x;
}

static struct numbers numbers_draw(cudaStream_t s, enum dtype t, int64_t n, uint64_t seed,
                                   bool positive, size_t skip)
{
    struct numbers x = {t, n, skip, malloc((size_t)(n + 1) * sizeof(double)), NULL};
    void *host = malloc((size_t)(n + 1) * dtype_size(t));
    for (int64_t i = 0; i < n; i++) {
        float f = (float)rng_normal(seed, rng_stream("cusim"), (uint64_t)i);
        f = positive ? fabsf(f) : f;
        f = t == DTYPE_F32 ? f : as_bf16(f);
        x.ref[i] = (double)f;
        encode(t, host, i, f);
    }
    x.device = side_put_at(s, host, (size_t)n * dtype_size(t), skip);
    free(host);
    return x;
}

static struct numbers numbers_none(cudaStream_t s, enum dtype t, int64_t n, size_t skip)
{
    struct numbers x = {t, n, skip, calloc((size_t)(n + 1), sizeof(double)), NULL};
    x.device = side_put_at(s, NULL, (size_t)n * dtype_size(t), skip);
    return x;
}

static void numbers_free(struct numbers *x)
{
    side_free(x->device, x->skip);
    free(x->ref);
}

/* Within `part` of the largest number, or of 1: a gradient may cancel. */
static void numbers_agree(cudaStream_t s, const char *what, const struct numbers *x, double part)
{
    size_t bytes = (size_t)x->n * dtype_size(x->t);
    void *host = malloc(bytes + 1);
    side_get(s, host, x->device, bytes);
    double largest = 1;
    for (int64_t i = 0; i < x->n; i++) {
        largest = fmax(largest, fabs(x->ref[i]));
    }
    for (int64_t i = 0; i < x->n; i++) {
        double got = decode(x->t, host, i);
        if (!(fabs(got - x->ref[i]) <= part * largest)) {
            fail_msg("%s[%lld]: want %.9g, got %.9g, largest %g", what, (long long)i, x->ref[i],
                     got, largest);
        }
    }
    free(host);
}

static double allowed(enum dtype t)
{
    return t == DTYPE_F32 ? 24 * 0x1p-24 : 1.5 * 0x1p-8;
}

/* ---- rmsnorm ---- */

static void check_rmsnorm(enum dtype t, int64_t r, int64_t d, bool alias, bool accumulate,
                          size_t skip)
{
    cudaStream_t s = stream_open();
    const struct kernels *k = kernels_ref();
    struct numbers x = numbers_draw(s, t, r * d, 1, false, skip);
    struct numbers keep = numbers_draw(s, t, r * d, 1, false, skip);
    struct numbers w = numbers_draw(s, t, d, 2, false, skip);
    struct numbers dy = numbers_draw(s, t, r * d, 3, false, skip);
    struct numbers dw = numbers_draw(s, DTYPE_F32, d, 4, false, 0);
    struct numbers y = alias ? keep : numbers_none(s, t, r * d, skip);
    struct numbers rstd = numbers_none(s, DTYPE_F32, r, 0);
    struct numbers dx = alias        ? dy
                        : accumulate ? numbers_draw(s, t, r * d, 5, false, skip)
                                     : numbers_none(s, t, r * d, skip);
    size_t bytes = cuda_rmsnorm_bwd_workspace(r, d);
    void *workspace = side_put(s, NULL, bytes);
    MUST(cuda_rmsnorm_fwd(s, t, y.device, rstd.device, alias ? keep.device : x.device, w.device, r,
                          d, 1e-5));
    MUST(cuda_rmsnorm_bwd(s, t, dx.device, dw.device, dy.device, x.device, w.device, rstd.device, r,
                          d, accumulate, workspace));
    assert_int_equal(
        k->rmsnorm_fwd(ref, ref_stream, DTYPE_F64, y.ref, rstd.ref, x.ref, w.ref, r, d, 1e-5, &err),
        0);
    assert_int_equal(k->rmsnorm_bwd(ref, ref_stream, DTYPE_F64, dx.ref, dw.ref, dy.ref, x.ref,
                                    w.ref, rstd.ref, r, d, accumulate, NULL, &err),
                     0);
    numbers_agree(s, "y", &y, allowed(t));
    numbers_agree(s, "rstd", &rstd, allowed(DTYPE_F32));
    numbers_agree(s, "dx", &dx, allowed(t));
    numbers_agree(s, "dw", &dw, allowed(DTYPE_F32));
    if (!alias) {
        numbers_free(&y);
        numbers_free(&dx);
    }
    numbers_free(&x);
    numbers_free(&keep);
    numbers_free(&w);
    numbers_free(&dy);
    numbers_free(&dw);
    numbers_free(&rstd);
    side_free(workspace, 0);
    MUST(cudaStreamDestroy(s));
}

/* Rows that fit 16 bytes and rows that don't, memory that starts anywhere, more rows than one block
 * takes. */
static void rmsnorm_agrees_with_the_reference(void **state)
{
    (void)state;
    for (int i = 0; i < NUM_SCHEDULES; i++) {
        schedule_take(i);
        enum dtype t = i % 2 ? DTYPE_BF16 : DTYPE_F32;
        check_rmsnorm(t, 1, 1, false, false, 0);
        check_rmsnorm(t, 3, 331, i % 3 == 0, false, 0);
        check_rmsnorm(t, 5, 328, i % 3 == 1, i % 3 == 2, 0);
        check_rmsnorm(t, 7, 24, false, true, dtype_size(t));
    }
    schedule_take(0);
    check_rmsnorm(DTYPE_F32, effort(271, 271, 3), 9, false, false, 0);
}

/* The weight's gradient of rows too long for shared memory is collected in the workspace. */
static void rmsnorm_of_very_long_rows_agrees(void **state)
{
    (void)state;
    schedule_take(4);
    check_rmsnorm(DTYPE_F32, 2, 24 * 1024 + 3, false, true, 0);
    check_rmsnorm(DTYPE_BF16, 2, 24 * 1024 + 8, false, false, 0);
}

static void rmsnorm_of_nothing_does_nothing(void **state)
{
    (void)state;
    cudaStream_t s = stream_open();
    int64_t before = cusim_counted().launches;
    MUST(cuda_rmsnorm_fwd(s, DTYPE_F32, NULL, NULL, NULL, NULL, 0, 7, 1e-5));
    MUST(cuda_rmsnorm_bwd(s, DTYPE_BF16, NULL, NULL, NULL, NULL, NULL, NULL, 3, 0, false, NULL));
    assert_int_equal(cusim_counted().launches, before);
    assert_int_equal(cuda_rmsnorm_fwd(s, DTYPE_F64, NULL, NULL, NULL, NULL, 1, 1, 1e-5),
                     cudaErrorInvalidValue);
    MUST(cudaStreamDestroy(s));
}

/* ---- sum of squares ---- */

static double sum_squares(cudaStream_t s, enum dtype t, int64_t n, size_t skip, double *want)
{
    struct numbers x = numbers_draw(s, t, n, 7, false, skip);
    void *out = side_put(s, NULL, sizeof(double));
    void *workspace = side_put(s, NULL, CUDA_SUM_SQUARES_WORKSPACE);
    double got;
    MUST(cuda_sum_squares(s, t, out, x.device, n, workspace));
    side_get(s, &got, out, sizeof got);
    struct span all = {0, n};
    assert_int_equal(
        kernels_ref()->sum_squares(ref, ref_stream, DTYPE_F64, want, x.ref, &all, 1, want, &err),
        0);
    numbers_free(&x);
    side_free(out, 0);
    side_free(workspace, 0);
    return got;
}

/* In double, and the same bits wherever the numbers lie and whoever runs first. */
static void sums_of_squares_agree_and_have_one_order(void **state)
{
    (void)state;
    static const int64_t sizes[] = {0, 1, 3, 1027, 4099};
    for (int j = 0; j < 5; j++) {
        double first[2] = {0};
        for (int i = 0; i < 2 * NUM_SCHEDULES; i++) {
            schedule_take(i % NUM_SCHEDULES);
            enum dtype t = i % 2 ? DTYPE_BF16 : DTYPE_F32;
            cudaStream_t s = stream_open();
            double want;
            double got = sum_squares(s, t, sizes[j], (size_t)(i / 2 % 5) * dtype_size(t), &want);
            assert_true(fabs(got - want) <= 1e-13 * want);
            first[i % 2] = i < 2 ? got : first[i % 2];
            assert_memory_equal(&got, &first[i % 2], sizeof got);
            MUST(cudaStreamDestroy(s));
        }
    }
}

/* ---- adamw ---- */

static void check_adamw(int64_t n, size_t skip, double decay)
{
    cudaStream_t s = stream_open();
    struct numbers w = numbers_draw(s, DTYPE_F32, n, 1, false, skip);
    struct numbers m = numbers_draw(s, DTYPE_F32, n, 2, false, skip);
    struct numbers v = numbers_draw(s, DTYPE_F32, n, 3, true, skip);
    struct numbers g = numbers_draw(s, DTYPE_F32, n, 4, false, 0);
    double bias1 = 1 - pow(0.9, 3);
    double bias2 = 1 - pow(0.95, 3);
    struct cuda_adamw_args a = {n,    w.device, m.device, v.device, g.device, 1e-2, 0.9,
                                0.95, 1e-8,     decay,    bias1,    bias2,    0.37};
    struct step_run all = {.n = n, .decay = decay};
    double scale = 0.37;
    struct step_args b = {.runs = &all,
                          .num_runs = 1,
                          .w = w.ref,
                          .m = m.ref,
                          .v = v.ref,
                          .g = g.ref,
                          .lr = 1e-2,
                          .beta1 = 0.9,
                          .beta2 = 0.95,
                          .eps = 1e-8,
                          .bias1 = bias1,
                          .bias2 = bias2,
                          .grad_scale = &scale};
    MUST(cuda_adamw(s, &a));
    assert_int_equal(kernels_ref()->adamw(ref, ref_stream, DTYPE_F64, &b, &err), 0);
    numbers_agree(s, "w", &w, 4 * 0x1p-24);
    numbers_agree(s, "m", &m, 4 * 0x1p-24);
    numbers_agree(s, "v", &v, 4 * 0x1p-24);
    numbers_free(&w);
    numbers_free(&m);
    numbers_free(&v);
    numbers_free(&g);
    MUST(cudaStreamDestroy(s));
}

static void adamw_agrees_with_the_reference(void **state)
{
    (void)state;
    for (int i = 0; i < NUM_SCHEDULES; i++) {
        schedule_take(i);
        check_adamw(0, 0, 0.1);
        check_adamw(1, 0, 0.1);
        check_adamw(1031, 0, i % 2 ? 0.1 : 0);
        check_adamw(531, 4 * (size_t)(i % 4), 0.1);
    }
}

/* What a step does: nothing is allocated, nothing waits. */
static void kernels_neither_allocate_nor_synchronise(void **state)
{
    (void)state;
    schedule_take(3);
    cudaStream_t s = stream_open();
    float *x = side_put(s, NULL, 64 * sizeof(float));
    void *workspace = side_put(s, NULL, CUDA_SUM_SQUARES_WORKSPACE);
    MUST(cudaMemsetAsync(x, 0, 64 * sizeof(float), s));
    struct cusim_counts before = cusim_counted();
    struct cuda_adamw_args a = {16, x, x + 16, x + 32, x + 48, 1, 1, 1, 1, 1, 1, 1, 1};
    MUST(cuda_adamw(s, &a));
    MUST(cuda_rmsnorm_fwd(s, DTYPE_F32, x, x + 16, x, x + 32, 1, 16, 1e-5));
    MUST(cuda_sum_squares(s, DTYPE_F32, workspace, x, 16, workspace));
    struct cusim_counts after = cusim_counted();
    assert_int_equal(after.allocations, before.allocations);
    assert_int_equal(after.syncs, before.syncs);
    assert_int_equal(after.launches, before.launches + 4);
    MUST(cudaStreamSynchronize(s));
    side_free(x, 0);
    side_free(workspace, 0);
    MUST(cudaStreamDestroy(s));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rmsnorm_agrees_with_the_reference),
        cmocka_unit_test(rmsnorm_of_very_long_rows_agrees),
        cmocka_unit_test(rmsnorm_of_nothing_does_nothing),
        cmocka_unit_test(sums_of_squares_agree_and_have_one_order),
        cmocka_unit_test(adamw_agrees_with_the_reference),
        cmocka_unit_test(kernels_neither_allocate_nor_synchronise),
    };
    return cmocka_run_group_tests(tests, open_ref, close_ref);
}
