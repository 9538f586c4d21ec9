/* The plan's scratch space of kernels is what the kernels ask for. plan/ can't see them, so it has
 * their formulas once more. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/kernels.h"
#include "kernels/workspace.h"
#include "plan_case.h"

static struct plan_case *c;

static int setup(void **state)
{
    (void)state;
    c = plan_case_new();
    plan_case_cluster(c, 1, 8, 16, 0);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    plan_case_free(c);
    return 0;
}

/* Of one backend and type; dev and k NULL: CUDA's. */
struct asked {
    struct device *dev;
    const struct kernels *k;
    enum dtype t;
};

static size_t attention(const struct asked *a, int64_t b, int64_t t, int64_t h, int64_t kv,
                        int64_t e)
{
    return a->k ? a->k->attention_workspace(a->dev, a->t, b, t, h, kv, e)
                : workspace_cuda_attention(b, t, h, kv, e);
}

static size_t norm(const struct asked *a, int64_t r, int64_t d, bool layer_norm)
{
    if (a->k == NULL)
        return layer_norm ? workspace_cuda_layernorm_bwd(r, d) : workspace_cuda_rmsnorm_bwd(r, d);
    return layer_norm ? a->k->layernorm_bwd_workspace(a->dev, a->t, r, d)
                      : a->k->rmsnorm_bwd_workspace(a->dev, a->t, r, d);
}

static size_t embed(const struct asked *a, int64_t r, int64_t v, int64_t d)
{
    return a->k ? a->k->embed_bwd_workspace(a->dev, a->t, r, v, d) : workspace_cuda_embed_bwd(r, d);
}

static size_t squares(const struct asked *a, int32_t num)
{
    return a->k ? a->k->sum_squares_workspace(a->dev, dtype_wide(a->t), num)
                : workspace_cuda_sum_squares(num);
}

static size_t larger(size_t x, size_t y)
{
    return x > y ? x : y;
}

/* As runtime/layers/acts.c takes it. */
static size_t asked_for(const struct asked *a)
{
    const ModelConfig *m = &c->config;
    const ParallelSpec *l = &c->layout;
    bool gpt2 = strcmp(m->model_type, "gpt2") == 0;
    int64_t b = c->training.micro_batch_size, t = c->training.seq_len, rows = b * t;
    int64_t own = l->sequence_parallel ? (rows + l->tensor - 1) / l->tensor : rows;
    int64_t h = m->num_attention_heads / l->tensor;
    int64_t kv = (m->num_key_value_heads + l->tensor - 1) / l->tensor;
    size_t bytes = attention(a, b, t, h, kv, m->head_dim);
    bytes = larger(bytes, norm(a, own, m->hidden_size, gpt2));
    bytes = larger(bytes, embed(a, rows, m->vocab_size, m->hidden_size));
    if (gpt2)
        bytes = larger(bytes, embed(a, own, m->max_position_embeddings, m->hidden_size));
    if (strcmp(m->model_type, "qwen3") == 0)
        bytes = larger(bytes, norm(a, rows * h, m->head_dim, false));
    return (bytes + 63) / 64 * 64;
}

static int64_t planned(const Plan *p, ArenaKind kind)
{
    for (size_t i = 0; i < p->memory->n_arenas; i++)
        if (p->memory->arenas[i]->kind == kind)
            return p->memory->arenas[i]->bytes;
    return 0;
}

/* Sizes that make each of them the largest, on one rank and on several. */
static const struct {
    const char *family;
    int64_t d, f, h, kv, v;
    int64_t seq_len, micro, tensor;
    bool sequence;
} shapes[] = {
    {"llama", 64, 136, 8, 4, 256, 12, 1, 1, false},
    {"llama", 64, 136, 8, 4, 256, 500, 3, 2, true},
    {"llama", 2048, 136, 8, 4, 331, 64, 1, 1, false},
    {"llama", 64, 136, 8, 2, 331, 1025, 2, 4, false},
    {"qwen3", 64, 136, 32, 8, 256, 700, 1, 1, false},
    {"qwen3", 64, 136, 4, 4, 256, 65, 2, 2, true},
    {"gpt2", 64, 256, 8, 8, 331, 63, 2, 1, false},
    {"gpt2", 768, 3072, 12, 12, 50257, 1024, 4, 1, false},
    {"gpt2", 96, 384, 12, 12, 331, 200, 3, 4, true},
};

