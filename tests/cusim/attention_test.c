/* The CUDA attention kernels against the reference backend in f64, on the same rounded numbers: log
 * sum exp and every gradient; sizes that fit no tile, heads of all widths, groups, packed
 * documents; the same bits in every schedule. */
#include "tests/cusim/side.h"

#include <math.h>
#include <stdio.h>

#include "base/rng.h"
#include "kernels/cuda/launch.h"
#include "kernels/kernels.h"
#include "tests/cusim/attention_banks.h"
#include "tests/effort.h"

/* What is allowed, of the largest number of a tensor, or of 1. f32: sums of some hundred products.
 * bf16: weights and gradients of scores are rounded to 2^-9 before the second product, and so is
 * what is stored; lse isn't. */
#define PART_F32 4e-6
#define PART_BF16 (1.5 * 0x1p-8)
#define PART_LSE 4e-6

enum packing {
    WHOLE,     /* no segments */
    DOCUMENTS, /* one after the other */
    SCATTERED, /* ids that come back, in no order */
    LONELY,    /* each position alone */
};

struct shape {
    int64_t b, t, h, kv, e;
    enum packing packing;
    size_t skip; /* bytes that everything starts behind a multiple of 16 */
    bool late;   /* numbers whose maxima come late: see late_number */
};

enum tensor { Q, K, V, D_O, O, DQ, DK, DV, LSE, NUM_TENSORS };
static const char *const names[] = {"q", "k", "v", "dO", "o", "dq", "dk", "dv", "lse"};

/* One problem: the reference's numbers, and the device's memory. */
struct problem {
    struct shape shape;
    enum dtype t;
    double scale;
    double *ref[NUM_TENSORS];
    void *device[NUM_TENSORS];
    void *segments, *workspace;
    int32_t *host_segments;
};

static struct device *ref;
static struct stream *ref_stream;
static struct error err;

static int open_ref(void **state)
{
    (void)state;
    return device_open_ref(&ref, &err) ||
           ref->ops->stream_new(ref, STREAM_INLINE, &ref_stream, &err);
}

static int close_ref(void **state)
{
    (void)state;
    ref->ops->stream_free(ref, ref_stream);
    ref->ops->close(ref);
    return 0;
}

/* Statistics lie where all can take them. */
static size_t skip_of(const struct shape *s, enum tensor x)
{
    return x == LSE ? 0 : s->skip;
}

static int64_t count(const struct shape *s, enum tensor x)
{
    bool keys = x == K || x == V || x == DK || x == DV;
    return x == LSE ? s->b * s->h * s->t : s->b * s->t * (keys ? s->kv : s->h) * s->e;
}

static enum dtype type_of(const struct problem *p, enum tensor x)
{
    return x == LSE ? DTYPE_F32 : p->t;
}

static float as_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static double decode(enum dtype t, const void *from, int64_t i)
{
    uint32_t bits =
        t == DTYPE_F32 ? ((const uint32_t *)from)[i] : (uint32_t)((const uint16_t *)from)[i] << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return (double)x;
}

static float number(uint64_t seed, enum tensor x, int64_t i)
{
    return (float)rng_normal(seed + (uint64_t)x, rng_stream("attention"), (uint64_t)i);
}

/* One head of 256 positions. In the second half a query finds its largest score at its own key, in
 * the tile that a block looks at first; but one of each 32 queries, another one each time, finds it
 * at key 0, in the last: of the rows that a warp holds this one's maximum alone changes there. */
static float late_number(uint64_t seed, const struct shape *s, enum tensor x, int64_t i)
{
    int64_t position = i / s->e;
    bool marks = i % s->e < 8; /* numbers that tell the odd ones from the others */
    bool odd = position >= 128 && position % 32 == (position - 128) / 32 * 8 + 3;
    if (x == Q) {
        return marks ? (odd ? 4.0f : 0.0f) : number(seed, Q, i);
    }
    if (x != K) {
        return number(seed, x, i);
    }
    if (position == 0 || marks) {
        return position == 0 && marks ? 4.0f : 0.0f;
    }
    return position < 128 ? 0.01f * number(seed, K, i) : number(seed, Q, i);
}

