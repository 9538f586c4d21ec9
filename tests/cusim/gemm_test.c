/* The CUDA backend's matrix products against plain loops: every flag together with every other,
 * types, odd and even shapes, memory at any place; how each was done; and the cache of algorithms.
 */
#include "tests/cusim/side.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>

#include "kernels/cuda/device.h"
#include "kernels/cuda/gemm.h"
#include "tests/effort.h"

static struct device *dev;
static struct stream *compute;
static struct error err;

static int open_device(void **state)
{
    (void)state;
    cusim_schedule(CUSIM_FORWARD, CUSIM_EAGER, 1);
    GOOD(cuda_device_open(0, &dev, &err));
    GOOD(dev->ops->stream_new(dev, STREAM_INLINE, &compute, &err));
    return 0;
}

static int close_device(void **state)
{
    (void)state;
    cusim_no_algorithm(0);
    dev->ops->stream_free(dev, compute);
    dev->ops->close(dev);
    return 0;
}

/* ---- numbers ---- */

static void encode(enum dtype t, void *to, int64_t i, double x)
{
    float f = (float)x;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if (t == DTYPE_F32) {
        ((float *)to)[i] = f;
    } else {
        ((uint16_t *)to)[i] = (uint16_t)(bits >> 16);
    }
}

static double decode(enum dtype t, const void *from, int64_t i)
{
    uint32_t bits = t == DTYPE_BF16 ? (uint32_t)((const uint16_t *)from)[i] << 16 : 0;
    float f;
    memcpy(&f, &bits, sizeof f);
    return t == DTYPE_F32 ? (double)((const float *)from)[i] : (double)f;
}

/* Rows of ld numbers, as double and, the same, on the device, `skip` numbers behind where an
 * allocation begins. */
struct side {
    enum dtype t;
    int64_t n;
    double *want;
    char *mem;
    void *device;
};

/* Eighths between -2 and 2: exact in every type. */
static struct side side_new(enum dtype t, int64_t rows, int64_t ld, int64_t skip, int seed)
{
    int64_t n = rows * ld;
    size_t bytes = (size_t)(n + skip + 1) * dtype_size(t);
    struct side x = {t, n, malloc((size_t)(n + 1) * sizeof(double)),
                     dev->ops->alloc(dev, bytes, MEM_DEVICE), NULL};
    char *host = dev->ops->alloc(dev, bytes, MEM_HOST);
    x.device = x.mem + (size_t)skip * dtype_size(t);
    for (int64_t i = 0; i < n; i++) {
        x.want[i] = (double)((i * 7 + seed * 13) % 33 - 16) / 8;
        encode(t, host, i, x.want[i]);
    }
    GOOD(dev->ops->copy(dev, compute, x.device, host, (size_t)n * dtype_size(t), COPY_TO_DEVICE,
                        &err));
    GOOD(dev->ops->stream_sync(dev, compute, &err));
    dev->ops->free(dev, host);
    return x;
}

static void side_done(struct side *x)
{
    free(x->want);
    dev->ops->free(dev, x->mem);
}

/* Twice rounded where the rest came behind the product. */
static void side_agrees(const char *what, const struct side *x)
{
    size_t bytes = (size_t)x->n * dtype_size(x->t);
    void *host = dev->ops->alloc(dev, bytes + 1, MEM_HOST);
    GOOD(dev->ops->copy(dev, compute, host, x->device, bytes, COPY_TO_HOST, &err));
    GOOD(dev->ops->stream_sync(dev, compute, &err));
    double part = x->t == DTYPE_BF16 ? 6 * 0x1p-9 : 0x1p-19;
    for (int64_t i = 0; i < x->n; i++) {
        double got = decode(x->t, host, i);
        if (!(fabs(got - x->want[i]) <= part * fmax(4, fabs(x->want[i])))) {
            fail_msg("%s [%lld]: want %.9g, got %.9g", what, (long long)i, x->want[i], got);
        }
    }
    dev->ops->free(dev, host);
}

