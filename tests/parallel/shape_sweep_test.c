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

#include "compare.h"
#include "drawn.h"
#include "tests/effort.h"

#define NUM_STEPS 3
/* The project's bounds of fp32 against fp64. */
#define NEAR_LOSS 2e-6
#define NEAR_NORM 5e-6

/* ---- one case ---------------------------------------------------------------------------------
 */

struct drawn_case {
    struct drawn d;
    int64_t one_micro;
    bool from_seed;
};

static void draw_case(uint64_t seed, struct drawn_case *c)
{
    /* The largest vocabulary makes buckets that go through the segment in several chunks. */
    const struct drawn_choice choice = {
        .heads = DRAWN_LIST(6, 5, 1, 4, 3, 7, 6, 8),
        .kv_heads = DRAWN_LIST(3, 1, 1, 2, 3, 7, 2, 1),
        .head_dim = DRAWN_LIST(2, 6, 8, 12, 20),
        .hidden = DRAWN_LIST(24, 33, 40, 56, 72, 7),
        .heads_to_ffn = DRAWN_LIST(1, 3, 8, 13),
        .vocab = DRAWN_LIST(331, 97, 257, 2, 1000, 5000),
        .seq_len = DRAWN_LIST(33, 16, 7, 1, 50),
        .large_vocab_seq_len = DRAWN_LIST(7, 1),
        .batch = DRAWN_LIST(12, 15, 6, 30, 5),
    };
    *c = (struct drawn_case){.d = {.stream = "shape sweep", .seed = seed}};
    struct drawn *d = &c->d;
    drawn_shape(d, &choice);
    drawn_layout(d, DRAWN_LIST(1, 2, 3, 5, 6), 0);
    c->one_micro = drawn_divisor_of(d, d->shape.batch);
    d->shuffled = PICK(d, 0, 1) != 0;
    d->shared_token = PICK(d, 0, 1) != 0;
    d->packed = PICK(d, 0, 0, 1) != 0;
    c->from_seed = PICK(d, 0, 0, 1) != 0;
    d->adam = PICK(d, 0, 0, 1) != 0;
    drawn_bucket_and_clip(d);
}

static const char *words_of(const struct drawn_case *c)
{
    static char words[600];
    char common[512];
    drawn_words(&c->d, common, sizeof(common));
    snprintf(words, sizeof(words), "TANDEM_SEED=%llu: %s; against micro %lld%s",
             (unsigned long long)c->d.seed, common, (long long)c->one_micro,
             c->from_seed ? ", random init" : "");
    return words;
}

static struct gang_spec one_rank(const struct drawn_case *c, const struct shape_files *files)
{
    struct gang_spec spec = drawn_spec(&c->d, files, NUM_STEPS);
    spec.config = c->from_seed ? files->config : NULL;
    spec.micro = c->one_micro;
    spec.bucket_mb = "25";
    return spec;
}

static struct gang_spec many_ranks(const struct drawn_case *c, const struct shape_files *files)
{
    struct gang_spec spec = one_rank(c, files);
    drawn_lay_out(&c->d, &spec);
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
    shape_write(&files, &c.d.shape, NULL, NULL);
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

/* No layout, no batch split and no shape changes what a step computes. */
static void every_drawn_shape_and_layout_computes_what_one_rank_does(void **state)
{
    (void)state;
    struct compare_worst worst = {0};
    uint64_t first = (uint64_t)effort_number("TANDEM_SEED", 1);
    uint64_t cases = (uint64_t)effort_number("TANDEM_CASES", effort(3000, 40, 2));
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