/* Random numbers for what goes in, NaNs for what comes out. */
static void tensor_new(cudaStream_t s, struct problem *p, enum tensor x, uint64_t seed)
{
    int64_t n = count(&p->shape, x);
    size_t size = dtype_size(type_of(p, x));
    p->ref[x] = calloc((size_t)n + 1, sizeof(double));
    if (x > D_O) {
        p->device[x] = side_put_at(s, NULL, (size_t)n * size, skip_of(&p->shape, x));
        return;
    }
    char *host = calloc((size_t)n + 1, size);
    for (int64_t i = 0; i < n; i++) {
        float f = p->shape.late ? late_number(seed, &p->shape, x, i) : number(seed, x, i);
        f = p->t == DTYPE_F32 ? f : as_bf16(f);
        uint32_t bits;
        memcpy(&bits, &f, sizeof bits);
        bits = p->t == DTYPE_F32 ? bits : bits >> 16;
        memcpy(host + (size_t)i * size, &bits, size);
        p->ref[x][i] = (double)f;
    }
    p->device[x] = side_put_at(s, host, (size_t)n * size, p->shape.skip);
    MUST(cudaStreamSynchronize(s));
    free(host);
}

static int32_t segment(enum packing packing, int64_t b, int64_t i, int64_t t)
{
    switch (packing) {
    case DOCUMENTS:
        /* Short ones, and one over several tiles. */
        return (int32_t)(i < t / 8 ? i / 3 : i < t - t / 5 ? 1000 + b : 2000 + i / 7);
    case SCATTERED:
        return (int32_t)(rng_u64(7, (uint64_t)b, (uint64_t)i) % 5) - 2;
    default:
        return (int32_t)(t - i);
    }
}

static struct problem problem_new(cudaStream_t s, enum dtype t, struct shape shape, uint64_t seed)
{
    struct problem p = {.shape = shape, .t = t, .scale = 1.3 / sqrt((double)shape.e)};
    for (int x = 0; x < NUM_TENSORS; x++) {
        tensor_new(s, &p, (enum tensor)x, seed);
    }
    if (shape.packing != WHOLE) {
        size_t bytes = (size_t)(shape.b * shape.t) * sizeof(int32_t);
        p.host_segments = malloc(bytes + 1);
        for (int64_t i = 0; i < shape.b * shape.t; i++) {
            p.host_segments[i] = segment(shape.packing, i / shape.t, i % shape.t, shape.t);
        }
        p.segments = side_put(s, p.host_segments, bytes);
    }
    p.workspace =
        side_put(s, NULL, workspace_cuda_attention(shape.b, shape.t, shape.h, shape.kv, shape.e));
    return p;
}

static void problem_free(struct problem *p)
{
    for (int x = 0; x < NUM_TENSORS; x++) {
        side_free(p->device[x], skip_of(&p->shape, (enum tensor)x));
        free(p->ref[x]);
    }
    if (p->segments) {
        side_free(p->segments, 0);
    }
    free(p->host_segments);
    side_free(p->workspace, 0);
}

static struct attention_args args_of(const struct problem *p, void *const x[NUM_TENSORS],
                                     const int32_t *segments, void *workspace)
{
    const struct shape *s = &p->shape;
    return (struct attention_args){s->b,   s->t,  s->h,  s->kv,    s->e,     p->scale,
                                   x[Q],   x[K],  x[V],  segments, x[O],     x[LSE],
                                   x[D_O], x[DQ], x[DK], x[DV],    workspace};
}

static void run_device(cudaStream_t s, const struct problem *p)
{
    struct attention_args a = args_of(p, p->device, p->segments, p->workspace);
    MUST(cuda_attention_fwd(s, p->t, &a));
    MUST(cuda_attention_bwd(s, p->t, &a));
}

static void *take(cudaStream_t s, const struct problem *p, enum tensor x)
{
    size_t bytes = (size_t)count(&p->shape, x) * dtype_size(type_of(p, x));
    void *host = malloc(bytes + 1);
    side_get(s, host, p->device[x], bytes);
    return host;
}

