/* One model cut over tensor ranks, which are threads, against the same model on one rank, in fp64:
 * loss, and every gradient after what the table says must still be summed has been summed. All
 * families; more ranks than KV heads, vocabularies that no number of ranks divides, rows that
 * sequence parallel can't deal out evenly. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/rng.h"
#include "plan/pieces.h"
#include "solo.h"

#define MAX_TENSOR 6
#define NUM_LAYERS 2
#define NUM_MICRO 2
#define SEED 11

/* Heads and ranks that go together; and what a micro-batch is. */
struct cut {
    int64_t heads, kv_heads;
    int32_t tensor;
};
struct shape {
    int64_t vocab, micro, seq_len;
    bool tied, packed;
};
struct precision {
    const char *backend;
    enum dtype dtype;
    double tolerance;
};
struct tensor_case {
    const char *family;
    struct cut cut;
    struct shape shape;
    bool sequence;
    struct precision precision;
};

static const char *const families[] = {"llama", "qwen2", "qwen3", "gpt2"};
static const struct cut cuts[] = {
    {4, 4, 2}, {6, 2, 2}, /* as many KV heads, or more */
    {6, 3, 3}, {8, 4, 4},  {6, 6, 6},
    {4, 2, 4}, {6, 3, 6},  {8, 1, 4}, /* fewer: each lies on several ranks */
    {6, 2, 6}, {12, 2, 6},
};
static const struct shape shapes[] = {
    {331, 3, 5, false, true},  /* 15 rows */
    {64, 2, 6, true, false},   /* 12 */
    {5, 1, 7, true, true},     /* 7 rows, and fewer words than six ranks */
    {331, 1, 3, false, false}, /* fewer rows than four ranks */
};
#define NUM(list) (sizeof(list) / sizeof((list)[0]))
static const struct precision fp64 = {"ref", DTYPE_F64, 1e-12};
static const struct precision fp32 = {"cpu", DTYPE_F32, 2e-5};

static ModelConfig config_of(const struct tensor_case *c)
{
    ModelConfig config = MODEL_CONFIG__INIT;
    bool gpt2 = strcmp(c->family, "gpt2") == 0;
    config.model_type = (char *)(uintptr_t)c->family;
    config.num_hidden_layers = NUM_LAYERS;
    config.num_attention_heads = c->cut.heads;
    config.num_key_value_heads = gpt2 ? c->cut.heads : c->cut.kv_heads;
    config.head_dim = 4;
    config.hidden_size = strcmp(c->family, "qwen3") == 0 ? 20 : 4 * c->cut.heads;
    config.intermediate_size = 24;
    config.vocab_size = c->shape.vocab;
    config.max_position_embeddings = 16;
    config.tie_word_embeddings = c->shape.tied;
    config.rms_norm_eps = 1e-5;
    config.rope_theta = 10000.0;
    return config;
}

/* ---- what goes in: drawn by names and numbers, alike for every cut ----------------------------
 */

struct filling {
    const struct param *param;
    enum dtype dtype;
    void *weights;
};

static int fill_piece(void *arg, const struct piece *piece, struct error *err)
{
    (void)err;
    const struct filling *f = arg;
    for (int64_t i = 0; i < piece->numel; i++) {
        double u = rng_uniform(SEED, rng_stream(f->param->name), (uint64_t)(piece->whole + i));
        double x = f->param->init_ones ? 0.5 + u : 0.4 * (u - 0.5);
        int64_t at = f->param->offset + piece->local + i;
        if (f->dtype == DTYPE_F64)
            ((double *)f->weights)[at] = x;
        else
            ((float *)f->weights)[at] = (float)x;
    }
    return 0;
}

static void fill_weights(struct solo *s, int32_t tensor, int32_t idx)
{
    for (int32_t i = 0; i < s->table.num_params; i++) {
        struct filling f = {.param = &s->table.params[i], .dtype = s->dtype, .weights = s->weights};
        ASSERT(pieces_each(f.param, tensor, idx, 0, f.param->numel, fill_piece, &f, NULL) == 0);
    }
}

struct input {
    int32_t ids[64], targets[64], positions[64], segments[64];
};

/* Two documents a row; every fifth target is ignored. */
static int64_t draw_input(struct input *in, const struct shape *shape, int micro_batch)
{
    int64_t num_targets = 0, half = shape->seq_len / 2;
    for (int64_t r = 0; r < shape->micro * shape->seq_len; r++) {
        int64_t t = r % shape->seq_len;
        uint64_t key = (uint64_t)(micro_batch * 1000 + r);
        in->ids[r] = (int32_t)(rng_u64(SEED, 1, key) % (uint64_t)shape->vocab);
        in->targets[r] =
            r % 5 == 4 ? -100 : (int32_t)(rng_u64(SEED, 2, key) % (uint64_t)shape->vocab);
        in->positions[r] = (int32_t)(t < half ? t : t - half);
        in->segments[r] = t < half ? 0 : 1;
        num_targets += in->targets[r] >= 0;
    }
    return num_targets;
}

