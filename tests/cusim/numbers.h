/* Numbers that lie on a simulated device in one type and, the same, on the host in f64: what a CUDA
 * kernel computes is compared with what the reference backend does. */
#ifndef TANDEM_TESTS_CUSIM_NUMBERS_H
#define TANDEM_TESTS_CUSIM_NUMBERS_H

#include "tests/cusim/side.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>

#include "base/rng.h"
#include "kernels/cuda/launch.h"
#include "kernels/kernels.h"
#include "tests/effort.h"

/* The reference, in f64 on the same numbers. */
static struct device *ref;
static struct stream *ref_stream;
static struct error err;

static inline int open_ref(void **state)
{
    (void)state;
    return device_open_ref(&ref, &err) ||
           ref->ops->stream_new(ref, STREAM_INLINE, &ref_stream, &err);
}

static inline int close_ref(void **state)
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

static inline float as_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline void encode(enum dtype t, void *to, int64_t i, float x)
{
    if (t == DTYPE_F32) {
        ((float *)to)[i] = x;
    } else if (t == DTYPE_F64) {
        ((double *)to)[i] = (double)x;
    } else {
        uint32_t bits;
        memcpy(&bits, &x, sizeof bits);
        ((uint16_t *)to)[i] = (uint16_t)(bits >> 16);
    }
}

static inline double decode(enum dtype t, const void *from, int64_t i)
{
    if (t == DTYPE_F32) {
        return (double)((const float *)from)[i];
    }
    if (t == DTYPE_F64) {
        return ((const double *)from)[i];
    }
    uint32_t bits = (uint32_t)((const uint16_t *)from)[i] << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return (double)x;
}

static inline struct numbers numbers_draw(cudaStream_t s, enum dtype t, int64_t n, uint64_t seed,
                                          bool positive, size_t skip)
{
    struct numbers x = {t, n, skip, malloc((size_t)(n + 1) * sizeof(double)), NULL};
    void *host = malloc((size_t)(n + 1) * dtype_size(t));
    for (int64_t i = 0; i < n; i++) {
        float f = (float)rng_normal(seed, rng_stream("cusim"), (uint64_t)i);
        f = positive ? fabsf(f) : f;
        f = t == DTYPE_BF16 ? as_bf16(f) : f;
        x.ref[i] = (double)f;
        encode(t, host, i, f);
    }
    x.device = side_put_at(s, host, (size_t)n * dtype_size(t), skip);
    free(host);
    return x;
}

static inline struct numbers numbers_none(cudaStream_t s, enum dtype t, int64_t n, size_t skip)
{
    struct numbers x = {t, n, skip, calloc((size_t)(n + 1), sizeof(double)), NULL};
    x.device = side_put_at(s, NULL, (size_t)n * dtype_size(t), skip);
    return x;
}

static inline void numbers_free(struct numbers *x)
{
    side_free(x->device, x->skip);
    free(x->ref);
}

/* Within `part` of the largest number, or of 1: a gradient may cancel. */
static inline void numbers_agree(cudaStream_t s, const char *what, const struct numbers *x,
                                 double part)
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

static inline double allowed(enum dtype t)
{
    return t == DTYPE_BF16 ? 1.5 * 0x1p-8 : t == DTYPE_F32 ? 24 * 0x1p-24 : 0x1p-50;
}

/* Words on the device, once the stream has come so far. */
static inline double double_of(cudaStream_t s, const void *device)
{
    double x;
    side_get(s, &x, device, sizeof x);
    return x;
}

/* Sanitizers are slow, and find in few blocks what they find in many. */
#ifdef CUSIM_PLAIN
#define SIZED(usual, sanitized) (usual)
#else
#define SIZED(usual, sanitized) (sanitized)
#endif

#define AGREES(call) assert_int_equal((call), 0)

#endif