static void agree(cudaStream_t s, const struct problem *p, enum tensor x)
{
    const struct shape *h = &p->shape;
    int64_t n = count(h, x);
    void *host = take(s, p, x);
    double part = x == LSE ? PART_LSE : p->t == DTYPE_F32 ? PART_F32 : PART_BF16;
    double largest = 1, worst = 0;
    for (int64_t i = 0; i < n; i++) {
        largest = fmax(largest, fabs(p->ref[x][i]));
    }
    for (int64_t i = 0; i < n; i++) {
        double off = fabs(decode(type_of(p, x), host, i) - p->ref[x][i]);
        worst = off <= worst ? worst : off;
        if (!(off <= part * largest)) {
            fail_msg("%s[%lld] of B%lld T%lld H%lld/%lld E%lld, packing %d: want %.9g, got %.9g, "
                     "largest %g",
                     names[x], (long long)i, (long long)h->b, (long long)h->t, (long long)h->h,
                     (long long)h->kv, (long long)h->e, (int)h->packing, p->ref[x][i],
                     decode(type_of(p, x), host, i), largest);
        }
    }
    if (getenv("TANDEM_SHOW")) {
        printf("%s T%lld E%lld %s: %.2g of %g\n", p->t == DTYPE_F32 ? "f32" : "bf16",
               (long long)h->t, (long long)h->e, names[x], worst / largest, largest);
    }
    free(host);
}

/* The device's numbers take the place of the reference's. */
static void adopt(cudaStream_t s, struct problem *p, enum tensor x)
{
    void *host = take(s, p, x);
    for (int64_t i = 0; i < count(&p->shape, x); i++) {
        p->ref[x][i] = decode(type_of(p, x), host, i);
    }
    free(host);
}

/* The reference's backward pass starts from what the device's forward pass has rounded, so that it
 * sees no errors but the device's backward pass's own. */
static void check(enum dtype t, struct shape shape, int schedule)
{
    schedule_take(schedule % NUM_SCHEDULES);
    cudaStream_t s = stream_open();
    struct problem p = problem_new(s, t, shape, 1);
    run_device(s, &p);
    const struct kernels *k = kernels_ref();
    void *workspace = malloc(
        k->attention_workspace(ref, DTYPE_F64, shape.b, shape.t, shape.h, shape.kv, shape.e));
    struct attention_args a = args_of(&p, (void *const *)p.ref, p.host_segments, workspace);
    assert_int_equal(k->attention_fwd(ref, ref_stream, DTYPE_F64, &a, &err), 0);
    agree(s, &p, O);
    agree(s, &p, LSE);
    adopt(s, &p, O);
    adopt(s, &p, LSE);
    assert_int_equal(k->attention_bwd(ref, ref_stream, DTYPE_F64, &a, &err), 0);
    agree(s, &p, DQ);
    agree(s, &p, DK);
    agree(s, &p, DV);
    free(workspace);
    problem_free(&p);
    MUST(cudaStreamDestroy(s));
}

/* Sanitizers are slow; what they look for shows in some cases as in all. */
static size_t stride(void)
{
#ifdef CUSIM_TSAN
    return (size_t)effort(1, 4, 4);
#elif defined CUSIM_ASAN
    return (size_t)effort(1, 2, 3);
#else
    return (size_t)effort(1, 1, 2);
#endif
}

static void bf16_heads_of_all_widths_agree_with_f64(void **state)
{
    (void)state;
    static const struct shape shapes[] = {
        {1, 67, 2, 1, 32, WHOLE, 0, false},  {2, 33, 3, 3, 40, WHOLE, 0, false},
        {1, 129, 1, 1, 64, WHOLE, 0, false}, {1, 71, 2, 2, 88, WHOLE, 0, false},
        {1, 66, 1, 1, 96, WHOLE, 0, false},  {1, 77, 2, 1, 104, WHOLE, 0, false},
        {1, 131, 2, 1, 128, WHOLE, 0, false}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i += stride()) {
        check(DTYPE_BF16, shapes[i], (int)i);
    }
}

