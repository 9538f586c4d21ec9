/* The store alone: made-up gradients, ranks as threads, everything to the bit of a naive sum in
 * rank order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "tests/parallel/store_case.h"

static void one_rank_keeps_what_it_was_given(void **state)
{
    (void)state;
    store_case_run(&(struct store_case_spec){.steps = 2, .micro_batches = 3});
    store_case_run(&(struct store_case_spec){.steps = 3, .tied = true, .adamw = true});
}

static void plain_data_parallel_sums_in_rank_order(void **state)
{
    (void)state;
    for (int32_t d = 2; d <= 5; d++)
        store_case_run(&(struct store_case_spec){.data = d, .micro_batches = d, .steps = 2});
    store_case_run(&(struct store_case_spec){.data = 3, .tied = true, .adamw = true, .steps = 3});
}

static void stage_1_steps_over_slices_and_gathers_them(void **state)
{
    (void)state;
    for (int32_t d = 2; d <= 5; d++)
        store_case_run(&(struct store_case_spec){
            .data = d, .zero_stage = 1, .micro_batches = 3, .steps = 3, .adamw = d & 1});
}

/* Gradients in two slots by turns, weights in two more, a tied embedding in a third one. */
static void stages_2_and_3_sum_each_micro_batch_into_slices(void **state)
{
    (void)state;
    for (int32_t stage = 2; stage <= 3; stage++)
        for (int32_t d = 2; d <= 5; d++)
            store_case_run(&(struct store_case_spec){.data = d,
                                                     .zero_stage = stage,
                                                     .micro_batches = 3,
                                                     .steps = 3,
                                                     .blocks = d,
                                                     .tied = d & 1,
                                                     .adamw = d & 2});
}

/* Hybrid: sharded inside blocks of ranks, whole sums over the blocks once a step. */
static void hybrid_adds_the_blocks_once_a_step(void **state)
{
    (void)state;
    static const int32_t shapes[][2] = {{4, 2}, {6, 2}, {6, 3}, {3, 1}};
    for (int32_t stage = 1; stage <= 3; stage++)
        for (int i = 0; i < 4; i++)
            store_case_run(&(struct store_case_spec){.data = shapes[i][0],
                                                     .shard_size = shapes[i][1],
                                                     .zero_stage = stage,
                                                     .micro_batches = 3,
                                                     .steps = 2,
                                                     .tied = i & 1});
}

/* What the table tags as partial is summed over all tensor ranks, or over those with the same KV
 * head, once; what it doesn't, not at all. */
static void partial_gradients_are_summed_as_their_tags_say(void **state)
{
    (void)state;
    for (int32_t stage = 0; stage <= 3; stage++) {
        store_case_run(&(struct store_case_spec){.tensor = 4, .zero_stage = stage, .kv_heads = 2});
        store_case_run(&(struct store_case_spec){
            .tensor = 2, .data = 3, .zero_stage = stage, .micro_batches = 2, .steps = 2});
        store_case_run(&(struct store_case_spec){.tensor = 3,
                                                 .data = 4,
                                                 .shard_size = 2,
                                                 .zero_stage = stage,
                                                 .kv_heads = 1,
                                                 .micro_batches = 3,
                                                 .tied = true});
    }
}

/* Above 16 KB the sums are made in place in the shared segment, and whole weights are gathered
 * through the communicator's own. */
static void large_buckets_are_summed_where_they_lie(void **state)
{
    (void)state;
    for (int32_t stage = 0; stage <= 3; stage++)
        store_case_run(&(struct store_case_spec){.data = 6,
                                                 .shard_size = 3,
                                                 .zero_stage = stage,
                                                 .micro_batches = 2,
                                                 .steps = 2,
                                                 .rows = 60,
                                                 .tied = stage & 1});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank_keeps_what_it_was_given),
        cmocka_unit_test(plain_data_parallel_sums_in_rank_order),
        cmocka_unit_test(stage_1_steps_over_slices_and_gathers_them),
        cmocka_unit_test(stages_2_and_3_sum_each_micro_batch_into_slices),
        cmocka_unit_test(hybrid_adds_the_blocks_once_a_step),
        cmocka_unit_test(partial_gradients_are_summed_as_their_tags_say),
        cmocka_unit_test(large_buckets_are_summed_where_they_lie),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
