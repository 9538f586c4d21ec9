/* Faults that public systems have had, one test each: what they got wrong, and what is right.
 * Small models in fp64, ranks as threads, against one rank or against a number that is known. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/fs.h"
#include "record.h"
#include "runtime/ckpt/safetensors.h"
#include "runtime/parallel/store.h"
#include "shapes.h"

#define SAME 1e-12
#define SGD "name: sgd, lr: 0.5, weight_decay: 0.05"

/* What differs between the layouts of a test. */
struct variant {
    int64_t data, tensor, zero_stage, shard_size, micro;
    bool sequence_parallel;
};

static struct gang_spec spec_of(const struct shape_files *f, const struct variant *v)
{
    return (struct gang_spec){
        .golden = &f->sizes,
        .model_path = f->dir,
        .data_path = f->tokens,
        .steps = 1,
        .clip = "0",
        .optimizer = SGD,
        .lr_schedule = "warmup_steps: 0, decay: constant",
        .data = v->data,
        .tensor = v->tensor,
        .zero_stage = v->zero_stage,
        .shard_size = v->shard_size,
        .micro = v->micro,
        .sequence_parallel = v->sequence_parallel,
    };
}

static const char *words_of(const struct variant *v)
{
    static char words[160];
    snprintf(words, sizeof(words),
             "data %lld, tensor %lld%s, zero_stage %lld, shard_size %lld, micro %lld",
             (long long)v->data, (long long)v->tensor, v->sequence_parallel ? " (sequence)" : "",
             (long long)v->zero_stage, (long long)v->shard_size, (long long)v->micro);
    return words;
}

static void check_close(const char *what, double got, double want)
{
    if (!(fabs(got - want) <= SAME * fabs(want)))
        fail_msg("%s: %.17g, not %.17g (off by %.1e)", what, got, want, fabs(got / want - 1.0));
}

static void check_same(const char *what, const struct whole *want, const struct whole *got)
{
    struct whole_distance d = whole_compare(want, got, NULL);
    if (!(d.l2 <= SAME))
        fail_msg("%s: %s is off by %.1e", what, d.l2_name, d.l2);
}

/* Loss, norm and every gradient of the first step. */
static void check_first_step(const char *what, const struct run *want, const struct run *got)
{
    check_close(what, got->gang.steps[0].loss, want->gang.steps[0].loss);
    check_close(what, got->gang.steps[0].grad_norm, want->gang.steps[0].grad_norm);
    check_same(what, &want->record.grads, &got->record.grads);
}

static const struct variant one_rank = {.data = 1, .tensor = 1, .micro = 1};

/* ---- 1 ----------------------------------------------------------------------------------------
 */

struct final_norm {
    const struct whole_tensor *want;
    int num_ranks; /* that had it right */
    char fault[256];
};

static void look_at_final_norm(struct record *r, int32_t rank, const struct param_table *table,
                               const struct axes *axes, const struct store *store)
{
    struct final_norm *look = r->arg;
    struct store_view view = store_view(store, STORE_GRADS);
    const struct param *p = &table->params[params_find(table, look->want->name)];
    (void)axes;
    ASSERT(view.num_ranges >= 1 && p->numel == look->want->numel);
    double apart = 0.0, all = 0.0;
    for (int32_t k = 0; k < view.num_ranges; k++) {
        const struct flat_range *range = &view.ranges[k];
        for (int64_t i = 0; i < p->numel; i++) {
            int64_t flat = p->offset + i - range->begin;
            if (flat < 0 || flat >= range->numel)
                continue;
            double want = look->want->values[i];
            double got = ((const double *)view.data)[range->at + flat];
            apart += (got - want) * (got - want);
            all += want * want;
        }
    }
    pthread_mutex_lock(&r->grads.lock);
    if (all > 0.0 && sqrt(apart) <= SAME * sqrt(all))
        look->num_ranks++;
    else
        snprintf(look->fault, sizeof(look->fault), "rank %d: %s is off by %.1e", rank, p->name,
                 sqrt(apart / all));
    pthread_mutex_unlock(&r->grads.lock);
}

