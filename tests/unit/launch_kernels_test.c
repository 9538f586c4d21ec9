/* How many kernels the plan takes each call of the CUDA backend to be, against how many that
 * launches: every call of a step's list, on simulated GPUs. Products: whether one call does all. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/cuda/device.h"
#include "kernels/cuda/front.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cusim/control.h"
#include "plan/launches.h"
#include "plan_case.h"

#define ROOM_BYTES ((size_t)32 << 20) /* of each operand */
#define NUM_ROOMS 8

static struct device *dev;
static struct stream *compute;
static char *room[NUM_ROOMS]; /* zeros: ids of 0, one segment */

static int open_device(void **state)
{
    (void)state;
    struct error err = {0};
    cusim_schedule(CUSIM_FORWARD, CUSIM_EAGER, 1);
    if (cuda_device_open(0, &dev, &err) != 0 ||
        dev->ops->stream_new(dev, STREAM_INLINE, &compute, &err) != 0) {
        fail_msg("%s", err.text);
    }
    for (int i = 0; i < NUM_ROOMS; i++) {
        room[i] = dev->ops->alloc(dev, ROOM_BYTES, MEM_DEVICE);
        assert_non_null(room[i]);
    }
    return 0;
}

static int close_device(void **state)
{
    (void)state;
    for (int i = 0; i < NUM_ROOMS; i++) {
        dev->ops->free(dev, room[i]);
    }
    dev->ops->stream_free(dev, compute);
    dev->ops->close(dev);
    return 0;
}

/* ---- a launch as a call --------------------------------------------------------------------- */

static enum dtype type_of(int32_t elem)
{
    return elem == 2 ? DTYPE_BF16 : elem == 4 ? DTYPE_F32 : DTYPE_F64;
}

static int product(const struct launch *l, struct error *err)
{
    struct gemm_args a = {
        .m = l->size[0],
        .n = l->size[1],
        .k = l->size[2],
        .alpha = 1,
        .beta = l->adds ? 1 : 0,
        .a = room[0],
        .lda = l->size[2],
        .b = room[1],
        .ldb = l->size[1],
        .c = room[2],
        .ldc = l->size[1],
        .c_type = type_of(l->c_elem),
        .c0 = l->beside & LAUNCH_BIAS ? room[3] : NULL,
        .bias = l->beside & LAUNCH_BIAS ? room[4] : NULL,
        .gelu = l->beside & LAUNCH_GELU ? room[5] : NULL,
        .gelu_of = l->beside & LAUNCH_GELU_OF ? room[6] : NULL,
    };
    return cuda_kernels.gemm(dev, compute, type_of(l->elem), &a, err);
}

static int attention(const struct launch *l, struct error *err)
{
    struct attention_args a = {
        .b = l->size[0],
        .t = l->size[1],
        .h = l->size[2],
        .kv = l->size[3],
        .e = l->size[4],
        .scale = 1,
        .q = room[0],
        .k = room[1],
        .v = room[2],
        .o = room[3],
        .lse = room[4],
        .d_o = room[5],
        .dq = room[6],
        .dk = room[7],
        .dv = room[7] + ROOM_BYTES / 2,
        .workspace = room[4] + ROOM_BYTES / 2,
    };
    enum dtype t = type_of(l->elem);
    return l->op == LAUNCH_ATTENTION_FWD ? cuda_kernels.attention_fwd(dev, compute, t, &a, err)
                                         : cuda_kernels.attention_bwd(dev, compute, t, &a, err);
}

static int norm(const struct launch *l, struct error *err)
{
    const struct kernels *k = &cuda_kernels;
    enum dtype t = type_of(l->elem);
    int64_t r = l->size[0], d = l->size[1];
    switch (l->op) {
    case LAUNCH_RMSNORM_FWD:
        return k->rmsnorm_fwd(dev, compute, t, room[0], room[1], room[2], room[3], r, d, 1e-5, err);
    case LAUNCH_RMSNORM_BWD:
        return k->rmsnorm_bwd(dev, compute, t, room[0], room[1], room[2], room[3], room[4], room[5],
                              r, d, l->adds, room[6], err);
    case LAUNCH_LAYERNORM_FWD:
        return k->layernorm_fwd(dev, compute, t, room[0], room[1], room[2], room[3], room[4],
                                room[5], r, d, 1e-5, err);
    default:
        return k->layernorm_bwd(dev, compute, t, room[0], room[1], room[1] + ROOM_BYTES / 2,
                                room[2], room[3], room[4], room[5], room[5] + ROOM_BYTES / 2, r, d,
                                l->adds, room[6], err);
    }
}

