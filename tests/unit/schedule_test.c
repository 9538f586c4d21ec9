/* The lists of actions, as they are written; that they are right at all is plan_proof_test's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "plan/params.h"
#include "plan_case.h"

static struct plan_case *c;

static int setup(void **state)
{
    (void)state;
    c = plan_case_new();
    c->layout.has_bucket_mb = 1;
    plan_case_cluster(c, 1, 64, 64, 0);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    plan_case_free(c);
    return 0;
}

static int32_t unit_of(const Stage *s, int32_t bucket)
{
    return s->buckets[bucket]->after_unit;
}

/* One word an action: F0:3 B2 G1@0 (gather unit 1 into slot 0) R1 O1@1 P1 S1 S1! (final). */
static void put(struct buf *out, const Stage *s, const Action *a)
{
    bool one = a->unit_end == a->unit_begin + 1;
    switch (a->kind) {
    case ACTION_FORWARD:
    case ACTION_BACKWARD:
        buf_printf(out, a->kind == ACTION_FORWARD ? "F%d" : "B%d", a->unit_begin);
        if (!one) {
            buf_printf(out, ":%d", a->unit_end);
        }
        break;
    case ACTION_GATHER:
        buf_printf(out, a->slot < 0 ? "G%d" : "G%d@%d", unit_of(s, a->bucket), a->slot);
        break;
    case ACTION_RELEASE:
        buf_printf(out, "R%d", unit_of(s, a->bucket));
        break;
    case ACTION_OPEN_GRADS:
        buf_printf(out, "O%d@%d", unit_of(s, a->bucket), a->slot);
        break;
    case ACTION_REDUCE_PARTIAL:
        buf_printf(out, "P%d", a->unit_begin);
        break;
    case ACTION_REDUCE_BUCKET:
        buf_printf(out, a->final ? "S%d!" : "S%d", unit_of(s, a->bucket));
        break;
    case ACTION_REPEAT:
        buf_printf(out, "(x%d of %d)", a->times, a->length);
        break;
    default:
        buf_puts(out, a->kind == ACTION_REDUCE_LOSS     ? "loss"
                      : a->kind == ACTION_WAIT_REDUCES  ? "wait"
                      : a->kind == ACTION_NORM          ? "norm"
                      : a->kind == ACTION_COUNT_TARGETS ? "count"
                                                        : "step");
    }
}

static void expect(const char *wanted)
{
    Plan *p = plan_case_build(c);
    struct buf out = {0};
    const Stage *s = p->stages[0];
    for (size_t i = 0; i < s->n_actions; i++) {
        buf_puts(&out, i ? " " : "");
        put(&out, s, s->actions[i]);
    }
    assert_string_equal(out.data, wanted);
    buf_free(&out);
    plan__free_unpacked(p, NULL);
}

static void lay_out(int64_t data, int64_t tensor, int64_t zero, int64_t micro_batches)
{
    c->layout.data = data;
    c->layout.tensor = tensor;
    c->layout.zero_stage = zero;
    c->training.global_batch_size = data * micro_batches;
}

/* Two layers are units 1 and 2, between the embedding and the head. */
static void whole_gradients_are_summed_at_the_end(void **state)
{
    (void)state;
    lay_out(1, 1, 0, 5);
    expect("F0:4 B0:4 F0:4 B0:4 (x2 of 2) F0:4 B0:4 norm step");
    lay_out(2, 1, 0, 1);
    expect("F0:4 loss B0:4 S0! wait norm step");
    c->layout.bucket_mb = 0.2; /* head and most of block 2; the rest */
    expect("F0:4 loss B2:4 S2! B0:2 S0! wait norm step");
    lay_out(2, 1, 1, 2);
    expect("F0 F1 F2 F3 B0:4 F0:4 loss B2:4 S2! B0:2 S0! wait norm step G0 G2");
    c->source.format = (char *)"tokenized-jsonl";
    c->data_facts.has_num_rows = c->data_facts.has_longest_row = 1;
    c->data_facts.num_rows = 200;
    c->data_facts.longest_row = 12;
    c->data_facts.has_num_targets = 1;
    c->data_facts.num_targets = 1000;
    lay_out(1, 1, 3, 1); /* nothing is shared with one rank */
    expect("count F0:4 B0:4 norm step");
}