static void check(const struct asked *a, const char *backend, const char *precision)
{
    c->resources.backend = (char *)(uintptr_t)backend;
    c->training.precision = (char *)(uintptr_t)precision;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        c->config.model_type = (char *)(uintptr_t)shapes[i].family;
        plan_case_config(c, 2, shapes[i].d, shapes[i].f, shapes[i].h, shapes[i].kv, shapes[i].v);
        c->training.seq_len = shapes[i].seq_len;
        c->training.micro_batch_size = shapes[i].micro;
        c->training.global_batch_size = shapes[i].micro;
        c->layout.data = 1;
        c->layout.tensor = shapes[i].tensor;
        c->layout.sequence_parallel = shapes[i].sequence;
        Plan *p = plan_case_build(c);
        p->threads_per_rank = a->dev ? a->dev->ops->num_threads(a->dev) : 1;
        assert_int_equal(plan_set_memory(p, NULL), 0);
        if (planned(p, ARENA_WORKSPACE) != (int64_t)asked_for(a))
            fail_msg("%s %s, shape %zu: %lld bytes planned, %zu asked for", backend, precision, i,
                     (long long)planned(p, ARENA_WORKSPACE), asked_for(a));
        plan__free_unpacked(p, NULL);
    }
}

static void hosts_ask_for_what_the_plan_has(void **state)
{
    (void)state;
    static const struct {
        const char *backend, *precision;
        int threads;
        enum dtype t;
    } cases[] = {{"ref", "fp32", 1, DTYPE_F32},  {"ref", "fp64", 1, DTYPE_F64},
                 {"ref", "bf16", 1, DTYPE_BF16}, {"cpu", "fp32", 1, DTYPE_F32},
                 {"cpu", "fp32", 3, DTYPE_F32},  {"cpu", "bf16", 1, DTYPE_BF16},
                 {"cpu", "bf16", 3, DTYPE_BF16}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct kernels_options o = {.backend = cases[i].backend, .num_threads = cases[i].threads};
        struct asked a = {.t = cases[i].t};
        assert_int_equal(kernels_open(&o, &a.dev, &a.k, NULL), 0);
        check(&a, cases[i].backend, cases[i].precision);
        a.dev->ops->close(a.dev);
    }
}

static void be_gpus(void)
{
    for (size_t i = 0; i < c->nodes[0].n_devices; i++) {
        c->nodes[0].devices[i]->type = (char *)"h100";
    }
}

static void gpus_ask_for_what_the_plan_has(void **state)
{
    (void)state;
    struct asked a = {.t = DTYPE_BF16};
    be_gpus();
    check(&a, "cuda", "bf16");
    a.t = DTYPE_F32;
    check(&a, "cuda", "fp32");
}

/* Behind the norm's words, for as many runs of elements as there can be. */
static void sums_of_squares_have_their_room(void **state)
{
    (void)state;
    struct asked cuda = {.t = DTYPE_BF16};
    be_gpus();
    c->layout.data = 1;
    c->training.seq_len = 16;
    c->training.global_batch_size = 1;
    for (int64_t layers = 1; layers <= 64; layers *= 4) {
        plan_case_config(c, layers, 64, 136, 8, 4, 256);
        c->resources.backend = (char *)"cuda";
        Plan *p = plan_case_build(c);
        int32_t runs = (int32_t)(9 * layers + 3);
        int64_t words = 8 * 8 + (int64_t)squares(&cuda, runs);
        /* Ids and targets; RoPE's tables; each row's loss and their sum. */
        int64_t rest = 2 * 16 * 4 + 2 * 16 * 4 * 4 + 16 * 8 + 64;
        assert_int_equal(planned(p, ARENA_BATCH), rest + (words + 63) / 64 * 64);
        plan__free_unpacked(p, NULL);
    }
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(hosts_ask_for_what_the_plan_has),
        T(gpus_ask_for_what_the_plan_has),
        T(sums_of_squares_have_their_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
