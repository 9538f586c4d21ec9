/* kernels_bench [THREADS]: how near the cpu backend's operations come to what this machine can do.
 * Prints ratios: matrix work against the best matrix product measured in the same run, the rest
 * against the bandwidth of a plain copy. Absolute figures stand beside them for orientation only.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "kernels/cpu/peak.h"
#include "kernels/host/level.h"
#include "kernels/kernels.h"

static struct device *dev;
static const struct kernels *k;
static struct stream *stream;
static struct error err;
static double peak;      /* FLOP/s of all threads */
static double bandwidth; /* bytes/s of a copy, read and written counted */

static void must(int rc)
{
    if (rc != 0) {
        fprintf(stderr, "kernels_bench: %s\n", err.text);
        exit(1);
    }
}

static void *device_mem(size_t bytes)
{
    void *mem = dev->ops->alloc(dev, bytes, MEM_DEVICE);
    if (!mem) {
        fprintf(stderr, "kernels_bench: no memory for %zu bytes\n", bytes);
        exit(1);
    }
    return mem;
}

static float *numbers(int64_t n)
{
    float *x = device_mem((size_t)n * sizeof *x);
    uint32_t seed = 1;
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = (float)(int32_t)seed * 0x1p-31f;
    }
    return x;
}

static void *numbers_bf16(int64_t n)
{
    void *low = device_mem((size_t)n * dtype_size(DTYPE_BF16));
    must(k->cast(dev, stream, low, DTYPE_BF16, numbers(n), DTYPE_F32, n, &err));
    return low;
}