/* ---- one rank ---------------------------------------------------------------------------------
 */

struct rank {
    const struct tensor_case *c;
    int32_t tensor, idx;
    int segment_fd;
    pthread_t thread;
    struct solo solo; /* out; closed by the test */
    ModelConfig config;
};

static void *run_rank(void *arg)
{
    struct rank *rank = arg;
    const struct tensor_case *c = rank->c;
    rank->config = config_of(c);
    const struct solo_options options = {
        .config = &rank->config,
        .backend = c->precision.backend,
        .dtype = c->precision.dtype,
        .micro = c->shape.micro,
        .seq_len = c->shape.seq_len,
        .trains = true,
        .tensor = rank->tensor,
        .tensor_idx = rank->idx,
        .sequence = c->sequence && rank->tensor > 1,
        .segment_fd = rank->segment_fd,
    };
    solo_open(&rank->solo, &options);
    fill_weights(&rank->solo, rank->tensor, rank->idx);
    struct input in[NUM_MICRO];
    int64_t num_targets = 0;
    for (int i = 0; i < NUM_MICRO; i++)
        num_targets += draw_input(&in[i], &c->shape, i);
    for (int i = 0; i < NUM_MICRO; i++) {
        const struct batch batch = {
            .ids = in[i].ids,
            .targets = in[i].targets,
            .positions = c->shape.packed ? in[i].positions : NULL,
            .segments = c->shape.packed ? in[i].segments : NULL,
        };
        solo_run(&rank->solo, &batch, 1.0 / (double)num_targets);
    }
    return NULL;
}

/* ---- sums and comparisons ---------------------------------------------------------------------
 */

static void fail_case(const struct tensor_case *c, const char *what, double off)
{
    fail_msg("%s H %lld K %lld T %d V %lld rows %lld%s%s %s: %s is off by %.2e", c->family,
             (long long)c->cut.heads, (long long)c->cut.kv_heads, c->cut.tensor,
             (long long)c->shape.vocab, (long long)(c->shape.micro * c->shape.seq_len),
             c->shape.tied ? " tied" : "", c->sequence ? " sequence" : "", c->precision.backend,
             what, off);
}

/* Do ranks a and b hold parts whose gradients are to be summed? */
static bool sums_with(const struct param *p, const struct tensor_case *c, int32_t a, int32_t b)
{
    if (p->sum == PARAM_SUM_REPLICAS) {
        int64_t copies = c->cut.tensor / c->cut.kv_heads;
        return a / copies == b / copies;
    }
    return p->sum == PARAM_SUM_TENSOR || a == b;
}

/* Gradient of element i of param j on rank idx, summed as the table says. */
static double summed(const struct rank *ranks, const struct tensor_case *c, int32_t idx, int32_t j,
                     int64_t i)
{
    double sum = 0.0;
    for (int32_t b = 0; b < c->cut.tensor; b++) {
        const struct param *p = &ranks[b].solo.table.params[j];
        if (sums_with(p, c, idx, b))
            sum += solo_number(c->precision.dtype, ranks[b].solo.grads, p->offset + i);
    }
    return sum;
}

struct comparison {
    const struct tensor_case *c;
    const struct rank *ranks, *one;
    int32_t idx, j, one_j;
    double off, all;
    int64_t num;
};

static int compare_piece(void *arg, const struct piece *piece, struct error *err)
{
    (void)err;
    struct comparison *x = arg;
    const struct param *whole = &x->one->solo.table.params[x->one_j];
    for (int64_t i = 0; i < piece->numel; i++) {
        double got = summed(x->ranks, x->c, x->idx, x->j, piece->local + i);
        double want = solo_number(x->c->precision.dtype, x->one->solo.grads,
                                  whole->offset + piece->whole + i);
        x->off += (got - want) * (got - want);
        x->all += want * want;
    }
    x->num += piece->numel;
    return 0;
}

/* What lies behind the true rows of a cut vocabulary gets no gradient. */
static void check_padding(const struct tensor_case *c, const struct rank *rank,
                          const struct param *p, int64_t num_true)
{
    double sum = 0.0;
    for (int64_t i = 0; i < p->numel; i++)
        sum += p->shape[0] != c->shape.vocab || i < num_true
                   ? 0.0
                   : fabs(solo_number(c->precision.dtype, rank->solo.grads, p->offset + i));
    if (sum != 0.0)
        fail_case(c, p->name, sum);
}

