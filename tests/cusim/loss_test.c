/* Cross entropy, whole and of a vocabulary that is cut: rows that begin anywhere, in place or
 * beside, ignored rows. */
#include "tests/cusim/numbers.h"

struct loss_case {
    enum dtype t;
    int64_t r, v;
    int way; /* 0: no gradient, 1: beside, 2: in place, 3: beside, elsewhere in 16 bytes */
    size_t skip;
    int64_t pad; /* numbers between rows; not with a gradient beside */
};

static int32_t *targets_draw(int64_t r, int64_t v)
{
    int32_t *targets = malloc((size_t)r * sizeof *targets);
    for (int64_t i = 0; i < r; i++) {
        targets[i] = i % 4 == 2 ? -100 : (int32_t)(i * 37 % v);
    }
    return targets;
}

static void nll_agrees(cudaStream_t s, const double *device, const double *want, int64_t r)
{
    double *got = malloc((size_t)r * sizeof *got);
    side_get(s, got, device, (size_t)r * sizeof *got);
    for (int64_t i = 0; i < r; i++) {
        if (!(fabs(got[i] - want[i]) <= 1e-6 * fmax(1, want[i]))) {
            fail_msg("nll[%lld]: want %.12g, got %.12g", (long long)i, want[i], got[i]);
        }
    }
    free(got);
}

static void check_loss(const struct loss_case *c)
{
    cudaStream_t s = stream_open();
    int64_t n = c->r * (c->v + c->pad);
    struct numbers logits = numbers_draw(s, c->t, n, 1, false, c->skip);
    struct numbers dx = c->way == 2 ? logits : numbers_none(s, c->t, n, c->way == 3 ? 0 : c->skip);
    int32_t *targets = targets_draw(c->r, c->v);
    void *device = side_put(s, targets, (size_t)c->r * sizeof *targets);
    double *nll = side_put(s, NULL, (size_t)c->r * sizeof *nll);
    double *want = malloc((size_t)c->r * sizeof *want);
    MUST(cuda_cross_entropy(s, c->t, nll, c->way ? dx.device : NULL, logits.device, device, 0.25,
                            c->r, c->v, c->v + c->pad));
    AGREES(kernels_ref()->cross_entropy(ref, ref_stream, DTYPE_F64, want, c->way ? dx.ref : NULL,
                                        logits.ref, targets, 0.25, c->r, c->v, c->v + c->pad,
                                        &err));
    nll_agrees(s, nll, want, c->r);
    if (c->way) {
        numbers_agree(s, "dlogits", &dx, allowed(c->t));
    }
    if (c->way != 2) {
        numbers_free(&dx);
    }
    numbers_free(&logits);
    side_free(device, 0);
    side_free(nll, 0);
    free(targets);
    free(want);
    MUST(cudaStreamDestroy(s));
}

static void losses_agree_with_the_reference(void **state)
{
    (void)state;
    for (int i = 0; i < NUM_SCHEDULES; i++) {
        schedule_take(i);
        enum dtype t = i % 2 ? DTYPE_BF16 : DTYPE_F32;
        size_t skip = dtype_size(t);
        check_loss(&(struct loss_case){t, 1, 1, 1, 0, 0});
        check_loss(&(struct loss_case){t, 3, 5, 2, skip, 0});
        check_loss(&(struct loss_case){t, 5, SIZED(4203, 1203), i % 4, skip, 0});
        check_loss(&(struct loss_case){t, 3, 331, 2, i % 2 ? 0 : skip, 5});
        check_loss(&(struct loss_case){t, 3, 640, i % 4, i % 2 ? 0 : 3 * skip, 0});
    }
    schedule_take(1);
    check_loss(&(struct loss_case){DTYPE_BF16, SIZED(effort(531, 531, 7), 135), 9, 2, 0, 0});
}

/* Logits far from 0 and from each other, and rows that open with minus infinities, which are what a
 * thread sees alone. */
static void losses_of_extreme_logits_agree(void **state)
{
    (void)state;
    schedule_take(0);
    enum { V = 4099 };
    float *x = malloc(3 * V * sizeof *x);
    double *wide = malloc(3 * V * sizeof *wide);
    for (int i = 0; i < 3 * V; i++) {
        int row = i / V;
        x[i] = row == 0 ? -INFINITY : row == 1 ? 5000 - (float)(i % V) * 8 : -3e38f;
    }
    x[77] = 3;
    x[78] = 4;
    for (int i = 0; i < 3 * V; i++) {
        wide[i] = (double)x[i];
    }
    static const int32_t targets[] = {77, V - 1, 5};
    double want[3];
    float *got = malloc(3 * V * sizeof *got);
    cudaStream_t s = stream_open();
    void *device = side_put(s, targets, sizeof targets);
    void *logits = side_put(s, x, 3 * V * sizeof *x);
    double *nll = side_put(s, NULL, sizeof want);
    MUST(cuda_cross_entropy(s, DTYPE_F32, nll, logits, logits, device, 1, 3, V, V));
    AGREES(kernels_ref()->cross_entropy(ref, ref_stream, DTYPE_F64, want, wide, wide, targets, 1, 3,
                                        V, V, &err));
    nll_agrees(s, nll, want, 3);
    side_get(s, got, logits, 3 * V * sizeof *got);
    for (int i = 0; i < 3 * V; i++) {
        assert_true(fabs((double)got[i] - wide[i]) <= 1e-6);
    }
    side_free(device, 0);
    side_free(logits, 0);
    side_free(nll, 0);
    free(x);
    free(got);
    free(wide);
    MUST(cudaStreamDestroy(s));
}