static void check_final_norm(const struct shape *shape, const char *name, int64_t tensor)
{
    struct shape_files files;
    shape_write(&files, shape, NULL, NULL);
    struct variant v = {.data = 1, .tensor = tensor, .micro = 1, .sequence_parallel = true};
    struct gang_spec one_spec = spec_of(&files, &one_rank), spec = spec_of(&files, &v);
    struct run one, many;
    run_well(&one, &one_spec, NULL, "one rank");
    struct final_norm look = {.want = whole_find(&one.record.grads, name)};
    assert_non_null(look.want);
    run_prepare(&many, &spec);
    many.record.on_gradients = look_at_final_norm;
    many.record.arg = &look;
    run_go(&many, words_of(&v));
    if (look.num_ranks != tensor)
        fail_msg("%s, %s: %s", shape->family, words_of(&v), look.fault);
    run_free(&many);
    run_free(&one);
    shape_remove(&files);
}

/* 1. Each tensor rank norms its own rows: the gradient of the scale is a part there, and its sum
 * belongs on every rank. */
static void the_final_norms_gradient_under_sequence_parallel_is_whole_on_every_rank(void **state)
{
    (void)state;
    check_final_norm(&shapes[0], "model.norm.weight", 3);
    check_final_norm(&shapes[1], "model.norm.weight", 4);
    check_final_norm(&shapes[2], "model.norm.weight", 5);
    check_final_norm(&shapes[3], "transformer.ln_f.bias", 6);
}

/* ---- 11 ---------------------------------------------------------------------------------------
 */

/* 11. Where a group has one member its reduce has nothing to add: gradients that accumulate in a
 * shard were doubled with each micro-batch. */
static void accumulating_in_a_reduce_group_of_one_adds_each_micro_batch_once(void **state)
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
    struct variant at_once = one_rank;
    at_once.micro = shapes[0].batch;
    struct gang_spec spec = spec_of(&files, &at_once);
    struct run want;
    run_well(&want, &spec, NULL, "one micro-batch");
    for (size_t i = 0; i < sizeof(variants) / sizeof(variants[0]); i++) {
        struct run got;
        spec = spec_of(&files, &variants[i]);
        run_well(&got, &spec, NULL, words_of(&variants[i]));
        assert_true(got.plan->micro_batches > 1);
        check_first_step(words_of(&variants[i]), &want, &got);
        run_free(&got);
    }
    run_free(&want);
    shape_remove(&files);
}

/* ---- 12, 13: a model whose logits are known ---------------------------------------------------
 */

/* A residual stream of ones, whatever comes in: the logits are the sums of the head's rows. */
struct known_logits {
    int64_t hidden;
    double logits[4];
};

static double known_value(void *arg, const char *name, int64_t idx, bool norm)
{
    const struct known_logits *k = arg;
    if (strcmp(name, "lm_head.weight") == 0)
        return k->logits[idx / k->hidden] / (double)k->hidden;
    if (norm || strcmp(name, "model.embed_tokens.weight") == 0)
        return 1.0;
    bool adds = strstr(name, "o_proj") != NULL || strstr(name, "down_proj") != NULL;
    return adds ? 0.0 : shape_draw(NULL, name, idx, norm);
}

static const struct shape known_shape = {
    .family = "llama",
    .heads = 4,
    .kv_heads = 2,
    .head_dim = 2,
    .hidden = 6,
    .ffn = 4,
    .layers = 1,
    .vocab = 4,
    .batch = 2,
    .seq_len = 4,
    .eps = 1e-20,
};

/* 12. The maximum, the sum of exponentials and the target's logit each belong to the whole
 * vocabulary. */
static void a_loss_over_a_cut_vocabulary_is_the_whole_ones(void **state)
{
    (void)state;
    struct known_logits known = {known_shape.hidden, {0.0, 1.0, 2.0, 3.0}};
    struct shape_files files;
    shape_write(&files, &known_shape, known_value, &known);
    shape_write_one_token(&files, &known_shape, 3);
    for (int64_t t = 1; t <= 4; t *= 2) {
        for (int sequence = 0; sequence < (t > 1 ? 2 : 1); sequence++) {
            struct variant v = {1, t, 0, 0, 1, sequence != 0};
            struct gang_spec spec = spec_of(&files, &v);
            struct run r;
            run_well(&r, &spec, NULL, words_of(&v));
            check_close(words_of(&v), r.gang.steps[0].loss, 0.4401896985611953);
            run_free(&r);
        }
    }
    shape_remove(&files);
}

