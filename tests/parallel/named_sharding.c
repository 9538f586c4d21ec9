/* Faults of reduce groups, norms and factors. */
#include "named.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* 11. Where a group has one member its reduce has nothing to add: gradients that accumulate in a
 * shard were doubled with each micro-batch. */
void accumulating_in_a_reduce_group_of_one_adds_each_micro_batch_once(void **state)
{
    (void)state;
    static const struct variant variants[] = {
        {.data = 1, .tensor = 1, .micro = 1},
        {.data = 1, .tensor = 1, .micro = 1, .zero_stage = 1},
        {.data = 1, .tensor = 1, .micro = 1, .zero_stage = 2},
        {.data = 1, .tensor = 1, .micro = 1, .zero_stage = 3},
        {.data = 1, .tensor = 3, .micro = 2, .zero_stage = 3},
        {.data = 2, .tensor = 1, .micro = 1, .zero_stage = 2, .shard_size = 1},
        {.data = 3, .tensor = 1, .micro = 1, .zero_stage = 3, .shard_size = 1},
        {.data = 3, .tensor = 1, .micro = 1, .zero_stage = 2, .shard_size = 3},
        {.data = 2, .tensor = 1, .micro = 1, .zero_stage = 3, .shard_size = 2},
    };
    struct shape_files files;
    shape_write(&files, &shapes[0], NULL, NULL);
    struct variant at_once = named_one_rank;
    at_once.micro = shapes[0].batch;
    struct gang_spec spec = named_spec(&files, &at_once);
    struct run want;
    run_well(&want, &spec, NULL, "one micro-batch");
    for (size_t i = 0; i < sizeof(variants) / sizeof(variants[0]); i++) {
        struct run got;
        spec = named_spec(&files, &variants[i]);
        run_well(&got, &spec, NULL, named_words(&variants[i]));
        assert_true(got.plan->micro_batches > 1);
        named_check_first_step(named_words(&variants[i]), &want, &got);
        run_free(&got);
    }
    run_free(&want);
    shape_remove(&files);
}

/* 20. Where each gradient's square is counted differs with the sharding, the norm doesn't. */
void plain_hybrid_and_sharded_data_parallel_have_one_norm(void **state)
{
    (void)state;
    struct shape_files files;
    shape_write(&files, &shapes[2], NULL, NULL);
    struct gang_spec spec = named_spec(&files, &named_one_rank);
    struct run one;
    run_well(&one, &spec, NULL, "one rank");
    for (int64_t zero = 0; zero <= 3; zero++) {
        for (int64_t shard = 0; shard <= (zero > 0 ? 3 : 0); shard++) {
            struct variant v = {6, 1, zero, shard, 1, false};
            struct run r;
            spec = named_spec(&files, &v);
            run_well(&r, &spec, NULL, named_words(&v));
            named_check_close(named_words(&v), r.gang.steps[0].grad_norm,
                              one.gang.steps[0].grad_norm);
            run_free(&r);
        }
    }
    run_free(&one);
    shape_remove(&files);
}

/* Three steps of SGD end at one rank's weights. */
static void check_sgd(const struct shape_files *files, const struct run *one,
                      const struct variant *v)
{
    struct gang_spec spec = named_spec(files, v);
    struct run r;
    spec.steps = 3;
    run_well(&r, &spec, NULL, named_words(v));
    named_check_first_step(named_words(v), one, &r);
    named_check_same(named_words(v), &one->record.weights, &r.record.weights);
    run_free(&r);
}

static void run_sgd(struct run *r, const struct shape_files *files, const char *optimizer)
{
    struct gang_spec spec = named_spec(files, &named_one_rank);
    spec.steps = 3;
    spec.optimizer = optimizer;
    run_well(r, &spec, NULL, "one rank");
}

/* 33. Adam divides a wrong factor out of the gradient again; SGD doesn't, with steps so large that
 * a millionth of one shows. */
void sgd_ends_where_one_rank_ends_so_no_factor_is_hidden(void **state)
{
    (void)state;
    static const struct variant variants[] = {
        {.data = 3, .tensor = 1, .micro = 2},
        {.data = 4, .tensor = 1, .micro = 1, .zero_stage = 1},
        {.data = 4, .tensor = 1, .micro = 1, .zero_stage = 2, .shard_size = 2},
        {.data = 6, .tensor = 1, .micro = 1, .zero_stage = 3, .shard_size = 3},
        {.data = 1, .tensor = 6, .micro = 4, .sequence_parallel = true},
        {.data = 2, .tensor = 3, .micro = 2, .zero_stage = 3},
    };
    struct shape_files files;
    struct run one, other;
    shape_write(&files, &shapes[0], NULL, NULL);
    run_sgd(&one, &files, NAMED_SGD);
    run_sgd(&other, &files, "name: sgd, lr: 0.5000005, weight_decay: 0.05");
    struct whole_distance d = whole_compare(&one.record.weights, &other.record.weights, NULL);
    assert_true(d.l2 > 1e3 * NAMED_SAME);
    for (size_t i = 0; i < sizeof(variants) / sizeof(variants[0]); i++)
        check_sgd(&files, &one, &variants[i]);
    run_free(&one);
    run_free(&other);
    shape_remove(&files);
}

static void check_odd_counts(const struct shape *like, const struct variant *variants, size_t num)
{
    struct shape shape = *like;
    struct shape_files files;
    struct run one;
    shape.batch = 30;
    shape_write(&files, &shape, NULL, NULL);
    run_sgd(&one, &files, NAMED_SGD);
    for (size_t i = 0; i < num; i++)
        check_sgd(&files, &one, &variants[i]);
    run_free(&one);
    shape_remove(&files);
}

/* 34. Micro-batches, data and tensor ranks of 3, 5 and 6: halving trees, shifts and masks break. */
void counts_that_are_no_powers_of_two_change_nothing(void **state)
{
    (void)state;
    static const struct variant thirds[] = {
        {.data = 3, .tensor = 3, .micro = 2},                  /* 5 micro-batches */
        {.data = 5, .tensor = 3, .micro = 1, .zero_stage = 1}, /* 6 */
        {.data = 5, .tensor = 6, .micro = 2, .zero_stage = 2, .sequence_parallel = true}, /* 3 */
        {.data = 6, .tensor = 6, .micro = 1, .zero_stage = 3, .shard_size = 3},           /* 5 */
    };
    static const struct variant fifths[] = {
        {.data = 5, .tensor = 5, .micro = 2, .sequence_parallel = true},        /* 3 */
        {.data = 3, .tensor = 5, .micro = 2, .zero_stage = 3},                  /* 5 */
        {.data = 6, .tensor = 5, .micro = 1, .zero_stage = 2, .shard_size = 3}, /* 5 */
    };
    check_odd_counts(&shapes[0], thirds, sizeof(thirds) / sizeof(thirds[0]));
    check_odd_counts(&shapes[2], fifths, sizeof(fifths) / sizeof(fifths[0]));
}
