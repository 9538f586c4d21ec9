/* Products of the models' shapes, with all that comes behind them; how the device copies. With
 * TANDEM_CUDA_TIMES the plug-in writes down how each of them was done ("what" is its name for it).
 */
#include <stdio.h>

#include "plan/memory.h"
#include "tests/gpu/bench.h"

struct product {
    struct gemm_args a;
    char what[64];
};

/* y = x W^T, and what a layer does with it; dx = dy W; dW += dy^T x. */
static const struct kind {
    const char *name, *what;
    bool trans_a, trans_b, wide, add, bias, gelu, dgelu;
} kinds[] = {
    {"y", "nt", false, true, false, false, false, false, false},
    {"+res", "nt add", false, true, false, true, false, false, false},
    {"+bias", "nt bias", false, true, false, false, true, false, false},
    {"+bias+res", "nt add bias", false, true, false, true, true, false, false},
    {"+bias gelu", "nt bias gelu", false, true, false, false, true, true, false},
    {"dx", "nn", false, false, false, false, false, false, false},
    {"dx gelu'", "nn dgelu", false, false, false, false, false, false, true},
    {"dW", "tn wide add", true, false, true, true, false, false, false},
};
#define NUM_KINDS ((int)(sizeof(kinds) / sizeof(*kinds)))

static int multiply(struct bench *b, void *arg, struct error *err)
{
    return b->k->gemm(b->dev, b->s, DTYPE_BF16, arg, err);
}

struct room {
    void *x, *y, *c, *c0, *aux;
};

/* rows x out x in of a layer; m, n, k are the product's own. Rows of what comes out, and of its
 * gradient, lie as logits do in training. */
static void run(struct bench *b, const struct room *room, const struct kind *kind, int64_t rows,
                int64_t out, int64_t in)
{
    bool is_dw = kind->trans_a, is_dx = !kind->trans_a && !kind->trans_b;
    int64_t m = is_dw ? out : rows, n = is_dw || is_dx ? in : out,
            k = is_dw   ? rows
                : is_dx ? out
                        : in,
            apart = memory_logits_columns(out);
    struct gemm_args a = {
        .trans_a = kind->trans_a,
        .trans_b = kind->trans_b,
        .m = m,
        .n = n,
        .k = k,
        .alpha = 1,
        .beta = kind->add ? 1 : 0,
        .a = room->x,
        .lda = is_dw || is_dx ? apart : in,
        .b = room->y,
        .ldb = in,
        .c = room->c,
        .ldc = is_dw || is_dx ? in : apart,
        .c_type = kind->wide ? DTYPE_F32 : DTYPE_BF16,
        .c0 = kind->add && !kind->wide ? room->c0 : NULL,
        .bias = kind->bias ? room->y : NULL,
        .gelu = kind->gelu ? room->aux : NULL,
        .gelu_of = kind->dgelu ? room->aux : NULL,
    };
    double ms = bench_ms(b, multiply, &a);
    printf("{\"row\": \"gemm\", \"name\": \"%s\", \"what\": \"bf16 %lldx%lldx%lld %s\", "
           "\"ms\": %.4g, \"tflops\": %.4g}\n",
           kind->name, (long long)m, (long long)n, (long long)k, kind->what, ms,
           2 * (double)m * (double)n * (double)k / ms / 1e9);
    fflush(stdout);
}

int bench_gemm(bool tiny)
{
    /* rows, out, in: GPT-2's layers and head, Llama 1B's and 8B's; a square one. */
    static const int64_t full[][3] = {
        {8192, 4096, 4096},  {8192, 14336, 4096}, {8192, 4096, 14336}, {8192, 1024, 4096},
        {32768, 2304, 768},  {32768, 3072, 768},  {32768, 768, 3072},  {16384, 8192, 2048},
        {32768, 50257, 768}, {8192, 8192, 8192},
    };
    static const int64_t small[][3] = {{24, 32, 16}, {16, 50, 18}};
    struct bench b;
    bench_open(&b, tiny);
    int64_t largest = tiny ? 4096 : (int64_t)32768 * memory_logits_columns(50257);
    int64_t input = tiny ? 4096 : (int64_t)32768 * 14336;
    struct room room = {
        .x = bench_numbers(&b, DTYPE_BF16, largest, 1),
        .y = bench_numbers(&b, DTYPE_BF16, input, 2),
        .c0 = bench_numbers(&b, DTYPE_BF16, largest, 3),
        .aux = bench_numbers(&b, DTYPE_BF16, largest, 4),
        .c = bench_zeros(&b, (size_t)largest * sizeof(float)),
    };
    int num = tiny ? 2 : (int)(sizeof(full) / sizeof(*full));
    for (int i = 0; i < num; i++) {
        const int64_t *s = tiny ? small[i] : full[i];
        for (int k = 0; k < NUM_KINDS; k++)
            run(&b, &room, &kinds[k], s[0], s[1], s[2]);
    }
    bench_close(&b);
    return 0;
}

struct copy {
    void *to, *from;
    size_t bytes;
};

static int copy(struct bench *b, void *arg, struct error *err)
{
    struct copy *c = arg;
    return b->dev->ops->copy(b->dev, b->s, c->to, c->from, c->bytes, COPY_ON_DEVICE, err);
}

int bench_copy(bool tiny)
{
    struct bench b;
    bench_open(&b, tiny);
    size_t bytes = tiny ? 4096 : (size_t)4 << 30;
    struct copy c = {bench_zeros(&b, bytes), bench_zeros(&b, bytes), bytes};
    double ms = bench_ms(&b, copy, &c);
    printf("{\"row\": \"copy\", \"bytes\": %zu, \"ms\": %.4g, \"tb_per_s\": %.4g}\n", bytes, ms,
           2 * (double)bytes / ms / 1e9);
    bench_close(&b);
    return 0;
}
