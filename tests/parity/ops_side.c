/* A side's memory: what is drawn, what goes there and what comes back. */
#include "tests/parity/ops_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "kernels/host/bf16.h"

#define MAX_HELD 64

struct held {
    int num;
    void *mem[MAX_HELD];
    void *staging; /* host memory that copies go through */
    size_t staging_bytes;
};

static void must(int rc, const struct error *err)
{
    if (rc != 0) {
        fail_msg("%s", err->text);
    }
}

struct side side_open(const char *backend, int num_threads)
{
    struct side side = {.held = calloc(1, sizeof(struct held))};
    struct error err = {0};
    struct kernels_options options = {.backend = backend, .num_threads = num_threads};
    must(kernels_open(&options, &side.dev, &side.k, &err), &err);
    must(side.dev->ops->stream_new(side.dev, STREAM_INLINE, &side.s, &err), &err);
    return side;
}

void side_release(struct side *side)
{
    struct held *h = side->held;
    for (int i = 0; i < h->num; i++) {
        side->dev->ops->free(side->dev, h->mem[i]);
    }
    h->num = 0;
}

void side_close(struct side *side)
{
    side_release(side);
    side->dev->ops->free(side->dev, side->held->staging);
    side->dev->ops->stream_free(side->dev, side->s);
    side->dev->ops->close(side->dev);
    free(side->held);
}

/* No byte more than asked for: what lies behind is not the operation's. */
static void *side_alloc(const struct side *side, size_t size, int64_t n)
{
    struct held *h = side->held;
    size_t bytes = (size_t)(n + side->skip) * size;
    assert_true(h->num < MAX_HELD);
    char *mem = side->dev->ops->alloc(side->dev, bytes > 0 ? bytes : 1, MEM_DEVICE);
    assert_non_null(mem);
    h->mem[h->num++] = mem;
    return mem + (size_t)side->skip * size;
}

static void *staging(const struct side *side, size_t bytes)
{
    struct held *h = side->held;
    if (h->staging_bytes < bytes) {
        side->dev->ops->free(side->dev, h->staging);
        h->staging = side->dev->ops->alloc(side->dev, bytes, MEM_HOST);
        assert_non_null(h->staging);
        h->staging_bytes = bytes;
    }
    return h->staging;
}

/* From or to the staging memory. */
static void copy(const struct side *side, void *dst, const void *src, size_t bytes,
                 enum copy_kind kind)
{
    struct error err = {0};
    const struct device_ops *ops = side->dev->ops;
    if (bytes > 0) {
        must(ops->copy(side->dev, side->s, dst, src, bytes, kind, &err), &err);
    }
    must(ops->stream_sync(side->dev, side->s, &err), &err);
}

void *side_upload(const struct side *side, enum dtype t, const double *value, int64_t n)
{
    size_t bytes = (size_t)n * dtype_size(t);
    void *mem = side_alloc(side, dtype_size(t), n);
    void *host = staging(side, bytes);
    for (int64_t i = 0; i < n; i++) {
        if (t == DTYPE_F64) {
            ((double *)host)[i] = value[i];
        } else if (t == DTYPE_F32) {
            ((float *)host)[i] = (float)value[i];
        } else {
            ((uint16_t *)host)[i] = bf16_of((float)value[i]);
        }
    }
    copy(side, mem, host, bytes, COPY_TO_DEVICE);
    return mem;
}

double *side_download(const struct side *side, enum dtype t, const void *mem, int64_t n)
{
    size_t bytes = (size_t)n * dtype_size(t);
    void *host = staging(side, bytes);
    double *value = malloc((size_t)(n + 1) * sizeof *value);
    copy(side, host, mem, bytes, COPY_TO_HOST);
    for (int64_t i = 0; i < n; i++) {
        value[i] = t == DTYPE_F64   ? ((const double *)host)[i]
                   : t == DTYPE_F32 ? (double)((const float *)host)[i]
                                    : (double)bf16_float(((const uint16_t *)host)[i]);
    }
    return value;
}

static double rounded(enum dtype exact, double x)
{
    return exact == DTYPE_BF16 ? (double)bf16_float(bf16_of((float)x)) : (double)(float)x;
}

static uint64_t base_seed(void)
{
    const char *seed = getenv("TANDEM_PARITY_SEED");
    return seed ? strtoull(seed, NULL, 10) * 1000 : 0;
}

double *draw_numbers(enum dtype exact, int64_t n, uint64_t seed, double size, double centre)
{
    double *value = malloc((size_t)(n + 1) * sizeof *value);
    uint64_t from = base_seed() + seed;
    for (int64_t i = 0; i < n; i++) {
        double x = rng_normal(from, rng_stream("ops"), (uint64_t)i) * (size == 0 ? 1 : size);
        value[i] = rounded(exact, x + centre);
    }
    return value;
}