/* One thread is timed by the processor time that it got, so that a busy machine counts less. */
static int64_t now_ns(void)
{
    struct timespec t;
    bool one = dev->ops->num_threads(dev) == 1;
    clock_gettime(one ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* The best of the runs that fit in about 0.1 s. */
static double best_seconds(void (*fn)(void *), void *arg)
{
    fn(arg);
    double best = 1e30;
    int64_t start = now_ns();
    int64_t end;
    do {
        int64_t begin = now_ns();
        fn(arg);
        end = now_ns();
        double s = 1e-9 * (double)(end - begin);
        best = s < best ? s : best;
    } while (end - start < 100000000);
    return best;
}

static void report_flops(const char *what, double flops, double seconds)
{
    printf("%-44s %6.1f us  %5.1f %% of peak  (%.0f GFLOP/s)\n", what, seconds * 1e6,
           100 * flops / seconds / peak, flops / seconds * 1e-9);
}

static void report_bytes(const char *what, double bytes, double seconds)
{
    printf("%-44s %6.1f us  %5.1f %% of copy  (%.1f GB/s)\n", what, seconds * 1e6,
           100 * bytes / seconds / bandwidth, bytes / seconds * 1e-9);
}

/* ---- matrix products ---- */

static void run_gemm(void *arg)
{
    must(k->gemm(dev, stream, DTYPE_F32, arg, &err));
}

static void run_gemm_bf16(void *arg)
{
    must(k->gemm(dev, stream, DTYPE_BF16, arg, &err));
}

static void bench_gemm(const char *what, int64_t m, int64_t n, int64_t kk, bool ta, bool tb,
                       double beta)
{
    struct gemm_args g = {.trans_a = ta,
                          .trans_b = tb,
                          .m = m,
                          .n = n,
                          .k = kk,
                          .alpha = 1,
                          .beta = beta,
                          .a = numbers(m * kk),
                          .lda = ta ? m : kk,
                          .b = numbers(kk * n),
                          .ldb = tb ? kk : n,
                          .c = numbers(m * n),
                          .ldc = n};
    char text[80];
    snprintf(text, sizeof text, "gemm %s %lldx%lldx%lld", what, (long long)m, (long long)n,
             (long long)kk);
    double flops = 2.0 * (double)m * (double)n * (double)kk;
    report_flops(text, flops, best_seconds(run_gemm, &g));
    g.a = numbers_bf16(m * kk);
    g.b = numbers_bf16(kk * n);
    g.c = numbers(m * n); /* gradients of weights are summed up in fp32 */
    g.c_type = beta == 0 ? DTYPE_BF16 : DTYPE_F32;
    snprintf(text, sizeof text, "     bf16");
    report_flops(text, flops, best_seconds(run_gemm_bf16, &g));
}

/* The three products of a layer y = x w^T, x [r,in], w [out,in]. */
static void bench_linear(int64_t r, int64_t in, int64_t out)
{
    bench_gemm("fwd", r, out, in, false, true, 0);
    bench_gemm("dx ", r, in, out, false, false, 0);
    bench_gemm("dw ", out, in, r, true, false, 1);
}

/* ---- attention ---- */

static void run_attention_fwd(void *arg)
{
    must(k->attention_fwd(dev, stream, DTYPE_F32, arg, &err));
}

static void run_attention_bwd(void *arg)
{
    must(k->attention_bwd(dev, stream, DTYPE_F32, arg, &err));
}

/* Rows that hold `documents` documents each; of work, only what queries see counts. */
static void bench_attention(int64_t b, int64_t t, int64_t h, int64_t kv, int64_t e,
                            int64_t documents)
{
    int32_t *segments = device_mem((size_t)(b * t) * sizeof *segments);
    for (int64_t i = 0; i < b * t; i++) {
        segments[i] = (int32_t)(i % t * documents / t);
    }
    int64_t nq = b * t * h * e;
    int64_t nk = b * t * kv * e;
    struct attention_args a = {
        .b = b,
        .t = t,
        .h = h,
        .kv = kv,
        .e = e,
        .scale = 0.1,
        .q = numbers(nq),
        .k = numbers(nk),
        .v = numbers(nk),
        .segments = documents > 1 ? segments : NULL,
        .o = numbers(nq),
        .lse = numbers(b * h * t),
        .d_o = numbers(nq),
        .dq = numbers(nq),
        .dk = numbers(nk),
        .dv = numbers(nk),
        .workspace = device_mem(k->attention_workspace(dev, DTYPE_F32, b, t, h, kv, e)),
    };
    double seen = (double)t * (double)(t / documents + 1) / 2;
    double flops = 2.0 * 2 * (double)(b * h * e) * seen;
    char text[80];
    snprintf(text, sizeof text, "attention fwd B%lld T%lld/%lld H%lld K%lld E%lld", (long long)b,
             (long long)t, (long long)documents, (long long)h, (long long)kv, (long long)e);
    report_flops(text, flops, best_seconds(run_attention_fwd, &a));
    snprintf(text, sizeof text, "attention bwd B%lld T%lld/%lld H%lld K%lld E%lld", (long long)b,
             (long long)t, (long long)documents, (long long)h, (long long)kv, (long long)e);
    report_flops(text, flops * 2.5, best_seconds(run_attention_bwd, &a));
}

/* ---- operations bound by memory ---- */

struct vectors {
    int64_t r, d, n;
    float *x, *y, *z, *u, *v, *w, *mean, *rstd, *dw, *zeros, *cos, *sin;
    void *workspace;
    int32_t *ids;
    double *sums, *max, *nll;
};

static void run_copy(void *arg)
{
    struct vectors *v = arg;
    must(dev->ops->copy(dev, stream, v->y, v->x, (size_t)v->n * 4, COPY_ON_DEVICE, &err));
}

static void run_rmsnorm_fwd(void *arg)
{
    struct vectors *v = arg;
    must(k->rmsnorm_fwd(dev, stream, DTYPE_F32, v->y, v->rstd, v->x, v->w, v->r, v->d, 1e-5, &err));
}

static void run_rmsnorm_bwd(void *arg)
{
    struct vectors *v = arg;
    must(k->rmsnorm_bwd(dev, stream, DTYPE_F32, v->z, v->w, v->y, v->x, v->w, v->rstd, v->r, v->d,
                        false, v->workspace, &err));
}

static void run_swiglu_fwd(void *arg)
{
    struct vectors *v = arg;
    must(k->swiglu_fwd(dev, stream, DTYPE_F32, v->z, v->x, v->y, v->n, &err));
}

static void run_swiglu_bwd(void *arg)
{
    struct vectors *v = arg;
    must(k->swiglu_bwd(dev, stream, DTYPE_F32, v->u, v->v, v->z, v->x, v->y, v->n, &err));
}

static void run_layernorm_fwd(void *arg)
{
    struct vectors *v = arg;
    must(k->layernorm_fwd(dev, stream, DTYPE_F32, v->y, v->mean, v->rstd, v->x, v->w, v->w, v->r,
                          v->d, 1e-5, &err));
}

static void run_layernorm_bwd(void *arg)
{
    struct vectors *v = arg;
    must(k->layernorm_bwd(dev, stream, DTYPE_F32, v->z, v->dw, v->dw, v->y, v->x, v->w, v->mean,
                          v->rstd, v->r, v->d, false, v->workspace, &err));
}

static void run_gelu_fwd(void *arg)
{
    struct vectors *v = arg;
    must(k->gelu_fwd(dev, stream, DTYPE_F32, v->z, v->x, v->n, &err));
}

static void run_gelu_bwd(void *arg)
{
    struct vectors *v = arg;
    must(k->gelu_bwd(dev, stream, DTYPE_F32, v->z, v->y, v->x, v->n, &err));
}

/* In place: adds zeros. */
static void run_add_bias(void *arg)
{
    struct vectors *v = arg;
    must(k->add_bias(dev, stream, DTYPE_F32, v->z, v->zeros, v->r, v->d, &err));
}

static void run_column_sum(void *arg)
{
    struct vectors *v = arg;
    must(k->column_sum(dev, stream, DTYPE_F32, v->dw, v->x, v->r, v->d, &err));
}

/* One rank's part of the loss: all three parts. */
static void run_parts(void *arg)
{
    struct vectors *v = arg;
    struct logits_part p = {v->x, v->r, v->d, v->d, 0, v->ids};
    must(k->ce_max(dev, stream, DTYPE_F32, v->max, &p, &err));
    must(k->ce_sum(dev, stream, DTYPE_F32, v->sums, v->max, &p, &err));
    must(k->ce_finish(dev, stream, DTYPE_F32, v->nll, v->z, v->max, v->sums, 0.5, &p, &err));
}

static void run_add(void *arg)
{
    struct vectors *v = arg;
    must(k->add(dev, stream, DTYPE_F32, v->z, v->x, v->y, v->n, &err));
}

static void run_rope(void *arg)
{
    struct vectors *v = arg;
    must(k->rope(dev, stream, DTYPE_F32, v->x, v->cos, v->sin, NULL, v->r, v->r, v->d / 32, 32,
                 false, &err));
}

static void run_embed_fwd(void *arg)
{
    struct vectors *v = arg;
    must(k->embed_fwd(dev, stream, DTYPE_F32, v->y, v->x, v->ids, 0, v->r, v->r, v->d, &err));
}

static void run_embed_bwd(void *arg)
{
    struct vectors *v = arg;
    must(k->embed_bwd(dev, stream, DTYPE_F32, v->y, v->x, v->ids, 0, v->r, v->r, v->d, NULL, &err));
}

static void run_cross_entropy(void *arg)
{
    struct vectors *v = arg;
    must(k->cross_entropy(dev, stream, DTYPE_F32, v->sums, v->z, v->x, v->ids, 0.5, v->r, v->d,
                          v->d, &err));
}

static void run_sum_squares(void *arg)
{
    struct vectors *v = arg;
    struct span all = {0, v->n};
    must(k->sum_squares(dev, stream, DTYPE_F32, v->sums, v->x, &all, 1, v->sums, &err));
}

static void run_adamw(void *arg)
{
    struct vectors *v = arg;
    struct step_run all = {.n = v->n, .decay = 0.1};
    struct step_args a = {.runs = &all,
                          .num_runs = 1,
                          .w = v->x,
                          .m = v->y,
                          .v = v->u,
                          .g = v->z,
                          .lr = 1e-12,
                          .beta1 = 0.9,
                          .beta2 = 0.95,
                          .eps = 1e-8,
                          .bias1 = 1,
                          .bias2 = 1};
    must(k->adamw(dev, stream, DTYPE_F32, &a, &err));
}

static void bench_memory(int64_t r, int64_t d)
{
    struct vectors v = {.r = r, .d = d, .n = r * d};
    size_t n = (size_t)v.n;
    v.x = numbers(v.n);
    v.y = numbers(v.n);
    v.z = numbers(v.n);
    v.u = numbers(v.n);
    v.v = numbers(v.n);
    for (size_t i = 0; i < n; i++) {
        v.u[i] = v.u[i] * v.u[i];
    }
    v.w = numbers(d);
    v.dw = numbers(d);
    v.zeros = device_mem((size_t)d * 4);
    v.mean = numbers(r);
    v.rstd = numbers(r);
    v.sums = device_mem((size_t)r * 16);
    v.max = device_mem((size_t)r * 8);
    v.nll = device_mem((size_t)r * 8);
    v.ids = device_mem((size_t)r * 4);
    for (int64_t i = 0; i < r; i++) {
        v.ids[i] = (int32_t)(i * 31 % (d < r ? d : r));
    }
    /* A rotation by nothing, so that x stays what it is. */
    v.cos = device_mem(n * 4);
    v.sin = device_mem(n * 4);
    for (size_t i = 0; i < n; i++) {
        v.cos[i] = 1;
    }
    v.workspace = device_mem(k->layernorm_bwd_workspace(dev, DTYPE_F32, r, d));
    double bytes = (double)n * 4;
    bandwidth = 2 * bytes / best_seconds(run_copy, &v);
    printf("\n[%lld, %lld]: %.1f MB an array; a copy moves %.1f GB/s\n", (long long)r, (long long)d,
           bytes * 1e-6, bandwidth * 1e-9);
    report_bytes("rmsnorm fwd", 2 * bytes, best_seconds(run_rmsnorm_fwd, &v));
    report_bytes("rmsnorm bwd", 3 * bytes, best_seconds(run_rmsnorm_bwd, &v));
    report_bytes("layernorm fwd", 2 * bytes, best_seconds(run_layernorm_fwd, &v));
    report_bytes("layernorm bwd", 3 * bytes, best_seconds(run_layernorm_bwd, &v));
    report_bytes("swiglu fwd", 3 * bytes, best_seconds(run_swiglu_fwd, &v));
    report_bytes("swiglu bwd", 5 * bytes, best_seconds(run_swiglu_bwd, &v));
    report_bytes("gelu fwd", 2 * bytes, best_seconds(run_gelu_fwd, &v));
    report_bytes("gelu bwd", 3 * bytes, best_seconds(run_gelu_bwd, &v));
    report_bytes("add bias", 2 * bytes, best_seconds(run_add_bias, &v));
    report_bytes("column sum", bytes, best_seconds(run_column_sum, &v));
    report_bytes("add", 3 * bytes, best_seconds(run_add, &v));
    report_bytes("rope", 2 * bytes, best_seconds(run_rope, &v));
    report_bytes("embed fwd", 2 * bytes, best_seconds(run_embed_fwd, &v));
    report_bytes("embed bwd", 3 * bytes, best_seconds(run_embed_bwd, &v));
    report_bytes("cross entropy", 2 * bytes, best_seconds(run_cross_entropy, &v));
    report_bytes("cross entropy in parts", 2 * bytes, best_seconds(run_parts, &v));
    report_bytes("sum of squares", bytes, best_seconds(run_sum_squares, &v));
    report_bytes("adamw", 7 * bytes, best_seconds(run_adamw, &v));
}

int main(int argc, char **argv)
{
    int num_threads = argc > 1 ? atoi(argv[1]) : (int)sysconf(_SC_NPROCESSORS_ONLN);
    must(kernels_open(&(struct kernels_options){"cpu", num_threads, 0}, &dev, &k, &err));
    must(dev->ops->stream_new(dev, STREAM_INLINE, &stream, &err));
    double one = peak_flops(DTYPE_F32);
    peak = one * num_threads;
    printf("%d threads, loops %s; best matrix product of one thread %.0f GFLOP/s (f64 %.0f)\n\n",
           num_threads, host_level_name(), one * 1e-9, peak_flops(DTYPE_F64) * 1e-9);

    bench_gemm("square", 1024, 1024, 1024, false, false, 0);
    bench_linear(1024, 128, 128);
    bench_linear(2048, 192, 512);
    bench_linear(2048, 192, 256);
    bench_linear(1024, 768, 768);
    bench_linear(1024, 768, 3072);
    bench_linear(1024, 768, 50257);
    printf("\n");
    bench_attention(8, 128, 4, 4, 32, 1);
    bench_attention(16, 128, 6, 2, 32, 1);
    bench_attention(4, 256, 12, 12, 64, 1);
    bench_attention(1, 1024, 12, 12, 64, 1);
    bench_attention(1, 1024, 16, 4, 128, 1);
    bench_attention(16, 32, 4, 4, 8, 1);
    bench_attention(1, 2048, 12, 12, 64, 1);
    bench_attention(1, 2048, 12, 12, 64, 16);
    bench_memory(1024, 128);
    bench_memory(2048, 512);
    bench_memory(1024, 3072);
    bench_memory(256, 50257);
    dev->ops->stream_free(dev, stream);
    dev->ops->close(dev);
    return 0;
}