/* 13. One target of loss 2 on one rank, three that make 14 on the other: 16 / 4, not the mean of
 * 2 and 14 / 3. */
static void unequal_targets_over_data_ranks_weigh_each_target_alike(void **state)
{
    (void)state;
    static const int32_t ids[] = {2, 0, 1, 3}, positions[] = {0, 1, 2, 3}, segments[4] = {0};
    static const int32_t few[] = {-100, 0, -100, -100}, many[] = {1, 1, -100, 1};
    static const struct variant variants[] = {
        {.data = 1, .tensor = 1, .micro = 1},
        {.data = 1, .tensor = 1, .micro = 2},
        {.data = 2, .tensor = 1, .micro = 1},
        {.data = 2, .tensor = 2, .micro = 1},
        {.data = 2, .tensor = 1, .micro = 1, .zero_stage = 2},
    };
    const struct packed_row rows[] = {{ids, few, positions, segments, 4},
                                      {ids, many, positions, segments, 4}};
    double p0 = exp(-2.0), p1 = exp(-14.0 / 3.0), rest = log((1.0 - p0 - p1) / 2.0);
    struct known_logits known = {known_shape.hidden, {-2.0, -14.0 / 3.0, rest, rest}};
    struct shape_files files;
    struct run first = {0};
    shape_write(&files, &known_shape, known_value, &known);
    shape_write_packed(files.packed, rows, 2);
    for (size_t i = 0; i < sizeof(variants) / sizeof(variants[0]); i++) {
        struct gang_spec spec = spec_of(&files, &variants[i]);
        struct run later, *r = i == 0 ? &first : &later;
        spec.data_path = files.packed;
        spec.format = "tokenized-jsonl";
        run_well(r, &spec, NULL, words_of(&variants[i]));
        check_close(words_of(&variants[i]), r->gang.steps[0].loss, 4.0);
        if (i > 0) {
            check_first_step(words_of(&variants[i]), &first, r);
            run_free(r);
        }
    }
    run_free(&first);
    shape_remove(&files);
}

/* ---- 20 ---------------------------------------------------------------------------------------
 */

/* 20. Where each gradient's square is counted differs with the sharding, the norm doesn't. */
static void plain_hybrid_and_sharded_data_parallel_have_one_norm(void **state)
{
    (void)state;
    struct shape_files files;
    shape_write(&files, &shapes[2], NULL, NULL);
    struct gang_spec spec = spec_of(&files, &one_rank);
    struct run one;
    run_well(&one, &spec, NULL, "one rank");
    for (int64_t zero = 0; zero <= 3; zero++) {
        for (int64_t shard = 0; shard <= (zero > 0 ? 3 : 0); shard++) {
            struct variant v = {6, 1, zero, shard, 1, false};
            struct run r;
            spec = spec_of(&files, &v);
            run_well(&r, &spec, NULL, words_of(&v));
            check_close(words_of(&v), r.gang.steps[0].grad_norm, one.gang.steps[0].grad_norm);
            run_free(&r);
        }
    }
    run_free(&one);
    shape_remove(&files);
}

/* ---- 24 ---------------------------------------------------------------------------------------
 */

static double head_like_embedding(void *arg, const char *name, int64_t idx, bool norm)
{
    (void)arg;
    bool head = strcmp(name, "lm_head.weight") == 0;
    return shape_draw(NULL, head ? "model.embed_tokens.weight" : name, idx, norm);
}

