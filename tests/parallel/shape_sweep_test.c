/* Shapes and layouts that nobody tuned for: models of all families, data, batches and layouts drawn
 * from a seed, each run on several ranks against one rank, in fp64 and as fp32 on cpu.
 * TANDEM_SEED=N begins elsewhere (a failure prints its own), TANDEM_CASES=N takes so many,
 * TANDEM_FULL=1 thousands, TANDEM_SAMPLE=1 (sanitizers) a few. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "compare.h"
#include "shapes.h"
#include "tests/effort.h"

#define NUM_STEPS 3
/* The project's bounds of fp32 against fp64. */
#define NEAR_LOSS 2e-6
#define NEAR_NORM 5e-6

/* ---- one case ---------------------------------------------------------------------------------
 */

struct drawn_case {
    uint64_t seed, next;
    struct shape shape;
    int64_t data, tensor, zero_stage, shard_size, micro, one_micro;
    bool sequence_parallel, shuffled, shared_token, packed, from_seed, adam;
    const char *bucket_mb, *clip;
};

static int64_t pick(struct drawn_case *c, const int64_t *list, size_t num)
{
    return list[rng_u64(c->seed, rng_stream("shape sweep"), c->next++) % num];
}
#define PICK(c, ...)                                                                               \
    pick((c), (const int64_t[]){__VA_ARGS__},                                                      \
         sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t))

static int64_t divisor_of(struct drawn_case *c, int64_t n)
{
    int64_t list[64];
    size_t num = 0;
    for (int64_t i = 1; i <= n; i++)
        if (n % i == 0 && num < 64)
            list[num++] = i;
    return pick(c, list, num);
}

static void draw_shape(struct drawn_case *c)
{
    static const char *const families[] = {"llama", "qwen2", "qwen3", "gpt2"};
    const int64_t groups[][2] = {{6, 3}, {5, 1}, {1, 1}, {4, 2}, {3, 3}, {7, 7}, {6, 2}, {8, 1}};
    struct shape *s = &c->shape;
    size_t group = (size_t)PICK(c, 0, 1, 2, 3, 4, 5, 6, 7);
    s->family = families[PICK(c, 0, 1, 2, 3)];
    bool gpt2 = strcmp(s->family, "gpt2") == 0;
    s->heads = groups[group][0];
    s->kv_heads = gpt2 ? s->heads : groups[group][1];
    s->head_dim = PICK(c, 2, 6, 8, 12, 20);
    /* Two elements that are small by chance, normed: a gradient so large that fp32 isn't near. */
    if (strcmp(s->family, "qwen3") == 0 && s->head_dim == 2)
        s->head_dim = 8;
    s->hidden = gpt2 ? s->heads * s->head_dim : PICK(c, 24, 33, 40, 56, 72, 7);
    s->ffn = s->heads * PICK(c, 1, 3, 8, 13);
    s->layers = PICK(c, 1, 2, 3);
    /* The largest makes buckets that go through the segment in several chunks. */
    s->vocab = PICK(c, 331, 97, 257, 2, 1000, 5000);
    s->seq_len = s->vocab > 1000 ? PICK(c, 7, 1) : PICK(c, 33, 16, 7, 1, 50);
    s->batch = PICK(c, 12, 15, 6, 30, 5);
    s->tied = gpt2 || PICK(c, 0, 1) != 0;
    s->llama3 = !gpt2 && PICK(c, 0, 1) != 0;
}

static void draw_layout(struct drawn_case *c)
{
    const struct shape *s = &c->shape;
    do {
        c->data = PICK(c, 1, 2, 3, 5, 6);
        c->tensor = divisor_of(c, s->heads);
    } while (s->batch % c->data != 0 ||
             (s->kv_heads % c->tensor != 0 && c->tensor % s->kv_heads != 0));
    c->zero_stage = PICK(c, 0, 1, 2, 3);
    c->shard_size = c->zero_stage > 0 && PICK(c, 0, 1) != 0 ? divisor_of(c, c->data) : 0;
    c->sequence_parallel = PICK(c, 0, 1) != 0;
    c->micro = divisor_of(c, s->batch / c->data);
    c->one_micro = divisor_of(c, s->batch);
}

static void draw_case(uint64_t seed, struct drawn_case *c)
{
    static const char *const buckets[] = {"0.001", "0.05", "25"};
    static const char *const clips[] = {"0", "0.05", "1.0"};
    *c = (struct drawn_case){.seed = seed};
    draw_shape(c);
    draw_layout(c);
    c->shuffled = PICK(c, 0, 1) != 0;
    c->shared_token = PICK(c, 0, 1) != 0;
    c->packed = PICK(c, 0, 0, 1) != 0;
    c->from_seed = PICK(c, 0, 0, 1) != 0;
    c->adam = PICK(c, 0, 0, 1) != 0;
    c->bucket_mb = buckets[PICK(c, 0, 1, 2)];
    c->clip = clips[PICK(c, 0, 1, 2)];
}