/* The numbers in runs of the same length. */
static int step(const struct launch *l, struct error *err)
{
    static struct step_run runs[512];
    int32_t num = (int32_t)l->size[1];
    assert_true(num <= 512);
    for (int32_t i = 0; i < num; i++) {
        runs[i] = (struct step_run){.n = 16};
    }
    struct step_args a = {.runs = runs,
                          .num_runs = num,
                          .w = room[0],
                          .m = room[1],
                          .v = room[2],
                          .g = room[3],
                          .low = room[4],
                          .lr = 1e-3,
                          .beta1 = 0.9,
                          .beta2 = 0.95,
                          .eps = 1e-8,
                          .bias1 = 0.1,
                          .bias2 = 0.05};
    return l->op == LAUNCH_ADAMW ? cuda_kernels.adamw(dev, compute, DTYPE_F32, &a, err)
                                 : cuda_kernels.sgd(dev, compute, DTYPE_F32, &a, err);
}

static int squares(const struct launch *l, struct error *err)
{
    static struct span spans[512];
    int32_t num = (int32_t)l->size[1];
    assert_true(num <= 512);
    for (int32_t i = 0; i < num; i++) {
        spans[i] = (struct span){0, 16};
    }
    return cuda_kernels.sum_squares(dev, compute, DTYPE_F32, (double *)room[0], room[1], spans, num,
                                    room[2], err);
}

static int loss(const struct launch *l, struct error *err)
{
    const struct kernels *k = &cuda_kernels;
    enum dtype t = type_of(l->elem);
    const struct logits_part part = {.logits = room[0],
                                     .r = l->size[0],
                                     .ld = l->size[1],
                                     .valid = l->size[1],
                                     .targets = (int32_t *)room[1]};
    double *words = (double *)room[2];
    switch (l->op) {
    case LAUNCH_CROSS_ENTROPY:
        return k->cross_entropy(dev, compute, t, words, room[0], room[0], part.targets, 1, part.r,
                                part.valid, part.ld, err);
    case LAUNCH_CE_MAX:
        return k->ce_max(dev, compute, t, words, &part, err);
    case LAUNCH_CE_SUM:
        return k->ce_sum(dev, compute, t, words, (double *)room[3], &part, err);
    default:
        return k->ce_finish(dev, compute, t, words, room[0], (double *)room[3], (double *)room[4],
                            1, &part, err);
    }
}

static int numbers(const struct launch *l, struct error *err)
{
    const struct kernels *k = &cuda_kernels;
    enum dtype t = type_of(l->elem);
    int64_t n = l->size[0];
    double *words = (double *)room[0];
    switch (l->op) {
    case LAUNCH_ROPE:
        return k->rope(dev, compute, t, room[0], room[1], room[2], NULL, n, n, l->size[1],
                       l->size[2], false, err);
    case LAUNCH_SWIGLU_FWD:
        return k->swiglu_fwd(dev, compute, t, room[0], room[1], room[2], n, err);
    case LAUNCH_SWIGLU_BWD:
        return k->swiglu_bwd(dev, compute, t, room[0], room[1], room[2], room[3], room[4], n, err);
    case LAUNCH_ADD_BIAS:
        return k->add_bias(dev, compute, t, room[0], room[1], n, l->size[1], err);
    case LAUNCH_COLUMN_SUM:
        return k->column_sum(dev, compute, t, room[0], room[1], n, l->size[1], err);
    case LAUNCH_ADD:
        return k->add(dev, compute, t, room[0], room[1], room[2], n, err);
    case LAUNCH_SCALE:
        return k->scale(dev, compute, t, room[0], 2, n, err);
    case LAUNCH_SUM_DOUBLE:
        return k->sum_double(dev, compute, words, words + 8, n, err);
    case LAUNCH_CLIP:
        return k->clip(dev, compute, words, words + 1, words + 2, 1, err);
    case LAUNCH_EMBED_FWD:
        return k->embed_fwd(dev, compute, t, room[0], room[1], (int32_t *)room[2], 0, n, l->size[2],
                            l->size[1], err);
    default:
        return k->embed_bwd(dev, compute, t, room[0], room[1], (int32_t *)room[2], 0, n, l->size[2],
                            l->size[1], room[3], err);
    }
}

static int call(const struct launch *l, struct error *err)
{
    switch (launch_kind(l)) {
    case LAUNCH_KIND_GEMM:
        return product(l, err);
    case LAUNCH_KIND_ATTENTION:
        return attention(l, err);
    case LAUNCH_KIND_NORM:
        return norm(l, err);
    case LAUNCH_KIND_LOSS:
        return loss(l, err);
    default:
        return l->op == LAUNCH_ADAMW || l->op == LAUNCH_SGD ? step(l, err)
               : l->op == LAUNCH_SUM_SQUARES                ? squares(l, err)
                                                            : numbers(l, err);
    }
}