static void *upload_and_free(const struct side *side, enum dtype t, double *value, int64_t n)
{
    void *mem = side_upload(side, t, value, n);
    free(value);
    return mem;
}

static void spoil(const struct side *side, double *value, int64_t n, uint64_t seed)
{
    if (side->nan_at > 0 && side->nan_of == seed && n > 0) {
        value[(side->nan_at - 1) % n] = (double)NAN;
    }
}

void *side_draw_around(const struct side *side, enum dtype t, int64_t n, uint64_t seed, double size,
                       double centre)
{
    double *value = draw_numbers(side->exact, n, seed, size, centre);
    spoil(side, value, n, seed);
    return upload_and_free(side, t, value, n);
}

void *side_draw(const struct side *side, enum dtype t, int64_t n, uint64_t seed, double size)
{
    return side_draw_around(side, t, n, seed, size, 0);
}

void *side_draw_wide(const struct side *side, enum dtype t, int64_t n, uint64_t seed, double size)
{
    double *value = draw_numbers(DTYPE_F32, n, seed, size, 0);
    spoil(side, value, n, seed);
    return upload_and_free(side, dtype_wide(t), value, n);
}

static void *fill(const struct side *side, size_t size, int64_t n, int byte)
{
    size_t bytes = (size_t)n * size;
    void *mem = side_alloc(side, size, n);
    void *host = staging(side, bytes);
    if (bytes > 0) {
        memset(host, byte, bytes);
    }
    copy(side, mem, host, bytes, COPY_TO_DEVICE);
    return mem;
}

void *side_zeros(const struct side *side, enum dtype t, int64_t n)
{
    return fill(side, dtype_size(t), n, 0);
}

void *side_poison(const struct side *side, enum dtype t, int64_t n)
{
    return fill(side, dtype_size(t), n, 0xFF);
}

/* As the runtime has them: aligned. */
void *side_poison_bytes(const struct side *side, size_t bytes)
{
    struct side aligned = *side;
    aligned.skip = 0;
    return fill(&aligned, 1, (int64_t)bytes, 0xFF);
}

int32_t *draw_ints(int64_t n, uint64_t seed, int64_t below)
{
    int32_t *value = malloc((size_t)(n + 1) * sizeof *value);
    uint64_t from = base_seed() + seed;
    for (int64_t i = 0; i < n; i++) {
        double x = fabs(rng_normal(from, rng_stream("ids"), (uint64_t)i)) * 1e6;
        value[i] = (int32_t)((int64_t)x % below);
    }
    return value;
}

int32_t *side_upload_ints(const struct side *side, const int32_t *value, int64_t n)
{
    size_t bytes = (size_t)n * sizeof *value;
    void *mem = side_alloc(side, sizeof *value, n);
    void *host = staging(side, bytes);
    if (bytes > 0) {
        memcpy(host, value, bytes);
    }
    copy(side, mem, host, bytes, COPY_TO_DEVICE);
    return mem;
}

int32_t *side_ints(const struct side *side, int64_t n, uint64_t seed, int64_t below)
{
    int32_t *value = draw_ints(n, seed, below);
    int32_t *mem = side_upload_ints(side, value, n);
    free(value);
    return mem;
}

void side_output(const struct side *side, enum dtype t, const void *mem, int64_t n,
                 struct outputs *out)
{
    assert_true(out->num < MAX_OUTPUTS);
    out->value[out->num] = side_download(side, t, mem, n);
    out->n[out->num] = n;
    out->t[out->num] = t;
    out->num++;
}

static void *pass(const struct side *side, enum dtype t, enum dtype exact, const void *mem,
                  int64_t n, struct outputs *out)
{
    side_output(side, t, mem, n, out);
    const double *from = (side->truth ? side->truth : out)->value[out->num - 1];
    double *value = malloc((size_t)(n + 1) * sizeof *value);
    for (int64_t i = 0; i < n; i++) {
        value[i] = rounded(exact, from[i]);
    }
    return upload_and_free(side, t, value, n);
}

void *side_pass(const struct side *side, enum dtype t, const void *mem, int64_t n,
                struct outputs *out)
{
    return pass(side, t, side->exact, mem, n, out);
}

void *side_pass_wide(const struct side *side, enum dtype t, const void *mem, int64_t n,
                     struct outputs *out)
{
    return pass(side, dtype_wide(t), DTYPE_F32, mem, n, out);
}

void outputs_free(struct outputs *out)
{
    for (int i = 0; i < out->num; i++) {
        free(out->value[i]);
    }
    *out = (struct outputs){0};
}