/* ---- products ---- */

enum rest {
    REST_NONE,
    REST_BIAS,
    REST_GELU,
    REST_GELU_BIAS,
    REST_GELU_OF,
    REST_GELU_OF_BIAS,
    NUM_RESTS
};
enum addend { ADD_NOTHING, ADD_C, ADD_C0, NUM_ADDENDS };

struct problem {
    int64_t m, n, k, pad, skip;
    bool trans_a, trans_b;
    enum dtype t, c_type;
    enum rest rest;
    enum addend addend;
    double alpha;
};

static double gelu(double x)
{
    return x / 2 * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

static double gelu_slope(double x)
{
    double h = 1e-5;
    return (gelu(x + h) - gelu(x - h)) / (2 * h);
}

struct sides {
    struct side a, b, c, c0, bias, gelu, gelu_of;
};

static void work_out(const struct problem *p, const struct gemm_args *g, struct sides *x)
{
    for (int64_t i = 0; i < p->m; i++) {
        for (int64_t j = 0; j < p->n; j++) {
            int64_t at = i * g->ldc + j;
            double sum = 0;
            for (int64_t k = 0; k < p->k; k++) {
                sum += x->a.want[p->trans_a ? k * g->lda + i : i * g->lda + k] *
                       x->b.want[p->trans_b ? j * g->ldb + k : k * g->ldb + j];
            }
            double v = g->alpha * sum;
            v += g->beta != 0 ? g->beta * (g->c0 ? x->c0 : x->c).want[at] : 0;
            v += g->bias ? x->bias.want[j] : 0;
            if (g->gelu) {
                x->gelu.want[at] = gelu(v);
            }
            x->c.want[at] = g->gelu_of ? v * gelu_slope(x->gelu_of.want[at]) : v;
        }
    }
}

static void describe(const struct problem *p, char text[200])
{
    snprintf(text, 200, "%lldx%lldx%lld pad %lld skip %lld trans %d%d types %d %d rest %d add %d",
             (long long)p->m, (long long)p->n, (long long)p->k, (long long)p->pad,
             (long long)p->skip, p->trans_a, p->trans_b, (int)p->t, (int)p->c_type, (int)p->rest,
             (int)p->addend);
}

static void check_in(struct stream *s, const struct problem *p)
{
    char text[200];
    describe(p, text);
    bool with_bias =
        p->rest == REST_BIAS || p->rest == REST_GELU_BIAS || p->rest == REST_GELU_OF_BIAS;
    bool with_gelu = p->rest == REST_GELU || p->rest == REST_GELU_BIAS;
    bool with_gelu_of = p->rest == REST_GELU_OF || p->rest == REST_GELU_OF_BIAS;
    int64_t lda = (p->trans_a ? p->m : p->k) + p->pad, ldb = (p->trans_b ? p->k : p->n) + p->pad;
    int64_t ldc = p->n + p->pad;
    struct sides x = {.a = side_new(p->t, p->trans_a ? p->k : p->m, lda, p->skip, 1),
                      .b = side_new(p->t, p->trans_b ? p->n : p->k, ldb, p->skip, 2),
                      .c = side_new(p->c_type, p->m, ldc, p->skip, 3),
                      .c0 = side_new(p->c_type, p->m, ldc, p->skip, 4),
                      .bias = side_new(p->t, 1, p->n, p->skip, 5),
                      .gelu = side_new(p->c_type, p->m, ldc, p->skip, 6),
                      .gelu_of = side_new(p->c_type, p->m, ldc, p->skip, 7)};
    struct gemm_args g = {.trans_a = p->trans_a,
                          .trans_b = p->trans_b,
                          .m = p->m,
                          .n = p->n,
                          .k = p->k,
                          .alpha = p->alpha,
                          .beta = p->addend == ADD_NOTHING ? 0
                                  : p->addend == ADD_C     ? 1
                                                           : 0.5,
                          .a = x.a.device,
                          .lda = lda,
                          .b = x.b.device,
                          .ldb = ldb,
                          .c = x.c.device,
                          .ldc = ldc,
                          .c_type = p->c_type,
                          .c0 = p->addend == ADD_C0 ? x.c0.device : NULL,
                          .bias = with_bias ? x.bias.device : NULL,
                          .gelu = with_gelu ? x.gelu.device : NULL,
                          .gelu_of = with_gelu_of ? x.gelu_of.device : NULL};
    GOOD(cuda_gemm(dev, s, p->t, &g, &err));
    GOOD(dev->ops->stream_sync(dev, s, &err));
    work_out(p, &g, &x);
    struct side *all[] = {&x.c, &x.gelu, &x.a, &x.b, &x.c0, &x.bias, &x.gelu_of};
    for (int i = 0; i < 7; i++) {
        side_agrees(text, all[i]); /* what isn't written stays */
    }
    for (int i = 0; i < 7; i++) {
        side_done(all[i]);
    }
}

static void check(const struct problem *p)
{
    check_in(compute, p);
}

static struct gemm_counts counts(void)
{
    return *gemm_cache_counts(cuda_of(dev)->gemm);
}

static const enum dtype types[][2] = {
    {DTYPE_F32, DTYPE_F32}, {DTYPE_BF16, DTYPE_BF16}, {DTYPE_BF16, DTYPE_F32}};
static const int64_t shapes[][5] = {
    /* m, n, k, pad, skip */
    {16, 24, 8, 0, 0}, {5, 16, 8, 8, 0}, {7, 5, 11, 0, 0},  {1, 1, 1, 0, 0},
    {9, 8, 3, 3, 1},   {4, 16, 8, 0, 1}, {33, 17, 1, 0, 0}, {3, 18, 0, 6, 0},
};
#define NUM_SHAPES (int)(sizeof shapes / sizeof *shapes)
#define NUM_PROBLEMS (3 * NUM_SHAPES * 4 * (int)NUM_RESTS * (int)NUM_ADDENDS)

static struct problem problem_of(int i)
{
    struct problem p = {.alpha = i % 5 ? 1 : 0.5};
    p.rest = (enum rest)(i % NUM_RESTS);
    i /= NUM_RESTS;
    p.addend = (enum addend)(i % NUM_ADDENDS);
    i /= NUM_ADDENDS;
    p.trans_a = i & 1;
    p.trans_b = i >> 1 & 1;
    i /= 4;
    p.t = types[i % 3][0];
    p.c_type = types[i % 3][1];
    const int64_t *shape = shapes[i / 3];
    p.m = shape[0];
    p.n = shape[1];
    p.k = shape[2];
    p.pad = shape[3];
    p.skip = shape[4];
    return p;
}

/* Primes, so that every pair of choices is met. */
#ifdef CUSIM_TSAN
#define STEP 23
#else
#define STEP effort(1, 1, 7)
#endif

static void every_flag_goes_with_every_other(void **state)
{
    (void)state;
    for (int i = 0; i < NUM_PROBLEMS; i += STEP) {
        schedule_take(i % NUM_SCHEDULES);
        struct problem p = problem_of(i);
        check(&p);
    }
    struct gemm_counts c = counts();
    assert_true(c.fused > 0 && c.split > 0 && c.plain > 0);
}

/* What a step of training asks for, where memory lies as it does there: one launch each. */
static void what_layers_ask_for_is_fused(void **state)
{
    (void)state;
    static const struct {
        enum rest rest;
        enum addend addend;
    } asked[] = {{REST_NONE, ADD_NOTHING}, {REST_NONE, ADD_C},
                 {REST_NONE, ADD_C0},      {REST_BIAS, ADD_NOTHING},
                 {REST_BIAS, ADD_C0},      {REST_GELU_BIAS, ADD_NOTHING},
                 {REST_GELU, ADD_NOTHING}, {REST_GELU_OF, ADD_NOTHING}};
    for (int i = 0; i < 16; i++) {
        struct problem p = {.m = 5,
                            .n = 16,
                            .k = 8,
                            .t = types[i / 8][0],
                            .c_type = types[i / 8][1],
                            .rest = asked[i % 8].rest,
                            .addend = asked[i % 8].addend,
                            .alpha = 1};
        check(&p);
        assert_int_equal(counts().fused, i + 1);
    }
    struct problem main_gradient = {.m = 8,
                                    .n = 16,
                                    .k = 5,
                                    .trans_a = true,
                                    .t = DTYPE_BF16,
                                    .c_type = DTYPE_F32,
                                    .addend = ADD_C,
                                    .alpha = 1};
    check(&main_gradient);
    assert_int_equal(counts().fused, 17);
    assert_int_equal(counts().split + counts().plain, 0);
}

/* Rows that an epilogue can't take, another type of C, or C both added and kept for gelu. */
static void what_does_not_fit_an_epilogue_comes_behind(void **state)
{
    (void)state;
    struct problem odd = {.m = 5, .n = 9, .k = 8, .rest = REST_GELU_BIAS, .alpha = 1};
    struct problem askew = {.m = 5, .n = 16, .k = 8, .skip = 1, .rest = REST_BIAS, .alpha = 1};
    struct problem wide = {.m = 5, .n = 16, .k = 8, .rest = REST_BIAS, .alpha = 1};
    struct problem both = {.m = 5, .n = 16, .k = 8, .rest = REST_GELU, .addend = ADD_C, .alpha = 1};
    struct problem slope = {.m = 5, .n = 16, .k = 8, .rest = REST_GELU_OF_BIAS, .alpha = 1};
    wide.t = DTYPE_BF16;
    wide.c_type = DTYPE_F32;
    struct problem *all[] = {&odd, &askew, &wide, &both, &slope};
    for (int i = 0; i < 5; i++) {
        check(all[i]);
        assert_int_equal(counts().split, i + 1);
    }
    assert_int_equal(counts().fused + counts().plain, 0);
}

/* A shape is looked up once, however often it comes; other strides, types or alignment are other
 * shapes; memory at another place alike is not. */
static void algorithms_are_looked_for_once(void **state)
{
    (void)state;
    struct problem p = {.m = 6, .n = 8, .k = 4, .rest = REST_BIAS, .alpha = 1};
    for (int i = 0; i < 20; i++) {
        check(&p);
    }
    assert_int_equal(counts().searches, 1);
    struct problem others[] = {p, p, p, p, p};
    others[0].pad = 8;
    others[1].trans_b = true;
    others[2].t = others[2].c_type = DTYPE_BF16;
    others[3].rest = REST_NONE;
    others[4].skip = 4; /* 16 bytes */
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 5; i++) {
            check(&others[i]);
        }
        assert_int_equal(counts().searches, 6);
    }
    assert_int_equal(counts().fused, 30);
}

