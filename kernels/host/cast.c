/* Conversions between types of numbers; every host backend uses the same. */
#include "kernels/host/loops.h"

#include <string.h>

#include "kernels/host/bf16.h"

#define CAST_BLOCK INT64_C(65536)

typedef void (*cast_fn)(void *dst, const void *src, int64_t begin, int64_t end);

static void f32_to_f64(void *dst, const void *src, int64_t begin, int64_t end)
{
    double *d = dst;
    const float *s = src;
    for (int64_t i = begin; i < end; i++) {
        d[i] = s[i];
    }
}

static void f64_to_f32(void *dst, const void *src, int64_t begin, int64_t end)
{
    float *d = dst;
    const double *s = src;
    for (int64_t i = begin; i < end; i++) {
        d[i] = (float)s[i];
    }
}

static void f32_to_f32(void *dst, const void *src, int64_t begin, int64_t end)
{
    memmove((float *)dst + begin, (const float *)src + begin, (size_t)(end - begin) * 4);
}

static void f64_to_f64(void *dst, const void *src, int64_t begin, int64_t end)
{
    memmove((double *)dst + begin, (const double *)src + begin, (size_t)(end - begin) * 8);
}

static void f32_to_bf16(void *dst, const void *src, int64_t begin, int64_t end)
{
    uint16_t *d = dst;
    const float *s = src;
    for (int64_t i = begin; i < end; i++) {
        d[i] = bf16_of(s[i]);
    }
}

static void bf16_to_f32(void *dst, const void *src, int64_t begin, int64_t end)
{
    float *d = dst;
    const uint16_t *s = src;
    for (int64_t i = begin; i < end; i++) {
        d[i] = bf16_float(s[i]);
    }
}

static void bf16_to_f64(void *dst, const void *src, int64_t begin, int64_t end)
{
    double *d = dst;
    const uint16_t *s = src;
    for (int64_t i = begin; i < end; i++) {
        d[i] = bf16_float(s[i]);
    }
}

/* By way of f32: what is rounded twice is off by no more than a hair over half a unit. */
static void f64_to_bf16(void *dst, const void *src, int64_t begin, int64_t end)
{
    uint16_t *d = dst;
    const double *s = src;
    for (int64_t i = begin; i < end; i++) {
        d[i] = bf16_of((float)s[i]);
    }
}

static void bf16_to_bf16(void *dst, const void *src, int64_t begin, int64_t end)
{
    memmove((uint16_t *)dst + begin, (const uint16_t *)src + begin, (size_t)(end - begin) * 2);
}

static cast_fn choose(enum dtype dst, enum dtype src)
{
    static const cast_fn table[3][3] = {
        [DTYPE_F32] =
            {[DTYPE_F32] = f32_to_f32, [DTYPE_F64] = f64_to_f32, [DTYPE_BF16] = bf16_to_f32},
        [DTYPE_F64] =
            {[DTYPE_F32] = f32_to_f64, [DTYPE_F64] = f64_to_f64, [DTYPE_BF16] = bf16_to_f64},
        [DTYPE_BF16] =
            {[DTYPE_F32] = f32_to_bf16, [DTYPE_F64] = f64_to_bf16, [DTYPE_BF16] = bf16_to_bf16},
    };
    return (unsigned)dst < 3 && (unsigned)src < 3 ? table[dst][src] : NULL;
}

bool cast_is_known(enum dtype dst, enum dtype src)
{
    return choose(dst, src) != NULL;
}

static void cast_task(void *arg, int64_t task, int thread)
{
    (void)thread;
    const struct cast_args *a = arg;
    int64_t begin = task * CAST_BLOCK;
    int64_t end = begin + CAST_BLOCK < a->n ? begin + CAST_BLOCK : a->n;
    choose(a->dst_t, a->src_t)(a->dst, a->src, begin, end);
}

void cast_loop(struct pool *pool, const void *args)
{
    struct cast_args a = *(const struct cast_args *)args;
    pool_run(pool, (a.n + CAST_BLOCK - 1) / CAST_BLOCK, cast_task, &a);
}