/* A row that is shorter than a block, far below 0: threads without a number add nothing to it. */
static void losses_of_short_rows_far_below_zero_agree(void **state)
{
    (void)state;
    schedule_take(0);
    enum { V = 9 };
    float x[V], got[V];
    double wide[V], want;
    for (int i = 0; i < V; i++) {
        x[i] = -300 - (float)i;
        wide[i] = (double)x[i];
    }
    static const int32_t target = 4;
    cudaStream_t s = stream_open();
    void *device = side_put(s, &target, sizeof target);
    void *logits = side_put(s, x, sizeof x);
    double *nll = side_put(s, NULL, sizeof want);
    MUST(cuda_cross_entropy(s, DTYPE_F32, nll, logits, logits, device, 1, 1, V, V));
    AGREES(kernels_ref()->cross_entropy(ref, ref_stream, DTYPE_F64, &want, wide, wide, &target, 1,
                                        1, V, V, &err));
    nll_agrees(s, nll, &want, 1);
    side_get(s, got, logits, sizeof got);
    for (int i = 0; i < V; i++) {
        assert_true(fabs((double)got[i] - wide[i]) <= 1e-6);
    }
    side_free(device, 0);
    side_free(logits, 0);
    side_free(nll, 0);
    MUST(cudaStreamDestroy(s));
}

/* A NaN among the logits shows in the loss and in the gradient; another row's doesn't. */
static void a_logit_that_is_not_a_number_shows(void **state)
{
    (void)state;
    schedule_take(0);
    float x[2][70] = {{0}};
    x[0][33] = NAN;
    static const int32_t targets[] = {1, 2};
    double nll[2];
    cudaStream_t s = stream_open();
    void *device = side_put(s, targets, sizeof targets);
    void *logits = side_put(s, x, sizeof x);
    double *out = side_put(s, NULL, sizeof nll);
    MUST(cuda_cross_entropy(s, DTYPE_F32, out, logits, logits, device, 1, 2, 70, 70));
    side_get(s, nll, out, sizeof nll);
    side_get(s, x, logits, sizeof x);
    assert_true(isnan(nll[0]) && !isnan(nll[1]));
    assert_true(isnan(x[0][5]) && !isnan(x[1][5]));
    side_free(device, 0);
    side_free(logits, 0);
    side_free(out, 0);
    MUST(cudaStreamDestroy(s));
}

/* ---- in parts ---- */

enum { PARTS = 3 };

struct part_run {
    struct numbers logits, dx;
    struct logits_part device, host;
    double *max, *sums; /* device */
    double host_max[32], host_sums[64];
};

/* Columns that aren't valid are NaN. */
static struct part_run part_new(cudaStream_t s, enum dtype t, int64_t r, int64_t ld, int64_t valid,
                                int64_t first, const int32_t *targets, void *device, size_t skip)
{
    struct part_run p = {.logits = numbers_draw(s, t, r * ld, (uint64_t)first + 1, false, skip)};
    uint8_t nan[8];
    encode(t, nan, 0, NAN);
    for (int64_t i = 0; i < r * ld; i++) {
        if (i % ld >= valid) {
            p.logits.ref[i] = (double)NAN;
            MUST(cudaMemcpyAsync((char *)p.logits.device + (size_t)i * dtype_size(t), nan,
                                 dtype_size(t), cudaMemcpyHostToDevice, s));
        }
    }
    MUST(cudaStreamSynchronize(s));
    p.dx = p.logits;
    p.device = (struct logits_part){p.logits.device, r, ld, valid, first, device};
    p.host = (struct logits_part){p.logits.ref, r, ld, valid, first, targets};
    p.max = side_put(s, NULL, (size_t)r * sizeof(double));
    p.sums = side_put(s, NULL, 2 * (size_t)r * sizeof(double));
    return p;
}

/* The ranks' results meet on the host here. */
static void parts_meet(struct part_run *p, int64_t n, bool max)
{
    for (int64_t i = 0; i < n; i++) {
        double all = max ? -(double)INFINITY : 0;
        for (int j = 0; j < PARTS; j++) {
            double x = max ? p[j].host_max[i] : p[j].host_sums[i];
            all = max ? fmax(all, x) : all + x;
        }
        for (int j = 0; j < PARTS; j++) {
            *(max ? &p[j].host_max[i] : &p[j].host_sums[i]) = all;
        }
    }
}

