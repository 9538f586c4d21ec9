/* The store alone: made-up gradients, ranks as threads, everything to the bit of a naive sum in
 * rank order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "tests/effort.h"
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

static bool is_near(double got, double want)
{
    return fabs(got - want) <= 1e-12 * want;
}

/* [11] A group of one doesn't add its own sum to itself: with every contribution 1, m micro-batches
 * give m, not 2^n. */
static void a_reduce_group_of_one_adds_linearly(void **state)
{
    (void)state;
    for (int32_t stage = 0; stage <= 3; stage++)
        for (int32_t m = 1; m <= 6; m++) {
            struct store_case_spec alone = {.zero_stage = stage, .micro_batches = m, .ones = true};
            struct store_case_result r = store_case_run(&alone);
            assert_true(is_near(r.norm, m * sqrt((double)r.num_elements)));
            struct store_case_spec blocks = alone;
            blocks.data = 3;
            blocks.shard_size = 1;
            r = store_case_run(&blocks);
            assert_true(is_near(r.norm, 3 * m * sqrt((double)r.num_elements)));
        }
}

/* What isn't finite is found late: until then no rank's weights or moments may move, neither by
 * that step nor by those behind it, whose own numbers are sound. */
static void behind_a_loss_that_is_not_finite_nothing_changes(void **state)
{
    (void)state;
    for (int32_t stage = 0; stage <= 3; stage++)
        for (int32_t bad = 1; bad <= 3; bad++)
            store_case_run(&(struct store_case_spec){.data = 1 + stage,
                                                     .zero_stage = stage,
                                                     .steps = 4,
                                                     .adamw = bad & 1,
                                                     .queued = stage & 1,
                                                     .bad_step = bad});
}

/* [20] However the state is shared out, the norm is the same one; and every element is in it once.
 */
static void all_ways_of_sharing_have_the_same_norm(void **state)
{
    (void)state;
    static const int32_t ways[][2] = {{0, 0}, {1, 0}, {2, 0}, {3, 0}, {1, 2}, {2, 2}, {3, 2},
                                      {1, 3}, {2, 3}, {3, 3}, {1, 1}, {2, 1}, {3, 1}};
    for (int32_t tensor = 1; tensor <= 3; tensor += 2) {
        double first = 0.0;
        for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
            struct store_case_spec spec = {.data = 6,
                                           .tensor = tensor,
                                           .kv_heads = 1,
                                           .micro_batches = 3,
                                           .zero_stage = ways[i][0],
                                           .shard_size = ways[i][1]};
            double norm = store_case_run(&spec).norm;
            first = i == 0 ? norm : first;
            assert_true(is_near(norm, first));
        }
    }
}

/* [24] A tied embedding is used twice: both contributions are there, once each. */
static void a_parameter_used_twice_has_both_contributions_once(void **state)
{
    (void)state;
    for (int32_t stage = 0; stage <= 3; stage++) {
        struct store_case_spec spec = {
            .data = 3, .zero_stage = stage, .micro_batches = 2, .ones = true, .tied = true};
        struct store_case_result r = store_case_run(&spec);
        double tied = 37 * 3, other = (double)r.num_elements - tied;
        assert_true(is_near(r.norm, 3 * 2 * sqrt(other + 4 * tied)));
    }
}

/* Any layout, drawn; TANDEM_SEED draws one again. */
static struct store_case_spec drawn_spec(uint64_t seed)
{
    int32_t v[12];
    for (uint64_t i = 0; i < 12; i++)
        v[i] = (int32_t)(rng_u64(seed, 99, i) % 5040);
    struct store_case_spec s = {
        .data = 1 + v[0] % 7,
        .tensor = 1 + v[1] % 4,
        .zero_stage = v[2] % 4,
        .micro_batches = 1 + v[4] % 4,
        .steps = 1 + v[5] % 3,
        .blocks = 1 + v[6] % 4,
        .tied = v[8] % 2,
        .adamw = v[9] % 2,
        .queued = v[11] % 2,
        .rows = v[10] % 8 == 0 ? 50 : 1,
    };
    int32_t size = 1 + v[3] % s.data, heads = 1 + v[7] % s.tensor;
    s.shard_size = s.data % size == 0 ? size : 0;
    s.kv_heads = s.tensor % heads == 0 ? heads : s.tensor;
    return s;
}

static void drawn_layouts_sum_to_the_bit(void **state)
{
    (void)state;
    const char *again = getenv("TANDEM_SEED");
    uint64_t first = again != NULL ? strtoull(again, NULL, 0) : 1;
    uint64_t num = again != NULL ? 1 : (uint64_t)effort(3000, 100, 12);
    for (uint64_t seed = first; seed < first + num; seed++) {
        struct store_case_spec spec = drawn_spec(seed);
        spec.seed = seed;
        store_case_run(&spec);
    }
}

/* The others end with an error that names the rank, in whatever they wait just then, and can be
 * taken down. */
static void a_rank_that_gives_up_takes_the_others_with_it(void **state)
{
    (void)state;
    for (int32_t stage = 0; stage <= 3; stage++)
        for (int32_t stops = 1; stops <= 4; stops++) {
            struct store_case_spec spec = {.data = 4,
                                           .shard_size = 2,
                                           .zero_stage = stage,
                                           .micro_batches = 2,
                                           .blocks = 3,
                                           .stops = stops};
            struct store_case_result r = store_case_run(&spec);
            assert_int_equal(r.num_failed, 3);
            assert_non_null(strstr(r.error, "the test stopped"));
        }
}

/* Linked with --wrap: from when a rank has gone a minute passes in 60 ms, for those who wait, too.
 * Before that the others are not to be missed, however long they take. */
#define HURRY 1000