static double whole_norm(const struct rank *one)
{
    double all = 0.0;
    for (int64_t i = 0; i < one->solo.table.flat_numel; i++) {
        double x = solo_number(one->solo.dtype, one->solo.grads, i);
        all += x * x;
    }
    return sqrt(all);
}

static void check_grads(const struct tensor_case *c, const struct rank *ranks,
                        const struct rank *one)
{
    const struct param_table *table = &ranks[0].solo.table;
    double norm = whole_norm(one);
    assert_int_equal(table->num_params, one->solo.table.num_params);
    for (int32_t j = 0; j < table->num_params; j++) {
        const struct param *p = &table->params[j];
        int32_t one_j = params_find(&one->solo.table, p->name);
        assert_true(one_j >= 0);
        struct comparison x = {.c = c, .ranks = ranks, .one = one, .j = j, .one_j = one_j};
        for (; x.idx < c->cut.tensor; x.idx++) {
            x.num = 0;
            assert_int_equal(
                pieces_each(p, c->cut.tensor, x.idx, 0, p->numel, compare_piece, &x, NULL), 0);
            check_padding(c, &ranks[x.idx], p, x.num);
        }
        /* Some gradients are zero in theory: the bias of keys. */
        if (!(sqrt(x.off) <= c->precision.tolerance * (sqrt(x.all) + 1e-3 * norm)))
            fail_case(c, p->name, sqrt(x.off / x.all));
    }
}

static void check_case(const struct tensor_case *c)
{
    struct rank one = {.c = c, .tensor = 1}, ranks[MAX_TENSOR];
    struct error err = {0};
    int fd;
    run_rank(&one);
    assert_int_equal(comm_host_segment_new(c->cut.tensor, 1 << 20, &fd, &err), 0);
    for (int32_t i = 0; i < c->cut.tensor; i++) {
        ranks[i] = (struct rank){.c = c, .tensor = c->cut.tensor, .idx = i, .segment_fd = fd};
        assert_int_equal(pthread_create(&ranks[i].thread, NULL, run_rank, &ranks[i]), 0);
    }
    for (int32_t i = 0; i < c->cut.tensor; i++)
        pthread_join(ranks[i].thread, NULL);
    for (int32_t i = 0; i < c->cut.tensor; i++) {
        double off = fabs(*ranks[i].solo.loss / *one.solo.loss - 1.0);
        if (!(off <= c->precision.tolerance))
            fail_case(c, "loss", off);
        /* All ranks have the same bits. */
        assert_true(*ranks[i].solo.loss == *ranks[0].solo.loss);
    }
    check_grads(c, ranks, &one);
    for (int32_t i = 0; i < c->cut.tensor; i++)
        solo_close(&ranks[i].solo);
    close(fd);
    solo_close(&one.solo);
}

/* Under sanitizers a few of all. */
static bool is_left_out(int number)
{
    return getenv("TANDEM_SAMPLE") != NULL && number % 7 != 0;
}

static void check_family(const char *family, struct precision precision)
{
    int number = 0;
    for (size_t i = 0; i < NUM(cuts); i++)
        for (size_t j = 0; j < NUM(shapes); j++)
            for (int sequence = 0; sequence < 2; sequence++) {
                const struct tensor_case c = {family, cuts[i], shapes[j], sequence == 1, precision};
                if (!is_left_out(number++))
                    check_case(&c);
            }
}

static void llama_on_any_tensor_ranks_equals_one_rank(void **state)
{
    (void)state;
    check_family(families[0], fp64);
}

static void qwen2_on_any_tensor_ranks_equals_one_rank(void **state)
{
    (void)state;
    check_family(families[1], fp64);
}

/* Gradients of q and k norms are parts of a sum even without sequence parallel. */
static void qwen3_on_any_tensor_ranks_equals_one_rank(void **state)
{
    (void)state;
    check_family(families[2], fp64);
}

/* Biases behind a sum are added once. */
static void gpt2_on_any_tensor_ranks_equals_one_rank(void **state)
{
    (void)state;
    check_family(families[3], fp64);
}

static void the_fast_backend_agrees_in_fp32(void **state)
{
    (void)state;
    int number = 0;
    for (size_t f = 0; f < NUM(families); f++)
        for (size_t i = 0; i < NUM(cuts); i += 3)
            for (int sequence = 0; sequence < 2; sequence++) {
                const struct tensor_case c = {families[f], cuts[i], shapes[f], sequence == 1, fp32};
                if (!is_left_out(number++))
                    check_case(&c);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llama_on_any_tensor_ranks_equals_one_rank),
        cmocka_unit_test(qwen2_on_any_tensor_ranks_equals_one_rank),
        cmocka_unit_test(qwen3_on_any_tensor_ranks_equals_one_rank),
        cmocka_unit_test(gpt2_on_any_tensor_ranks_equals_one_rank),
        cmocka_unit_test(the_fast_backend_agrees_in_fp32),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