/* The gradients of the two uses of the matrix, from a model that has it twice. */
static void add_both_uses(const struct shape *tied, struct whole_tensor *out)
{
    struct shape untied = *tied;
    struct shape_files files;
    struct run r;
    untied.tied = false;
    shape_write(&files, &untied, head_like_embedding, NULL);
    struct gang_spec spec = spec_of(&files, &one_rank);
    run_well(&r, &spec, NULL, "two matrices");
    *out = *whole_find(&r.record.grads, "model.embed_tokens.weight");
    const struct whole_tensor *head = whole_find(&r.record.grads, "lm_head.weight");
    double *sum = malloc((size_t)out->numel * sizeof(*sum));
    assert_non_null(sum);
    for (int64_t i = 0; i < out->numel; i++)
        sum[i] = out->values[i] + head->values[i];
    out->values = sum;
    run_free(&r);
    shape_remove(&files);
}

static void check_both_uses(const struct shape_files *files, const struct variant *v,
                            const struct whole_tensor *want)
{
    struct gang_spec spec = spec_of(files, v);
    struct run r;
    double apart = 0.0, all = 0.0;
    run_well(&r, &spec, NULL, words_of(v));
    const struct whole_tensor *got = whole_find(&r.record.grads, want->name);
    for (int64_t i = 0; i < want->numel; i++) {
        apart += pow(got->values[i] - want->values[i], 2);
        all += pow(want->values[i], 2);
    }
    if (!(sqrt(apart) <= SAME * sqrt(all)))
        fail_msg("%s: the tied embedding's gradient is off by %.1e", words_of(v),
                 sqrt(apart / all));
    run_free(&r);
}

/* 24. A tied embedding gets a gradient from the head and one from the tokens; its bucket is summed
 * over the ranks when it has both, and once. */
static void a_matrix_used_twice_gets_both_gradients_once(void **state)
{
    (void)state;
    static const struct variant variants[] = {
        {.data = 1, .tensor = 1, .micro = 3},
        {.data = 3, .tensor = 1, .micro = 5},
        {.data = 3, .tensor = 1, .micro = 10, .zero_stage = 1},
        {.data = 2, .tensor = 1, .micro = 5, .zero_stage = 2},
        {.data = 6, .tensor = 1, .micro = 1, .zero_stage = 2, .shard_size = 3},
        {.data = 3, .tensor = 1, .micro = 2, .zero_stage = 3},
        {.data = 6, .tensor = 1, .micro = 5, .zero_stage = 3, .shard_size = 2},
        {.data = 1, .tensor = 5, .micro = 6},
        {.data = 2, .tensor = 10, .micro = 3, .zero_stage = 3, .sequence_parallel = true},
    };
    const struct shape *shape = &shapes[2];
    struct shape_files files;
    struct whole_tensor want;
    add_both_uses(shape, &want);
    shape_write(&files, shape, NULL, NULL);
    for (size_t i = 0; i < sizeof(variants) / sizeof(variants[0]); i++)
        check_both_uses(&files, &variants[i], &want);
    free(want.values);
    shape_remove(&files);
}

/* ---- 32 ---------------------------------------------------------------------------------------
 */

/* The exported matrix is the one that the ranks hold, row for row. */
static void check_exported(const struct run *r, const char *job_dir, const char *name)
{
    char path[512];
    struct error err = {0};
    struct st_file *file;
    snprintf(path, sizeof(path), "%s/export/model.safetensors", job_dir);
    if (st_open(&file, NULL, path, &err) != 0)
        fail_msg("%s", err.text);
    const struct st_tensor *t = st_header_find(st_file_header(file), name);
    const struct whole_tensor *held = whole_find(&r->record.weights, name);
    double *values = malloc((size_t)held->numel * sizeof(*values));
    assert_non_null(values);
    assert_non_null(t);
    assert_int_equal(t->num_dims, 2);
    assert_int_equal(t->shape[0], 331);
    if (st_read_elements(file, t, 0, held->numel, values, sizeof(*values), &err) != 0)
        fail_msg("%s", err.text);
    for (int64_t i = 0; i < held->numel; i++)
        if (fabs(values[i] - held->values[i]) > 1e-7 * fabs(held->values[i]))
            fail_msg("%s: element %lld is %g in the export, %g on the ranks", name, (long long)i,
                     values[i], held->values[i]);
    free(values);
    st_close(file);
}

