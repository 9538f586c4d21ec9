#include "tests/gpu/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/rng.h"
#include "kernels/host/bf16.h"

#define BLOCK ((int64_t)1 << 20)
#define LONG_MS 100.0

void bench_die(const struct error *err)
{
    fflush(stdout);
    fprintf(stderr, "gpu_bench: %s\n", err->text);
    exit(1);
}

void bench_open(struct bench *b, bool tiny)
{
    struct error err = {0};
    struct kernels_options options = {.backend = "cuda", .num_threads = 1};
    *b = (struct bench){.tiny = tiny};
    BENCH_TRY(kernels_open(&options, &b->dev, &b->k, &err));
    BENCH_TRY(b->dev->ops->stream_new(b->dev, STREAM_INLINE, &b->s, &err));
}

void bench_close(struct bench *b)
{
    struct error err = {0};
    BENCH_TRY(b->dev->ops->stream_sync(b->dev, b->s, &err));
    b->dev->ops->stream_free(b->dev, b->s);
    b->dev->ops->close(b->dev);
}

void *bench_zeros(struct bench *b, size_t bytes)
{
    void *mem = b->dev->ops->alloc(b->dev, bytes > 0 ? bytes : 1, MEM_DEVICE);
    if (mem == NULL) {
        struct error err = {0};
        error_set(&err, ERR_RESOURCE_EXHAUSTED, "no room for %zu bytes", bytes);
        bench_die(&err);
    }
    return mem;
}

/* The first block comes from the host, the rest is copied behind it. */
void *bench_numbers(struct bench *b, enum dtype t, int64_t n, uint64_t seed)
{
    struct error err = {0};
    size_t size = dtype_size(t);
    int64_t num = n < BLOCK ? n : BLOCK;
    char *mem = bench_zeros(b, (size_t)n * size);
    void *host = b->dev->ops->alloc(b->dev, (size_t)num * size, MEM_HOST);
    if (host == NULL) {
        error_set(&err, ERR_RESOURCE_EXHAUSTED, "no host memory");
        bench_die(&err);
    }
    for (int64_t i = 0; i < num; i++) {
        float x = (float)(2.0 * rng_uniform(seed, 1, (uint64_t)i) - 1.0);
        if (t == DTYPE_BF16)
            ((uint16_t *)host)[i] = bf16_of(x);
        else
            ((float *)host)[i] = x;
    }
    const struct device_ops *ops = b->dev->ops;
    BENCH_TRY(ops->copy(b->dev, b->s, mem, host, (size_t)num * size, COPY_TO_DEVICE, &err));
    for (int64_t at = num; at < n; at += num) {
        int64_t part = n - at < num ? n - at : num;
        BENCH_TRY(ops->copy(b->dev, b->s, mem + (size_t)at * size, mem, (size_t)part * size,
                            COPY_ON_DEVICE, &err));
    }
    BENCH_TRY(ops->stream_sync(b->dev, b->s, &err));
    ops->free(b->dev, host);
    return mem;
}

float *bench_read(struct bench *b, enum dtype t, const void *mem, int64_t n)
{
    struct error err = {0};
    const struct device_ops *ops = b->dev->ops;
    size_t bytes = (size_t)n * dtype_size(t);
    void *host = ops->alloc(b->dev, bytes, MEM_HOST);
    float *out = malloc((size_t)n * sizeof(*out));
    if (host == NULL || out == NULL) {
        error_set(&err, ERR_RESOURCE_EXHAUSTED, "no host memory");
        bench_die(&err);
    }
    BENCH_TRY(ops->copy(b->dev, b->s, host, mem, bytes, COPY_TO_HOST, &err));
    BENCH_TRY(ops->stream_sync(b->dev, b->s, &err));
    for (int64_t i = 0; i < n; i++)
        out[i] = t == DTYPE_BF16 ? bf16_float(((uint16_t *)host)[i]) : ((float *)host)[i];
    ops->free(b->dev, host);
    return out;
}

static double run_ms(struct bench *b, bench_fn fn, void *arg, int num)
{
    struct error err = {0};
    int64_t start_ns = clock_mono_ns();
    for (int i = 0; i < num; i++)
        BENCH_TRY(fn(b, arg, &err));
    BENCH_TRY(b->dev->ops->stream_sync(b->dev, b->s, &err));
    return (double)(clock_mono_ns() - start_ns) / 1e6;
}

double bench_ms(struct bench *b, bench_fn fn, void *arg)
{
    run_ms(b, fn, arg, 1);
    if (b->tiny)
        return run_ms(b, fn, arg, 1);
    double one = run_ms(b, fn, arg, 3) / 3;
    int num = one > 0 ? (int)(LONG_MS / one) : 100;
    num = num < 3 ? 3 : num > 1000 ? 1000 : num;
    return run_ms(b, fn, arg, num) / num;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    bool tiny = argc > 2 && strcmp(argv[2], "tiny") == 0;
    if (strcmp(what, "attention") == 0)
        return bench_attention(tiny);
    if (strcmp(what, "gemm") == 0)
        return bench_gemm(tiny);
    if (strcmp(what, "copy") == 0)
        return bench_copy(tiny);
    if (strcmp(what, "comm") == 0 && argc > 3)
        return bench_comm(tiny, atoi(argv[3]));
    fprintf(stderr, "gpu_bench attention|gemm|copy full|tiny, gpu_bench comm full|tiny RANKS\n");
    return 2;
}