/* More shapes than there is room for: it begins again, and stays right. */
static void shapes_without_end_are_forgotten(void **state)
{
    (void)state;
    int num = STEP < 7 ? 1100 : 300;
    for (int i = 0; i < num; i++) {
        struct problem p = {.m = 1 + i % 8, .n = 1 + i / 8, .k = 2, .alpha = 1};
        check(&p);
    }
    assert_int_equal(counts().searches, num);
}

/* Without an algorithm the fused product is tried without its rest; and then our own does it. */
static void products_without_an_algorithm_are_done_all_the_same(void **state)
{
    (void)state;
    struct problem p = {.m = 5, .n = 16, .k = 8, .rest = REST_GELU_BIAS, .alpha = 1};
    cusim_no_algorithm(1);
    check(&p);
    assert_int_equal(counts().split, 1);
    struct problem q = p;
    q.t = DTYPE_BF16;
    q.c_type = DTYPE_BF16;
    cusim_no_algorithm(2);
    check(&q);
    check(&q);
    assert_int_equal(counts().plain, 2);
    assert_int_equal(counts().searches, 4);
    cusim_no_algorithm(1 << 30);
    for (int i = 3; i < NUM_PROBLEMS; i += 5 * STEP) {
        schedule_take(i % NUM_SCHEDULES);
        struct problem r = problem_of(i);
        r.m += 20; /* more than a tile, and no shape from above */
        check(&r);
    }
    assert_int_equal(counts().fused, 0);
    assert_int_equal(counts().split, 1);
}