/* 32. 331 rows over 2 and 4 ranks: padded ones count in no sum, and are written nowhere. */
static void a_vocabulary_that_tensor_ranks_dont_divide_keeps_its_rows(void **state)
{
    (void)state;
    static const struct variant variants[] = {
        {.data = 1, .tensor = 2, .micro = 1},
        {.data = 1, .tensor = 4, .micro = 2, .sequence_parallel = true},
        {.data = 2, .tensor = 4, .micro = 1, .zero_stage = 3},
    };
    struct shape shape = shapes[0];
    struct shape_files files;
    struct run one;
    shape.heads = 4;
    shape.kv_heads = 2;
    shape_write(&files, &shape, NULL, NULL);
    struct gang_spec spec = spec_of(&files, &one_rank);
    run_well(&one, &spec, NULL, "one rank");
    for (size_t i = 0; i < sizeof(variants) / sizeof(variants[0]); i++) {
        char *dir = gang_make_dir();
        struct run r;
        spec = spec_of(&files, &variants[i]);
        spec.checkpoint = "interval: 0, export_at_end: true";
        run_well(&r, &spec, dir, words_of(&variants[i]));
        check_first_step(words_of(&variants[i]), &one, &r);
        check_exported(&r, dir, "lm_head.weight");
        check_exported(&r, dir, "model.embed_tokens.weight");
        run_free(&r);
        gang_remove_dir(dir);
    }
    run_free(&one);
    shape_remove(&files);
}

/* ---- 33, 34 -----------------------------------------------------------------------------------
 */

/* Three steps of SGD end at one rank's weights. */
static void check_sgd(const struct shape_files *files, const struct run *one,
                      const struct variant *v)
{
    struct gang_spec spec = spec_of(files, v);
    struct run r;
    spec.steps = 3;
    run_well(&r, &spec, NULL, words_of(v));
    check_first_step(words_of(v), one, &r);
    check_same(words_of(v), &one->record.weights, &r.record.weights);
    run_free(&r);
}

static void run_sgd(struct run *r, const struct shape_files *files, const char *optimizer)
{
    struct gang_spec spec = spec_of(files, &one_rank);
    spec.steps = 3;
    spec.optimizer = optimizer;
    run_well(r, &spec, NULL, "one rank");
}

/* 33. Adam divides a wrong factor out of the gradient again; SGD doesn't, with steps so large that
 * a millionth of one shows. */
static void sgd_ends_where_one_rank_ends_so_no_factor_is_hidden(void **state)
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
    run_sgd(&one, &files, SGD);
    run_sgd(&other, &files, "name: sgd, lr: 0.5000005, weight_decay: 0.05");
    struct whole_distance d = whole_compare(&one.record.weights, &other.record.weights, NULL);
    assert_true(d.l2 > 1e3 * SAME);
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
    run_sgd(&one, &files, SGD);
    for (size_t i = 0; i < num; i++)
        check_sgd(&files, &one, &variants[i]);
    run_free(&one);
    shape_remove(&files);
}

/* 34. Micro-batches, data and tensor ranks of 3, 5 and 6: halving trees, shifts and masks break. */
static void counts_that_are_no_powers_of_two_change_nothing(void **state)
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

/* named_faults_test [PATTERN]: only the tests whose names fit it. */
int main(int argc, char **argv)
{
    gang_quiet();
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_final_norms_gradient_under_sequence_parallel_is_whole_on_every_rank),
        cmocka_unit_test(accumulating_in_a_reduce_group_of_one_adds_each_micro_batch_once),
        cmocka_unit_test(a_loss_over_a_cut_vocabulary_is_the_whole_ones),
        cmocka_unit_test(unequal_targets_over_data_ranks_weigh_each_target_alike),
        cmocka_unit_test(plain_hybrid_and_sharded_data_parallel_have_one_norm),
        cmocka_unit_test(a_matrix_used_twice_gets_both_gradients_once),
        cmocka_unit_test(a_vocabulary_that_tensor_ranks_dont_divide_keeps_its_rows),
        cmocka_unit_test(sgd_ends_where_one_rank_ends_so_no_factor_is_hidden),
        cmocka_unit_test(counts_that_are_no_powers_of_two_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