/* Each unit's own partial gradients, before the bucket that they lie in. */
static void partial_gradients_are_summed_before_their_buckets(void **state)
{
    (void)state;
    lay_out(1, 2, 0, 1);
    expect("F0:4 loss B0:4 wait norm step");
    c->layout.sequence_parallel = 1; /* norms of blocks and head */
    expect("F0:4 loss B0:4 P3 P2 P1 wait norm step");
    c->layout.bucket_mb = 0.1;
    lay_out(2, 2, 0, 2);
    expect("F0:4 B0:4 F0:4 loss B2:4 P3 P2 S2! B0:2 P1 S0! wait norm step");
    c->layout.sequence_parallel = 0;
    lay_out(1, 8, 0, 1); /* 4 KV heads on 8 ranks */
    expect("F0:4 loss B0:4 P2 P1 wait norm step");
}

static void sharded_gradients_are_summed_in_each_micro_batch(void **state)
{
    (void)state;
    lay_out(2, 1, 2, 2);
    expect("F0 F1 F2 F3 O3@1 B3 S3 O2@0 B2 S2 O1@1 B1 S1 O0@0 B0 S0 "
           "F0 F1 F2 F3 loss O3@1 B3 S3! O2@0 B2 S2! O1@1 B1 S1! O0@0 B0 S0! wait norm step "
           "G0 G1 G2 G3");
    c->config.tie_word_embeddings = 1;
    lay_out(2, 2, 2, 1);
    c->layout.sequence_parallel = 1;
    expect("F0 F1 F2 F3 loss O3@1 O0@2 B3 P3 S3! O2@0 B2 P2 S2! O1@1 B1 P1 S1! B0 S0! wait norm "
           "step G0 G1 G2 G3");
}

/* The next unit is on its way before one begins; what is needed next is not let go of. */
static void sharded_weights_are_gathered_one_unit_ahead(void **state)
{
    (void)state;
    lay_out(2, 1, 3, 1);
    expect("G0@0 G1@1 F0 R0 G2@0 F1 R1 G3@1 F2 F3 loss O3@1 B3 R3 S3! G1@1 O2@0 B2 R2 S2! "
           "O1@1 B1 R1 S1! O0@0 B0 S0! wait norm step");
    lay_out(2, 1, 3, 2);
    expect("G0@0 G1@1 F0 R0 G2@0 F1 R1 G3@1 F2 F3 O3@1 B3 R3 S3 G1@1 O2@0 B2 R2 S2 "
           "G0@0 O1@1 B1 S1 O0@0 B0 S0 "
           "F0 R0 G2@0 F1 R1 G3@1 F2 F3 loss O3@1 B3 R3 S3! G1@1 O2@0 B2 R2 S2! "
           "O1@1 B1 R1 S1! O0@0 B0 S0! wait norm step");
    c->config.tie_word_embeddings = 1;
    expect("G0@2 G1@1 F0 G2@0 F1 R1 G3@1 F2 F3 O3@1 O0@2 B3 R3 S3 G1@1 O2@0 B2 S2 "
           "O1@1 B1 S1 B0 S0 "
           "F0 F1 R1 G3@1 F2 F3 loss O3@1 O0@2 B3 R3 R0 S3! G1@1 O2@0 B2 R2 S2! "
           "O1@1 B1 R1 S1! B0 S0! wait norm step");
}

static void slots_are_as_large_as_their_units(void **state)
{
    (void)state;
    lay_out(4, 1, 3, 1);
    for (int tied = 0; tied < 2; tied++) {
        c->config.tie_word_embeddings = tied;
        Plan *p = plan_case_build(c);
        const Stage *s = p->stages[0];
        int64_t head = s->buckets[0]->numel, block = s->buckets[1]->numel;
        int64_t embed = s->buckets[3]->numel;
        assert_int_equal(s->n_weight_slots, 2 + tied);
        assert_int_equal(s->n_grad_slots, 2 + tied);
        int64_t wanted[] = {tied || block > embed ? block : embed, head > block ? head : block,
                            embed};
        assert_memory_equal(s->weight_slots, wanted, s->n_weight_slots * sizeof *wanted);
        assert_memory_equal(s->grad_slots, wanted, s->n_grad_slots * sizeof *wanted);
        plan__free_unpacked(p, NULL);
    }
}

