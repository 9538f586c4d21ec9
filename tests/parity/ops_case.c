#include "tests/parity/ops_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/effort.h"

#define MAX_THREADS 3
#define ROUNDING_BF16 0x1p-8
#define NORM_DX 2 /* dx among the outputs of a norm */

static const char *const type_names[] = {"f32", "f64", "bf16"};

static double largest(const double *x, int64_t n)
{
    double max = 0;
    for (int64_t i = 0; i < n; i++) {
        max = fabs(x[i]) > max ? fabs(x[i]) : max;
    }
    return max;
}

/* What is allowed besides the rounding of the result, as a part of a unit: the largest number or
 * the number itself. */
struct bar {
    double sums, floor;
    double floor_dx; /* of a norm's dx, where it is larger */
    bool per_element;
    bool spreads; /* a NaN may come out in more places */
    bool biased;  /* errors may be of one sign */
};

static void compare_output(const char *what, int o, const double *want, const double *got,
                           int64_t n, enum dtype t, const struct bar *bar)
{
    double max =
        fmax(largest(want, n), o == NORM_DX ? fmax(bar->floor, bar->floor_dx) : bar->floor);
    double worst = 0;
    for (int64_t i = 0; i < n; i++) {
        double x = want[i];
        double y = got[i];
        if (!isfinite(x) || !isfinite(y)) {
            if ((bar->spreads && isnan(y)) || x == y || (isnan(x) && isnan(y))) {
                continue;
            }
            fail_msg("%s: output %d[%lld]: want %g, got %g", what, o, (long long)i, x, y);
        }
        double unit = bar->per_element ? fabs(x) : max;
        double allowed = bar->sums * unit;
        if (t == DTYPE_BF16) {
            allowed += ROUNDING_BF16 * fabs(x) + 0x1p-134;
        }
        double error = fabs(x - y);
        double part = error == 0 ? 0 : error / (allowed > 0 ? allowed : 1e-300);
        worst = part > worst ? part : worst;
        if (part > 1) {
            fail_msg("%s: output %d[%lld]: want %.17g, got %.17g: error %g, allowed %g, unit %g",
                     what, o, (long long)i, x, y, error, allowed, unit);
        }
    }
    if (getenv("OPS_TEST_VERBOSE")) {
        printf("%-48s output %d: %.3g of what is allowed\n", what, o, worst);
    }
}

/* Rounding goes both ways: over many numbers the errors, in units of each number's own, are of no
 * one sign. What cuts digits off would pass where a bar has room for it, and pulls all weights to
 * zero. */
#define MIN_UNBIASED 512

static void check_bias(const char *what, int o, const double *want, const double *got, int64_t n)
{
    double sum = 0;
    int64_t num = 0;
    for (int64_t i = 0; i < n; i++) {
        double unit = ROUNDING_BF16 * want[i];
        if (isfinite(unit) && unit != 0 && isfinite(got[i])) {
            double error = (got[i] - want[i]) / unit;
            sum += fmin(fmax(error, -2), 2);
            num++;
        }
    }
    if (num >= MIN_UNBIASED && fabs(sum / (double)num) > 0.3) {
        fail_msg("%s: output %d: numbers are off by %.2f of a rounding in the mean", what, o,
                 sum / (double)num);
    }
}

static void compare(const char *what, const struct outputs *want, const struct outputs *got,
                    const struct bar *bar)
{
    assert_int_equal(want->num, got->num);
    for (int o = 0; o < want->num; o++) {
        assert_int_equal(want->n[o], got->n[o]);
        compare_output(what, o, want->value[o], got->value[o], want->n[o], got->t[o], bar);
        if (got->t[o] == DTYPE_BF16 && !bar->biased) {
            check_bias(what, o, want->value[o], got->value[o], want->n[o]);
        }
    }
}

static void assert_same_bits(const char *what, const struct outputs *a, const struct outputs *b,
                             const char *than)
{
    for (int o = 0; o < a->num; o++) {
        if (memcmp(a->value[o], b->value[o], (size_t)a->n[o] * sizeof(double)) != 0) {
            fail_msg("%s: output %d differs %s", what, o, than);
        }
    }
}

/* What is compared now, and the truth for it. */
struct trial {
    const char *what;
    op_run run;
    const struct shape *s;
    enum dtype t;
    struct outputs want;
    struct bar bar;
};

static void run_on(struct side *side, const struct trial *trial, enum dtype t, struct outputs *out)
{
    side->skip = trial->s->skip;
    side->nan_at = trial->s->nan_at;
    side->nan_of = trial->s->nan_of;
    side->exact = trial->t == DTYPE_BF16 ? DTYPE_BF16 : DTYPE_F32;
    side->truth = trial->want.num > 0 ? &trial->want : NULL;
    trial->run(side, t, trial->s, out);
    side_release(side);
}