/* ---- against the plan ----------------------------------------------------------------------- */

#define MAX_SEEN 256

struct comparison {
    struct launch seen[MAX_SEEN]; /* each shape is called once */
    int num_seen;
    bool skips_attention; /* long rows take the simulator long */
};

static bool is_new(struct comparison *c, const struct launch *l)
{
    for (int i = 0; i < c->num_seen; i++) {
        const struct launch *s = &c->seen[i];
        if (s->op == l->op && s->elem == l->elem && s->c_elem == l->c_elem && s->adds == l->adds &&
            s->beside == l->beside && memcmp(s->size, l->size, sizeof s->size) == 0) {
            return false;
        }
    }
    assert_true(c->num_seen < MAX_SEEN);
    c->seen[c->num_seen++] = *l;
    return true;
}

static void compare(void *arg, const struct launch *l)
{
    struct comparison *c = arg;
    struct error err = {0};
    enum launch_kind kind = launch_kind(l);
    if (kind == LAUNCH_KIND_COMM || kind == LAUNCH_KIND_MEMORY || l->op == LAUNCH_RECORD ||
        l->op == LAUNCH_WAIT || (kind == LAUNCH_KIND_ATTENTION && c->skips_attention) ||
        !is_new(c, l)) {
        return;
    }
    struct gemm_counts *gemms = gemm_cache_counts(cuda_of(dev)->gemm);
    int64_t fused = gemms->fused, before = cusim_counted().launches;
    if (call(l, &err) != 0 || dev->ops->stream_sync(dev, compute, &err) != 0) {
        fail_msg("%s", err.text);
    }
    int64_t launched = cusim_counted().launches - before;
    if (kind == LAUNCH_KIND_GEMM) {
        launched = gemms->fused > fused ? 1 : 2;
    }
    if (launched != l->num_kernels) {
        fail_msg("%s %s %lld x %lld x %lld: %lld kernels, the plan has %d", launch_op_names[l->op],
                 l->what, (long long)l->size[0], (long long)l->size[1], (long long)l->size[2],
                 (long long)launched, l->num_kernels);
    }
}

static void check(struct plan_case *c, bool skips_attention)
{
    static struct comparison compared;
    struct error err = {0};
    compared = (struct comparison){.skips_attention = skips_attention};
    Plan *p = plan_case_build(c);
    assert_string_equal(p->backend, "cuda");
    if (launches_each(p, compare, &compared, &err) != 0) {
        fail_msg("%s", err.text);
    }
    assert_true(compared.num_seen > 20);
    plan__free_unpacked(p, NULL);
}

static struct plan_case *on_gpus(int64_t seq_len, int64_t tensor, const char *family)
{
    struct plan_case *c = plan_case_new();
    for (int i = 0; i < 4; i++) {
        c->devices[i].type = (char *)(uintptr_t) "h100";
        c->devices[i].has_peak_flops_fp32 = 0;
    }
    c->config.model_type = (char *)(uintptr_t)family;
    c->config.max_position_embeddings = seq_len;
    c->layout.data = 1;
    c->layout.tensor = tensor;
    c->training.seq_len = seq_len;
    c->training.global_batch_size = 2;
    c->data_facts.num_tokens = (int64_t)1 << 30;
    return c;
}

/* Short rows, and ones long enough for more sorting launches and for sums in parts. */
static void calls_are_as_many_kernels_as_the_plan_says(void **state)
{
    (void)state;
    static const int64_t lengths[] = {12, 96, 2112};
    for (int i = 0; i < 3; i++) {
        for (int tensor = 1; tensor <= 2; tensor++) {
            struct plan_case *c = on_gpus(lengths[i], tensor, "llama");
            check(c, lengths[i] > 100);
            plan_case_free(c);
            c = on_gpus(lengths[i], tensor, "gpt2");
            /* GELU's rows of 252 are no multiple of 16 bytes. */
            plan_case_config(c, 2, 64, i == 1 ? 252 : 256, 4, 4, 250);
            c->config.tie_word_embeddings = 1;
            check(c, lengths[i] > 100);
            plan_case_free(c);
        }
    }
}

/* More tensors than one launch of the optimizer takes. */
static void many_tensors_take_more_launches(void **state)
{
    (void)state;
    struct plan_case *c = on_gpus(12, 1, "gpt2");
    plan_case_config(c, 24, 32, 64, 2, 2, 64);
    c->config.tie_word_embeddings = 1;
    check(c, true);
    plan_case_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_are_as_many_kernels_as_the_plan_says),
        cmocka_unit_test(many_tensors_take_more_launches),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