/* A queue has no workspace, and needs none. */
static void queues_multiply_too(void **state)
{
    (void)state;
    struct stream *queue;
    GOOD(dev->ops->stream_new(dev, STREAM_QUEUE, &queue, &err));
    struct problem p = {.m = 6, .n = 8, .k = 4, .rest = REST_GELU, .alpha = 1};
    check(&p);
    check_in(queue, &p);
    assert_int_equal(counts().fused, 2);
    assert_int_equal(counts().searches, 2);
    dev->ops->stream_free(dev, queue);
}

/* A shape that is known costs no allocation and no synchronisation, only its launches. */
static void a_step_allocates_nothing(void **state)
{
    (void)state;
    struct side a = side_new(DTYPE_F32, 8, 8, 0, 1), c = side_new(DTYPE_F32, 8, 8, 0, 2);
    struct gemm_args g = {.m = 8,
                          .n = 8,
                          .k = 8,
                          .alpha = 1,
                          .a = a.device,
                          .lda = 8,
                          .b = a.device,
                          .ldb = 8,
                          .c = c.device,
                          .ldc = 8,
                          .c_type = DTYPE_F32};
    GOOD(cuda_gemm(dev, compute, DTYPE_F32, &g, &err));
    struct cusim_counts before = cusim_counted();
    for (int i = 0; i < 10; i++) {
        GOOD(cuda_gemm(dev, compute, DTYPE_F32, &g, &err));
    }
    struct cusim_counts after = cusim_counted();
    assert_int_equal(after.allocations, before.allocations);
    assert_int_equal(after.syncs, before.syncs);
    GOOD(dev->ops->stream_sync(dev, compute, &err));
    side_done(&a);
    side_done(&c);
}