static void run_on_host(const char *backend, int num_threads, const struct trial *trial,
                        enum dtype t, struct outputs *out)
{
    struct side side = side_open(backend, num_threads);
    run_on(&side, trial, t, out);
    side_close(&side);
}

static const char *name_of(const struct trial *trial, const char *backend, char *name, size_t size)
{
    snprintf(name, size, "%s, %s %s", trial->what, backend, type_names[trial->t]);
    return name;
}

static void check_hosts(const struct trial *trial)
{
    char name[160];
    struct outputs one = {0};
    run_on_host("ref", 1, trial, trial->t, &one);
    compare(name_of(trial, "ref", name, sizeof name), &trial->want, &one, &trial->bar);
    outputs_free(&one);
    run_on_host("cpu", 1, trial, trial->t, &one);
    compare(name_of(trial, "cpu", name, sizeof name), &trial->want, &one, &trial->bar);
    for (int num = effort(2, 2, MAX_THREADS); num <= MAX_THREADS; num++) {
        struct outputs more = {0};
        run_on_host("cpu", num, trial, trial->t, &more);
        assert_same_bits(name, &one, &more, num == 2 ? "with 2 threads" : "with 3 threads");
        outputs_free(&more);
    }
    outputs_free(&one);
}

/* The device is opened once: that takes long. */
static void check_accelerator(const char *backend, const struct trial *trial)
{
    static struct side side;
    char name[160];
    struct outputs one = {0};
    struct outputs again = {0};
    if (trial->t == DTYPE_F64) {
        return;
    }
    if (!side.dev) {
        side = side_open(backend, 1);
    }
    run_on(&side, trial, trial->t, &one);
    compare(name_of(trial, backend, name, sizeof name), &trial->want, &one, &trial->bar);
    run_on(&side, trial, trial->t, &again);
    assert_same_bits(name, &one, &again, "in a second run");
    outputs_free(&one);
    outputs_free(&again);
}

static int64_t number_of(const char *variable, int64_t otherwise)
{
    const char *text = getenv(variable);
    return text ? strtoll(text, NULL, 10) : otherwise;
}

/* Each n-th case, another one of n for each seed. */
static bool is_left_out(void)
{
    static int64_t num_cases;
    int64_t stride = number_of("TANDEM_PARITY_STRIDE", 1);
    stride = effort(1, (int)stride, 4 * (int)stride);
    return stride > 1 && (num_cases++ + number_of("TANDEM_PARITY_SEED", 0)) % stride != 0;
}

static struct shape held_down(const struct shape *s)
{
    struct shape out = *s;
    int64_t *sides[] = {&out.r, &out.d, &out.n, &out.m, &out.k, &out.b, &out.t};
    int64_t most = number_of("TANDEM_PARITY_LARGEST", INT64_MAX);
    for (size_t i = 0; i < sizeof sides / sizeof *sides; i++) {
        *sides[i] = *sides[i] > most ? most : *sides[i];
    }
    return out;
}

void check_parity(const char *what, op_run run, const struct shape *s, double ulps_f32,
                  bool per_element)
{
    const char *backend = getenv("TANDEM_PARITY_BACKEND");
    bool hosts = !backend || strcmp(backend, "host") == 0;
    struct shape shape = held_down(s);
    if (is_left_out()) {
        return;
    }
    struct outputs want = {0};
    for (int t = DTYPE_F32; t <= DTYPE_BF16; t++) {
        struct trial trial = {
            .what = what,
            .run = run,
            .s = &shape,
            .t = (enum dtype)t,
            .bar = {0, s->floor, s->floor_dx, per_element, s->nan_spreads, s->biased}};
        trial.bar.sums = t == DTYPE_F64 ? fmax(1e-12, ulps_f32 * 0x1p-53) : ulps_f32 * 0x1p-24;
        /* GELU behind a product is of C as it was rounded, on all backends that round it. */
        trial.bar.sums += t == DTYPE_BF16 && (!hosts || s->gelu) ? s->ulps_bf16 * ROUNDING_BF16 : 0;
        if (t != DTYPE_F64) { /* f64 gets the numbers of f32 */
            outputs_free(&want);
            run_on_host("ref", 1, &trial, DTYPE_F64, &want);
        }
        trial.want = want;
        if (hosts) {
            check_hosts(&trial);
        } else {
            check_accelerator(backend, &trial);
        }
    }
    outputs_free(&want);
}