static void any_length_of_a_sequence_will_do(void **state)
{
    (void)state;
    static const int64_t lengths[] = {1, 2, 15, 17, 63, 64, 65, 127, 128, 193};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i += stride()) {
        check(DTYPE_BF16, (struct shape){1, lengths[i], 1, 1, 32, WHOLE, 0, false}, (int)i);
        check(DTYPE_F32, (struct shape){1, lengths[i], 1, 1, 5, WHOLE, 0, false}, (int)i);
    }
}

/* What was summed is scaled to a new maximum, also where one row of a warp alone has one. */
static void a_maximum_that_comes_late_counts(void **state)
{
    (void)state;
    for (int e = 32; e <= (stride() > 3 ? 32 : 128); e += 96) {
        check(DTYPE_BF16, (struct shape){.b = 1, .t = 256, .h = 1, .kv = 1, .e = e, .late = true},
              e);
    }
    check(DTYPE_F32, (struct shape){.b = 1, .t = 256, .h = 1, .kv = 1, .e = 16, .late = true}, 2);
}

static void keys_of_a_group_sum_over_its_heads(void **state)
{
    (void)state;
    check(DTYPE_BF16, (struct shape){2, 70, 6, 2, 32, WHOLE, 0, false}, 0);
    check(DTYPE_BF16, (struct shape){1, 35, 5, 1, 64, WHOLE, 0, false}, 1);
    check(DTYPE_F32, (struct shape){2, 41, 6, 2, 12, WHOLE, 0, false}, 2);
}

/* A tile may be left out only where it holds nothing for anybody. */
static void documents_do_not_see_each_other(void **state)
{
    (void)state;
    if (stride() > 3) {
        check(DTYPE_BF16, (struct shape){2, 137, 1, 1, 32, SCATTERED, 0, false}, 0);
        check(DTYPE_BF16, (struct shape){1, 133, 1, 1, 128, DOCUMENTS, 0, false}, 1);
        check(DTYPE_F32, (struct shape){2, 137, 2, 1, 7, LONELY, 0, false}, 2);
        return;
    }
    for (int packing = DOCUMENTS; packing <= LONELY; packing += stride() > 1 ? 2 : 1) {
        check(DTYPE_BF16, (struct shape){2, 201, 1, 1, 32, (enum packing)packing, 0, false},
              packing);
        check(DTYPE_BF16, (struct shape){1, 133, 2, 1, 128, (enum packing)packing, 0, false},
              packing);
        check(DTYPE_F32, (struct shape){2, 201, 2, 1, 7, (enum packing)packing, 0, false}, packing);
    }
}

static void what_tensor_cores_cannot_take_is_computed_without(void **state)
{
    (void)state;
    static const struct shape shapes[] = {
        {2, 37, 2, 1, 8, WHOLE, 0, false},       {1, 65, 2, 2, 16, WHOLE, 0, false},
        {1, 40, 3, 1, 24, DOCUMENTS, 0, false},  {1, 33, 1, 1, 1, WHOLE, 0, false},
        {1, 35, 2, 1, 33, WHOLE, 0, false},      {1, 37, 1, 1, 100, WHOLE, 0, false},
        {1, 34, 1, 1, 200, SCATTERED, 0, false}, {1, 39, 1, 1, 256, WHOLE, 0, false},
        {1, 66, 1, 1, 64, WHOLE, 2, false}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i += stride()) {
        struct shape f32 = shapes[i];
        f32.skip *= 2;
        check(DTYPE_BF16, shapes[i], (int)i);
        check(DTYPE_F32, f32, (int)i);
    }
}