/* Three ranks' parts, the last of which has no column that is valid. */
static void check_parts(enum dtype t, int64_t r, int64_t ld, bool gradient, size_t skip)
{
    cudaStream_t s = stream_open();
    const struct kernels *k = kernels_ref();
    int64_t valid[PARTS] = {ld, ld / 2 + 1, 0};
    int32_t *targets = targets_draw(r, valid[0] + valid[1]);
    void *device = side_put(s, targets, (size_t)r * sizeof *targets);
    struct part_run p[PARTS];
    double want_max[32], want_sums[64], nll[32];
    double *out = side_put(s, NULL, (size_t)r * sizeof *out);
    for (int i = 0; i < PARTS; i++) {
        p[i] = part_new(s, t, r, ld, valid[i], i * ld, targets, device, skip);
        MUST(cuda_ce_max(s, t, p[i].max, &p[i].device));
        side_get(s, p[i].host_max, p[i].max, (size_t)r * sizeof(double));
        AGREES(k->ce_max(ref, ref_stream, DTYPE_F64, want_max, &p[i].host, &err));
        assert_memory_equal(want_max, p[i].host_max, (size_t)r * sizeof(double));
    }
    parts_meet(p, r, true);
    for (int i = 0; i < PARTS; i++) {
        MUST(cudaMemcpyAsync(p[i].max, p[i].host_max, (size_t)r * sizeof(double),
                             cudaMemcpyHostToDevice, s));
        MUST(cuda_ce_sum(s, t, p[i].sums, p[i].max, &p[i].device));
        side_get(s, p[i].host_sums, p[i].sums, 2 * (size_t)r * sizeof(double));
        AGREES(k->ce_sum(ref, ref_stream, DTYPE_F64, want_sums, p[i].host_max, &p[i].host, &err));
        for (int64_t j = 0; j < 2 * r; j++) {
            assert_true(fabs(want_sums[j] - p[i].host_sums[j]) <= 1e-6 * fabs(want_sums[j]));
        }
    }
    parts_meet(p, 2 * r, false);
    for (int i = 0; i < PARTS; i++) {
        MUST(cudaMemcpyAsync(p[i].sums, p[i].host_sums, 2 * (size_t)r * sizeof(double),
                             cudaMemcpyHostToDevice, s));
        MUST(cuda_ce_finish(s, t, out, gradient ? p[i].dx.device : NULL, p[i].max, p[i].sums, 0.25,
                            &p[i].device));
        AGREES(k->ce_finish(ref, ref_stream, DTYPE_F64, nll, gradient ? p[i].dx.ref : NULL,
                            p[i].host_max, p[i].host_sums, 0.25, &p[i].host, &err));
        nll_agrees(s, out, nll, r);
        if (gradient) {
            numbers_agree(s, "dlogits", &p[i].dx, allowed(t));
        }
        numbers_free(&p[i].logits);
        side_free(p[i].max, 0);
        side_free(p[i].sums, 0);
    }
    free(targets);
    side_free(device, 0);
    side_free(out, 0);
    MUST(cudaStreamDestroy(s));
}

static void losses_in_parts_agree_with_the_reference(void **state)
{
    (void)state;
    for (int i = 0; i < NUM_SCHEDULES; i++) {
        schedule_take(i);
        enum dtype t = i % 2 ? DTYPE_BF16 : DTYPE_F32;
        check_parts(t, 1, 1, true, 0);
        check_parts(t, 5, 37, true, i % 3 ? 0 : dtype_size(t));
        check_parts(t, 3, SIZED(4100, 1100), i % 2, 0);
    }
}

static void losses_of_nothing_do_nothing(void **state)
{
    (void)state;
    schedule_take(0);
    cudaStream_t s = stream_open();
    int64_t before = cusim_counted().launches;
    struct logits_part p = {0};
    MUST(cuda_cross_entropy(s, DTYPE_F32, NULL, NULL, NULL, NULL, 1, 0, 5, 5));
    MUST(cuda_ce_max(s, DTYPE_F32, NULL, &p));
    MUST(cuda_ce_sum(s, DTYPE_BF16, NULL, NULL, &p));
    MUST(cuda_ce_finish(s, DTYPE_F32, NULL, NULL, NULL, NULL, 1, &p));
    assert_int_equal(cusim_counted().launches, before);
    p = (struct logits_part){.r = 1, .ld = 2, .valid = 3};
    assert_int_equal(cuda_ce_max(s, DTYPE_F32, NULL, &p), cudaErrorInvalidValue);
    MUST(cudaStreamDestroy(s));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_agree_with_the_reference),
        cmocka_unit_test(losses_of_extreme_logits_agree),
        cmocka_unit_test(losses_of_short_rows_far_below_zero_agree),
        cmocka_unit_test(a_logit_that_is_not_a_number_shows),
        cmocka_unit_test(losses_in_parts_agree_with_the_reference),
        cmocka_unit_test(losses_of_nothing_do_nothing),
    };
    return cmocka_run_group_tests(tests, open_ref, close_ref);
}
