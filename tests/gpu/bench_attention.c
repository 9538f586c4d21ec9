/* Attention's values and times: our own kernels and cuDNN's, the same numbers for both. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/bench.h"

/* Numbers of each output that are compared. */
#define NUM_COMPARED ((int64_t)1 << 20)
/* bf16 results, of products of bf16 probabilities: against the largest number of the output. */
#define NEAR 0.02

enum { OF_O, OF_DQ, OF_DK, OF_DV, NUM_OUTPUTS };

struct problem {
    struct attention_args a;
    int64_t num[NUM_OUTPUTS];
    void *mem[NUM_OUTPUTS];
};

static struct problem make(struct bench *b, int64_t n, int64_t t, int64_t h, int64_t kv, int64_t e)
{
    int64_t of_q = n * t * h * e, of_k = n * t * kv * e;
    struct problem p = {
        .a = {.b = n, .t = t, .h = h, .kv = kv, .e = e, .scale = 1 / sqrt((double)e)},
        .num = {of_q, of_q, of_k, of_k},
    };
    for (int i = 0; i < NUM_OUTPUTS; i++)
        p.mem[i] = bench_zeros(b, (size_t)p.num[i] * 2);
    p.a.q = bench_numbers(b, DTYPE_BF16, of_q, 1);
    p.a.k = bench_numbers(b, DTYPE_BF16, of_k, 2);
    p.a.v = bench_numbers(b, DTYPE_BF16, of_k, 3);
    p.a.d_o = bench_numbers(b, DTYPE_BF16, of_q, 4);
    p.a.lse = bench_zeros(b, (size_t)(n * h * t) * sizeof(float));
    p.a.o = p.mem[OF_O];
    p.a.dq = p.mem[OF_DQ];
    p.a.dk = p.mem[OF_DK];
    p.a.dv = p.mem[OF_DV];
    /* cuDNN makes its plans here. */
    p.a.workspace = bench_zeros(b, b->k->attention_workspace(b->dev, DTYPE_BF16, n, t, h, kv, e));
    return p;
}

static int forward(struct bench *b, void *arg, struct error *err)
{
    return b->k->attention_fwd(b->dev, b->s, DTYPE_BF16, &((struct problem *)arg)->a, err);
}

static int backward(struct bench *b, void *arg, struct error *err)
{
    return b->k->attention_bwd(b->dev, b->s, DTYPE_BF16, &((struct problem *)arg)->a, err);
}

/* Largest difference against the largest number. */
static double distance(const float *x, const float *y, int64_t n)
{
    double most = 0, largest = 0;
    for (int64_t i = 0; i < n; i++) {
        double d = fabs((double)x[i] - (double)y[i]);
        most = !(d <= most) ? d : most; /* a NaN shows */
        largest = fmax(largest, fabs((double)x[i]));
    }
    return most / (largest > 0 ? largest : 1);
}

static const char *const kinds[] = {"own", "cudnn"};

/* Its own device each: which kernels are taken is decided when that is opened. */
static void run(const char *kind, bool tiny, const int64_t *s, float **out)
{
    struct bench b;
    setenv("TANDEM_CUDA_ATTENTION", kind, 1);
    bench_open(&b, tiny);
    struct problem p = make(&b, s[0], s[1], s[2], s[3], s[4]);
    double fwd_ms = bench_ms(&b, forward, &p), bwd_ms = bench_ms(&b, backward, &p);
    double flops = (double)s[0] * (double)s[2] * (double)s[1] * (double)s[1] * (double)s[4];
    printf("{\"row\": \"attention\", \"kind\": \"%s\", \"b\": %lld, \"t\": %lld, \"h\": %lld, "
           "\"kv\": %lld, \"e\": %lld, \"fwd_ms\": %.4g, \"bwd_ms\": %.4g, \"fwd_tflops\": %.4g, "
           "\"bwd_tflops\": %.4g}\n",
           kind, (long long)s[0], (long long)s[1], (long long)s[2], (long long)s[3],
           (long long)s[4], fwd_ms, bwd_ms, 2 * flops / fwd_ms / 1e9, 5 * flops / bwd_ms / 1e9);
    fflush(stdout);
    for (int i = 0; i < NUM_OUTPUTS; i++)
        out[i] =
            bench_read(&b, DTYPE_BF16, p.mem[i], p.num[i] < NUM_COMPARED ? p.num[i] : NUM_COMPARED);
    bench_close(&b);
}

static int compare(bool tiny, const int64_t *s)
{
    static const char *const names[] = {"o", "dq", "dk", "dv"};
    float *out[2][NUM_OUTPUTS];
    int64_t num[NUM_OUTPUTS] = {s[2], s[2], s[3], s[3]};
    bool is_same = true, is_near = true;
    for (int i = 0; i < 2; i++)
        run(kinds[i], tiny, s, out[i]);
    printf("{\"row\": \"attention_values\", \"t\": %lld, \"e\": %lld", (long long)s[1],
           (long long)s[4]);
    for (int i = 0; i < NUM_OUTPUTS; i++) {
        int64_t n = s[0] * s[1] * s[4] * num[i];
        n = n < NUM_COMPARED ? n : NUM_COMPARED;
        double d = distance(out[0][i], out[1][i], n);
        is_same = is_same && memcmp(out[0][i], out[1][i], (size_t)n * sizeof(float)) == 0;
        is_near = is_near && d <= NEAR;
        printf(", \"%s\": %.3g", names[i], isfinite(d) ? d : 1e300);
        free(out[0][i]);
        free(out[1][i]);
    }
    /* The same bits in all of it: cuDNN left it to our own. */
    printf(", \"cudnn_answered\": %s, \"near\": %s}\n", is_same ? "false" : "true",
           is_near ? "true" : "false");
    return is_near ? 0 : 1;
}

int bench_attention(bool tiny)
{
    static const int64_t full[][5] = {
        {4, 4096, 64, 8, 128}, {16, 1024, 12, 12, 64}, {8, 2048, 64, 8, 128}, {4, 4096, 32, 8, 64},
        {2, 8192, 64, 8, 128}, {16, 1024, 64, 8, 128}, {2, 8192, 32, 8, 64},  {8, 2048, 32, 8, 64},
    };
    static const int64_t small[][5] = {{1, 70, 2, 1, 64}, {1, 33, 2, 2, 128}};
    int num = tiny ? 2 : (int)(sizeof(full) / sizeof(*full)), rc = 0;
    for (int i = 0; i < num; i++)
        rc |= compare(tiny, tiny ? small[i] : full[i]);
    return rc;
}