static void types_that_are_not_here_are_refused(void **state)
{
    (void)state;
    struct gemm_args g = {.m = 1, .n = 1, .k = 1, .lda = 1, .ldb = 1, .ldc = 1};
    g.c_type = DTYPE_F64;
    assert_int_equal(cuda_gemm(dev, compute, DTYPE_F64, &g, &err), -1);
    assert_int_equal(err.code, ERR_UNIMPLEMENTED);
    g.c_type = DTYPE_BF16;
    assert_int_equal(cuda_gemm(dev, compute, DTYPE_F32, &g, &err), -1);
}

int main(void)
{
#define ON_A_DEVICE(test) cmocka_unit_test_setup_teardown(test, open_device, close_device)
    const struct CMUnitTest tests[] = {
        ON_A_DEVICE(every_flag_goes_with_every_other),
        ON_A_DEVICE(what_layers_ask_for_is_fused),
        ON_A_DEVICE(what_does_not_fit_an_epilogue_comes_behind),
        ON_A_DEVICE(algorithms_are_looked_for_once),
        ON_A_DEVICE(shapes_without_end_are_forgotten),
        ON_A_DEVICE(products_without_an_algorithm_are_done_all_the_same),
        ON_A_DEVICE(queues_multiply_too),
        ON_A_DEVICE(a_step_allocates_nothing),
        ON_A_DEVICE(types_that_are_not_here_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