static const char *words_of(const struct drawn_case *c)
{
    static char words[512];
    const struct shape *s = &c->shape;
    snprintf(words, sizeof(words),
             "TANDEM_SEED=%llu: %s, heads %lld/%lld x %lld, hidden %lld, ffn %lld, layers %lld, "
             "vocab %lld%s%s%s, seq %lld, batch %lld, data %lld, tensor %lld%s, zero_stage %lld, "
             "shard_size %lld, micro %lld (against %lld), %s%s, window %s, bucket_mb %s, clip %s, "
             "%s",
             (unsigned long long)c->seed, s->family, (long long)s->heads, (long long)s->kv_heads,
             (long long)s->head_dim, (long long)s->hidden, (long long)s->ffn, (long long)s->layers,
             (long long)s->vocab, s->tied ? ", tied" : "", s->llama3 ? ", llama3 rope" : "",
             c->from_seed ? ", random init" : "", (long long)s->seq_len, (long long)s->batch,
             (long long)c->data, (long long)c->tensor, c->sequence_parallel ? " with sequence" : "",
             (long long)c->zero_stage, (long long)c->shard_size, (long long)c->micro,
             (long long)c->one_micro, c->packed ? "packed " : "",
             c->shuffled ? "shuffled" : "sequential", c->shared_token ? "T" : "T+1", c->bucket_mb,
             c->clip, c->adam ? "adamw" : "sgd");
    return words;
}

static struct gang_spec one_rank(const struct drawn_case *c, const struct shape_files *files)
{
    return (struct gang_spec){
        .golden = &files->sizes,
        .model_path = files->dir,
        .config = c->from_seed ? files->config : NULL,
        .data_path = c->packed ? files->packed : files->tokens,
        .format = c->packed ? "tokenized-jsonl" : "u16",
        .window = c->packed || c->shared_token ? "T" : "T+1",
        .order = c->shuffled ? "shuffled" : "sequential",
        .steps = NUM_STEPS,
        .micro = c->one_micro,
        .bucket_mb = "25",
        .clip = c->clip,
        .optimizer = c->adam ? NULL : "name: sgd, lr: 0.05, weight_decay: 0.01",
    };
}

static struct gang_spec many_ranks(const struct drawn_case *c, const struct shape_files *files)
{
    struct gang_spec spec = one_rank(c, files);
    spec.data = c->data;
    spec.tensor = c->tensor;
    spec.zero_stage = c->zero_stage;
    spec.shard_size = c->shard_size;
    spec.sequence_parallel = c->sequence_parallel;
    spec.micro = c->micro;
    spec.bucket_mb = c->bucket_mb;
    return spec;
}

static void run_case(uint64_t seed, struct compare_worst *worst)
{
    struct drawn_case c;
    struct shape_files files;
    struct run one, many;
    draw_case(seed, &c);
    if (effort_is_set("TANDEM_VERBOSE"))
        print_message("%s\n", words_of(&c));
    shape_write(&files, &c.shape, NULL, NULL);
    struct gang_spec one_spec = one_rank(&c, &files), many_spec = many_ranks(&c, &files);
    run_well(&one, &one_spec, NULL, words_of(&c));
    run_well(&many, &many_spec, NULL, words_of(&c));
    compare_runs(worst, words_of(&c), &one, &many);
    many_spec.backend = "cpu";
    many_spec.precision = "fp32";
    struct gang fast = {.plan = gang_plan(&many_spec)};
    gang_run_well(&fast);
    compare_curves(words_of(&c), &one.gang, &fast, NEAR_LOSS, NEAR_NORM);
    plan__free_unpacked((Plan *)fast.plan, NULL);
    run_free(&one);
    run_free(&many);
    shape_remove(&files);
}

static uint64_t number_from(const char *name, uint64_t fallback)
{
    const char *text = getenv(name);
    return text != NULL && text[0] != '\0' ? strtoull(text, NULL, 10) : fallback;
}

/* No layout, no batch split and no shape changes what a step computes. */
static void every_drawn_shape_and_layout_computes_what_one_rank_does(void **state)
{
    (void)state;
    struct compare_worst worst = {0};
    uint64_t first = number_from("TANDEM_SEED", 1);
    uint64_t cases = number_from("TANDEM_CASES", (uint64_t)effort(3000, 40, 2));
    for (uint64_t i = 0; i < cases; i++)
        run_case(first + i, &worst);
    compare_print(&worst);
}

int main(void)
{
    gang_quiet();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_drawn_shape_and_layout_computes_what_one_rank_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