/* The same numbers, the same bits: whatever order blocks, threads and copies come in. */
static void every_schedule_has_the_same_bits(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        struct shape shape = {1, kind ? 70 : 131, 2, 1, kind ? 9 : 32, DOCUMENTS, 0, false};
        enum dtype t = kind ? DTYPE_F32 : DTYPE_BF16;
        void *first[NUM_TENSORS] = {NULL};
        for (int i = 0; i < NUM_SCHEDULES; i++) {
            schedule_take(i);
            cudaStream_t s = stream_open();
            struct problem p = problem_new(s, t, shape, 1);
            run_device(s, &p);
            for (int x = O; x < NUM_TENSORS; x++) {
                void *now = take(s, &p, (enum tensor)x);
                size_t bytes =
                    (size_t)count(&shape, (enum tensor)x) * dtype_size(type_of(&p, (enum tensor)x));
                if (i == 0) {
                    first[x] = now;
                    continue;
                }
                assert_memory_equal(now, first[x], bytes);
                free(now);
            }
            problem_free(&p);
            MUST(cudaStreamDestroy(s));
        }
        for (int x = O; x < NUM_TENSORS; x++) {
            free(first[x]);
        }
    }
}

/* What so many threads touch at once, `bytes` each, must lie in different banks: there are 32 of 4
 * bytes. */
static void expect_no_conflict(const char *what, int e, const int32_t *at, int num_threads,
                               int bytes)
{
    for (int first = 0; first < 128; first += num_threads) {
        uint32_t taken = 0;
        for (int i = first; i < first + num_threads; i++) {
            uint32_t banks = (bytes == 16 ? 0xfu : 1u) << at[i] / 4 % 32;
            if (at[i] % bytes != 0 || taken & banks) {
                fail_msg("%s, heads of %d: thread %d meets another in a bank", what, e, i);
            }
            taken |= banks;
        }
    }
}

static void no_two_threads_meet_in_a_bank(void **state)
{
    (void)state;
    cudaStream_t s = stream_open();
    for (int e = 32; e <= 128; e += 32) {
        struct attention_banks *out = side_put(s, NULL, sizeof *out);
        struct attention_banks *at = malloc(sizeof *at);
        MUST(attention_banks_of(s, e, out));
        side_get(s, at, out, sizeof *at);
        for (int k = 0; k < e / 16; k++) {
            expect_no_conflict("ldmatrix of a left factor", e, at->left[k], 8, 16);
            expect_no_conflict("ldmatrix of a right factor", e, at->across[k], 8, 16);
        }
        expect_no_conflict("copy", e, at->copy, 8, 16);
        for (int n = 0; n < e / 8; n++) {
            expect_no_conflict("sums", e, at->sums[n], 32, 4);
        }
        free(at);
        side_free(out, 0);
    }
    MUST(cudaStreamDestroy(s));
}

static void what_makes_no_sense_is_refused(void **state)
{
    (void)state;
    cudaStream_t s = stream_open();
    struct attention_args a = {.b = 1, .t = 4, .h = 3, .kv = 2, .e = 8, .scale = 1};
    assert_int_equal(cuda_attention_fwd(s, DTYPE_F32, &a), cudaErrorInvalidValue);
    a.kv = 1;
    a.e = 257;
    assert_int_equal(cuda_attention_fwd(s, DTYPE_F32, &a), cudaErrorInvalidValue);
    a.e = 8;
    assert_int_equal(cuda_attention_fwd(s, DTYPE_F64, &a), cudaErrorInvalidValue);
    assert_int_equal(cuda_attention_bwd(s, DTYPE_F32, &a), cudaErrorInvalidValue);
    a.t = 0;
    MUST(cuda_attention_fwd(s, DTYPE_F32, &a));
    MUST(cuda_attention_bwd(s, DTYPE_BF16, &a));
    MUST(cudaStreamDestroy(s));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bf16_heads_of_all_widths_agree_with_f64),
        cmocka_unit_test(any_length_of_a_sequence_will_do),
        cmocka_unit_test(a_maximum_that_comes_late_counts),
        cmocka_unit_test(keys_of_a_group_sum_over_its_heads),
        cmocka_unit_test(documents_do_not_see_each_other),
        cmocka_unit_test(what_tensor_cores_cannot_take_is_computed_without),
        cmocka_unit_test(every_schedule_has_the_same_bits),
        cmocka_unit_test(no_two_threads_meet_in_a_bank),
        cmocka_unit_test(what_makes_no_sense_is_refused),
    };
    return cmocka_run_group_tests(tests, open_ref, close_ref);
}