/* ---- the table ---- */

/* What is summed over the same ranks is one run, in each unit; the rest needs no sum. */
static void partial_gradients_of_a_unit_are_one_run(void **state)
{
    (void)state;
    c->config.model_type = (char *)"qwen3";
    plan_case_config(c, 2, 64, 136, 8, 2, 331);
    lay_out(3, 8, 3, 1);
    c->layout.sequence_parallel = 1;
    Plan *p = plan_case_build(c);
    struct param_table t;
    assert_int_equal(params_expand(p, 0, &t, NULL), 0);
    assert_int_equal(t.num_buckets, 4);
    for (int32_t unit = 0; unit < 4; unit++) {
        int64_t end[3], begin[3], before = 0;
        bool any[3];
        for (int sum = 0; sum < 3; sum++) {
            any[sum] = params_unit_run(&t, unit, (enum param_sum)sum, &begin[sum], &end[sum]);
            assert_true(!any[sum] || before == 0 || begin[sum] == before);
            before = any[sum] ? end[sum] : before;
        }
        bool block = unit == 1 || unit == 2;
        assert_int_equal(any[PARAM_SUM_NONE], block || unit == 0 || unit == 3);
        assert_int_equal(any[PARAM_SUM_REPLICAS], block); /* k and v: 2 heads on 8 ranks */
        assert_int_equal(any[PARAM_SUM_TENSOR], block || unit == 3); /* norms */
        for (int32_t i = 0; i < t.num_params; i++) {
            const struct param *q = &t.params[i];
            bool inside =
                any[q->sum] && q->offset >= begin[q->sum] && q->offset + q->numel <= end[q->sum];
            assert_int_equal(inside, q->unit == unit);
        }
    }
    params_free(&t);
    plan__free_unpacked(p, NULL);
}

/* Slices of a bucket are alike, and begin where kernels want them to; what a bucket pads lies at
 * its end. */
static void buckets_come_out_even_over_their_ranks(void **state)
{
    (void)state;
    static const double sizes_mb[] = {0.001, 0.03, 25};
    plan_case_config(c, 3, 42, 99, 3, 1, 331);
    for (int64_t data = 2; data <= 7; data++) {
        for (int64_t zero = 1; zero <= 3; zero++) {
            lay_out(data, 1, zero, 1);
            c->layout.bucket_mb = sizes_mb[data % 3];
            Plan *p = plan_case_build(c);
            const Stage *s = p->stages[0];
            struct param_table t;
            assert_int_equal(params_expand(p, 0, &t, NULL), 0);
            assert_int_equal(t.flat_numel, s->flat_numel);
            for (size_t i = 0; i < s->n_buckets; i++) {
                const Bucket *b = s->buckets[i];
                const struct param *last = &t.params[b->first_param + b->num_params - 1];
                assert_int_equal(b->numel % (data * PARAMS_ALIGN_NUMEL), 0);
                assert_int_equal(b->offset, t.bucket_offsets[i]);
                assert_int_equal(t.params[b->first_param].offset, b->offset);
                int64_t rest = b->offset + b->numel - last->offset - last->numel;
                assert_true(rest >= 0 && rest < (data + 1) * PARAMS_ALIGN_NUMEL);
                assert_int_equal(last->bucket, i);
            }
            params_free(&t);
            plan__free_unpacked(p, NULL);
        }
    }
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(whole_gradients_are_summed_at_the_end),
        T(partial_gradients_are_summed_before_their_buckets),
        T(sharded_gradients_are_summed_in_each_micro_batch),
        T(sharded_weights_are_gathered_one_unit_ahead),
        T(slots_are_as_large_as_their_units),
        T(partial_gradients_of_a_unit_are_one_run),
        T(buckets_come_out_even_over_their_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
