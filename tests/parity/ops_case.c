#include "tests/parity/ops_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "tests/effort.h"

#define MAX_THREADS 3

struct side side_open(const char *backend, int num_threads)
{
    struct side side = {0};
    struct error err = {0};
    if (kernels_open(&(struct kernels_options){backend, num_threads, 0}, &side.dev, &side.k,
                     &err) != 0 ||
        side.dev->ops->stream_new(side.dev, STREAM_INLINE, &side.s, &err) != 0) {
        fail_msg("%s", err.text);
    }
    return side;
}

void side_close(struct side *side)
{
    side->dev->ops->stream_free(side->dev, side->s);
    side->dev->ops->close(side->dev);
}

void outputs_free(struct outputs *out)
{
    for (int i = 0; i < out->num; i++) {
        free(out->value[i]);
    }
    *out = (struct outputs){0};
}

static void *side_alloc(const struct side *side, size_t bytes)
{
    void *mem = side->dev->ops->alloc(side->dev, bytes, MEM_DEVICE);
    assert_non_null(mem);
    return mem;
}

void *side_upload(const struct side *side, enum dtype t, const double *value, int64_t n)
{
    void *mem = side_alloc(side, (size_t)n * dtype_size(t));
    for (int64_t i = 0; i < n; i++) {
        if (t == DTYPE_F64) {
            ((double *)mem)[i] = value[i];
        } else {
            ((float *)mem)[i] = (float)value[i];
        }
    }
    return mem;
}

void *side_draw_around(const struct side *side, enum dtype t, int64_t n, uint64_t seed, double size,
                       double centre)
{
    double *value = malloc((size_t)(n + 1) * sizeof *value);
    for (int64_t i = 0; i < n; i++) {
        double x = rng_normal(seed, rng_stream("ops"), (uint64_t)i) * (size == 0 ? 1 : size);
        value[i] = (double)(float)(x + centre);
    }
    void *mem = side_upload(side, t, value, n);
    free(value);
    return mem;
}

void *side_draw(const struct side *side, enum dtype t, int64_t n, uint64_t seed, double size)
{
    return side_draw_around(side, t, n, seed, size, 0);
}

void *side_zeros(const struct side *side, enum dtype t, int64_t n)
{
    return side_alloc(side, (size_t)n * dtype_size(t));
}

void *side_poison(const struct side *side, enum dtype t, int64_t n)
{
    void *mem = side_alloc(side, (size_t)n * dtype_size(t));
    memset(mem, 0xFF, (size_t)n * dtype_size(t));
    return mem;
}

int32_t *side_ints(const struct side *side, int64_t n, uint64_t seed, int64_t below)
{
    int32_t *mem = side_alloc(side, (size_t)n * sizeof *mem);
    for (int64_t i = 0; i < n; i++) {
        double x = fabs(rng_normal(seed, rng_stream("ids"), (uint64_t)i)) * 1e6;
        mem[i] = (int32_t)((int64_t)x % below);
    }
    return mem;
}

void side_output(const struct side *side, enum dtype t, const void *mem, int64_t n,
                 struct outputs *out)
{
    (void)side;
    assert_true(out->num < MAX_OUTPUTS);
    double *value = malloc((size_t)(n + 1) * sizeof *value);
    for (int64_t i = 0; i < n; i++) {
        value[i] = t == DTYPE_F64 ? ((const double *)mem)[i] : (double)((const float *)mem)[i];
    }
    out->value[out->num] = value;
    out->n[out->num] = n;
    out->num++;
}

static double largest(const double *x, int64_t n)
{
    double max = 0;
    for (int64_t i = 0; i < n; i++) {
        max = fabs(x[i]) > max ? fabs(x[i]) : max;
    }
    return max;
}

static void compare(const char *what, const struct outputs *want, const struct outputs *got,
                    double tolerance, double floor, bool per_element)
{
    assert_int_equal(want->num, got->num);
    for (int o = 0; o < want->num; o++) {
        assert_int_equal(want->n[o], got->n[o]);
        double max = fmax(largest(want->value[o], want->n[o]), floor);
        double worst = 0;
        for (int64_t i = 0; i < want->n[o]; i++) {
            double x = want->value[o][i];
            double y = got->value[o][i];
            if (!isfinite(x) || !isfinite(y)) {
                fail_msg("%s: output %d[%lld]: want %g, got %g", what, o, (long long)i, x, y);
            }
            double unit = per_element ? fabs(x) : max;
            double error = x == y ? 0 : fabs(x - y) / (unit > 0 ? unit : 1e-300);
            worst = error > worst ? error : worst;
            if (error > tolerance) {
                fail_msg("%s: output %d[%lld]: want %.17g, got %.17g: error %g of %g, allowed %g",
                         what, o, (long long)i, x, y, error, unit, tolerance);
            }
        }
        if (getenv("OPS_TEST_VERBOSE")) {
            printf("%-40s output %d: %.3g of %.3g\n", what, o, worst, tolerance);
        }
    }
}

static void assert_same_bits(const char *what, const struct outputs *a, const struct outputs *b,
                             int num_threads)
{
    for (int o = 0; o < a->num; o++) {
        if (memcmp(a->value[o], b->value[o], (size_t)a->n[o] * sizeof(double)) != 0) {
            fail_msg("%s: output %d differs between 1 and %d threads", what, o, num_threads);
        }
    }
}

static void run_on(const char *backend, int num_threads, op_run run, enum dtype t,
                   const struct shape *s, struct outputs *out)
{
    struct side side = side_open(backend, num_threads);
    run(&side, t, s, out);
    side_close(&side);
}

void check_parity(const char *what, op_run run, const struct shape *s, double ulps_f32,
                  bool per_element)
{
    static const enum dtype types[] = {DTYPE_F32, DTYPE_F64};
    struct outputs want = {0};
    run_on("ref", 1, run, DTYPE_F64, s, &want);
    for (int i = 0; i < 2; i++) {
        double tolerance = i == 0 ? ulps_f32 * 0x1p-24 : fmax(1e-12, ulps_f32 * 0x1p-53);
        char name[160];
        struct outputs one = {0};
        snprintf(name, sizeof name, "%s, ref f%d", what, i == 0 ? 32 : 64);
        run_on("ref", 1, run, types[i], s, &one);
        compare(name, &want, &one, tolerance, s->floor, per_element);
        outputs_free(&one);
        snprintf(name, sizeof name, "%s, cpu f%d", what, i == 0 ? 32 : 64);
        run_on("cpu", 1, run, types[i], s, &one);
        compare(name, &want, &one, tolerance, s->floor, per_element);
        for (int num_threads = effort(2, 2, MAX_THREADS); num_threads <= MAX_THREADS;
             num_threads++) {
            struct outputs more = {0};
            run_on("cpu", num_threads, run, types[i], s, &more);
            assert_same_bits(name, &one, &more, num_threads);
            outputs_free(&more);
        }
        outputs_free(&one);
    }
    outputs_free(&want);
}