static _Atomic bool may_hurry;
static _Atomic int64_t hurry_from_ns; /* 0 = there is none */

int64_t __real_clock_mono_ns(void);
int64_t __wrap_clock_mono_ns(void);
void __real_segment_futex_wait(_Atomic uint32_t *word, uint32_t value, int64_t deadline_ns);
void __wrap_segment_futex_wait(_Atomic uint32_t *word, uint32_t value, int64_t deadline_ns);

int64_t __wrap_clock_mono_ns(void)
{
    int64_t now_ns = __real_clock_mono_ns(), from_ns = atomic_load(&hurry_from_ns);
    return from_ns == 0 ? now_ns : now_ns + (now_ns - from_ns) * HURRY;
}

/* Its caller looks at the clock again. */
void __wrap_segment_futex_wait(_Atomic uint32_t *word, uint32_t value, int64_t deadline_ns)
{
    int64_t soon_ns = __real_clock_mono_ns() + 10000000;
    __real_segment_futex_wait(word, value, atomic_load(&may_hurry) ? soon_ns : deadline_ns);
}

static void hurry(void)
{
    atomic_store(&hurry_from_ns, __real_clock_mono_ns());
}

static void a_rank_that_goes_silently_is_named_at_the_deadline(void **state)
{
    (void)state;
    for (int32_t stage = 0; stage <= 3; stage++) {
        struct store_case_spec spec = {.data = 3,
                                       .tensor = stage == 2 ? 2 : 1,
                                       .zero_stage = stage,
                                       .stops = 2,
                                       .silently = hurry};
        atomic_store(&may_hurry, true);
        struct store_case_result r = store_case_run(&spec);
        atomic_store(&may_hurry, false);
        atomic_store(&hurry_from_ns, 0);
        assert_int_equal(r.num_failed, spec.data * spec.tensor - 1);
        assert_non_null(strstr(r.error, "did not come to"));
    }
}

/* ---- plans that are wrong -------------------------------------------------------------------- */

static Action *nth(Action *actions, size_t num, ActionKind kind, int n)
{
    for (size_t i = 0; i < num; i++)
        if (actions[i].kind == kind && n-- == 0)
            return &actions[i];
    fail_msg("there is no such action");
    return NULL;
}

static void bucket_of_odd_size(Stage *stage, Action *actions, size_t num)
{
    (void)actions, (void)num;
    stage->buckets[1]->numel -= 16;
    stage->buckets[2]->numel += 16;
    stage->buckets[2]->offset -= 16;
}
static void bucket_missing(Stage *stage, Action *actions, size_t num)
{
    (void)actions, (void)num;
    free(stage->buckets[--stage->n_buckets]);
}
static void slot_too_small(Stage *stage, Action *actions, size_t num)
{
    (void)actions, (void)num;
    stage->weight_slots[0] = stage->weight_slots[1] = 16;
}
static void slot_too_large(Stage *stage, Action *actions, size_t num)
{
    (void)actions, (void)num;
    stage->grad_slots[0] = INT64_MAX / 2;
}
static void slot_unknown(Stage *stage, Action *actions, size_t num)
{
    (void)stage;
    nth(actions, num, ACTION_GATHER, 1)->slot = 7;
}
static void slot_in_use(Stage *stage, Action *actions, size_t num)
{
    (void)stage;
    nth(actions, num, ACTION_GATHER, 1)->slot = nth(actions, num, ACTION_GATHER, 0)->slot;
}
static void bucket_unknown(Stage *stage, Action *actions, size_t num)
{
    (void)stage;
    nth(actions, num, ACTION_REDUCE_BUCKET, 0)->bucket = 99;
}
static void release_twice(Stage *stage, Action *actions, size_t num)
{
    (void)stage;
    nth(actions, num, ACTION_RELEASE, 1)->bucket = nth(actions, num, ACTION_RELEASE, 0)->bucket;
}
static void reduced_twice(Stage *stage, Action *actions, size_t num)
{
    (void)stage;
    nth(actions, num, ACTION_REDUCE_BUCKET, 1)->bucket =
        nth(actions, num, ACTION_REDUCE_BUCKET, 0)->bucket;
}
static void unit_unknown(Stage *stage, Action *actions, size_t num)
{
    (void)stage;
    nth(actions, num, ACTION_REDUCE_PARTIAL, 0)->unit_begin = -1;
}

/* A plan is proved before it comes here. What doesn't fit all the same is an error on every rank,
 * and neither a write beside the buffers nor a hang. */
static void a_plan_that_does_not_fit_is_an_error(void **state)
{
    (void)state;
    void (*const all[])(Stage *, Action *, size_t) = {
        bucket_of_odd_size, bucket_missing, slot_too_small, slot_too_large, slot_unknown,
        slot_in_use,        bucket_unknown, release_twice,  reduced_twice,  unit_unknown};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        struct store_case_spec spec = {
            .data = 2, .tensor = 2, .zero_stage = 3, .blocks = 3, .spoil = all[i]};
        assert_int_equal(store_case_run(&spec).num_failed, 4);
    }
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
        cmocka_unit_test(a_reduce_group_of_one_adds_linearly),
        cmocka_unit_test(behind_a_loss_that_is_not_finite_nothing_changes),
        cmocka_unit_test(all_ways_of_sharing_have_the_same_norm),
        cmocka_unit_test(a_parameter_used_twice_has_both_contributions_once),
        cmocka_unit_test(drawn_layouts_sum_to_the_bit),
        cmocka_unit_test(a_rank_that_gives_up_takes_the_others_with_it),
        cmocka_unit_test(a_rank_that_goes_silently_is_named_at_the_deadline),
        cmocka_unit_test(a_plan_that_does_not_fit_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
