/* runtime/data: token files, windows, and the one global order of samples. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data_case.h"

#define VOCAB 65536

static char *path;

static int make_dir(void **state)
{
    (void)state;
    path = data_case_make("train.bin");
    return 0;
}

/* Token at a position: not a mere count, so that a shifted read shows. */
static int32_t token_at(int64_t i)
{
    return (int32_t)((i * 2654435761u >> 7) % 60000);
}

static void write_u16(int64_t n)
{
    uint16_t *v = calloc((size_t)n + 1, sizeof *v);
    assert_non_null(v);
    for (int64_t i = 0; i < n; i++) {
        v[i] = (uint16_t)token_at(i);
    }
    data_case_write(v, (size_t)n * sizeof *v);
    free(v);
}

static struct loader_options base(int64_t seq_len, int64_t global)
{
    return data_case_options("u16", seq_len, global, VOCAB);
}

static int read_batch(struct loader *l, int64_t step, int64_t micro_batch, int32_t *ids,
                      int32_t *targets, struct error *err)
{
    const struct host_batch batch = {.ids = ids, .targets = targets};
    return loader_read(l, step, micro_batch, &batch, err);
}

/* A whole step over all data ranks, rows in order: ids [G, T], targets behind them. */
static int32_t *read_step(const struct loader_options *options, int32_t data, int64_t micro,
                          int64_t step)
{
    size_t T = (size_t)options->seq_len, G = (size_t)options->global_batch_size;
    int32_t *all = calloc(2 * G * T, sizeof *all);
    assert_non_null(all);
    size_t at = 0;
    for (int32_t rank = 0; rank < data; rank++) {
        struct loader_options o = *options;
        struct error err = {0};
        o.data_rank = rank;
        o.data_size = data;
        o.micro_batch_size = micro;
        struct loader *l = data_case_open(&o);
        for (int64_t m = 0; m < (int64_t)G / data / micro; m++, at += (size_t)micro * T) {
            if (read_batch(l, step, m, all + at, all + G * T + at, &err) != 0) {
                fail_msg("%s", err.text);
            }
        }
        loader_close(l);
    }
    assert_int_equal(at, G * T);
    return all;
}

static void check_row(const int32_t *ids, const int32_t *targets, int64_t begin, int64_t seq_len)
{
    for (int64_t t = 0; t < seq_len; t++) {
        assert_int_equal(ids[t], token_at(begin + t));
        assert_int_equal(targets[t], token_at(begin + t + 1));
    }
}

/* "T": stride T, one token shared. "T+1": back to back. Both wrap at the end of the epoch. */
static void windows_are_those_of_a_direct_computation(void **state)
{
    (void)state;
    for (int64_t T = 1; T <= 9; T++) {
        for (int64_t n = T + 1; n < 6 * T + 4; n++) {
            write_u16(n);
            for (int kind = 0; kind < 2; kind++) {
                struct loader_options o = base(T, 3);
                o.window = kind ? "T+1" : "T";
                int64_t stride = kind ? T + 1 : T, samples = 0;
                while (samples * stride + T + 1 <= n) {
                    samples++;
                }
                struct loader *l = data_case_open(&o);
                assert_int_equal(loader_num_samples(l), samples);
                loader_close(l);
                for (int64_t step = 1; step <= 4; step++) {
                    int32_t *all = read_step(&o, 1, 1, step);
                    for (int64_t j = 0; j < 3; j++) {
                        int64_t i = ((step - 1) * 3 + j) % samples;
                        check_row(all + j * T, all + 3 * T + j * T, i * stride, T);
                    }
                    free(all);
                }
            }
        }
    }
}

/* A file of exactly one sample, and of one token less. */
static void seventeen_tokens_hold_one_sample_of_sixteen(void **state)
{
    (void)state;
    struct loader_options o = base(16, 2);
    write_u16(17);
    for (int kind = 0; kind < 2; kind++) {
        o.window = kind ? "T+1" : "T";
        struct loader *l = data_case_open(&o);
        assert_int_equal(loader_num_samples(l), 1);
        loader_close(l);
        o.order = "shuffled";
        int32_t *all = read_step(&o, 2, 1, 5);
        check_row(all, all + 32, 0, 16);
        check_row(all + 16, all + 48, 0, 16);
        free(all);
    }
    write_u16(16);
    data_case_open_fails(&o, ERR_INVALID_ARGUMENT,
                         "has 16 tokens; one sample of seq_len 16 needs 17");
    write_u16(0);
    data_case_open_fails(&o, ERR_INVALID_ARGUMENT, "has 0 tokens");
}

/* The sample set of a step depends on seed, step and global batch alone: no layout changes it. */
static void every_layout_sees_the_same_rows(void **state)
{
    (void)state;
    write_u16(5000);
    for (int shuffled = 0; shuffled < 2; shuffled++) {
        struct loader_options o = base(13, 12);
        o.order = shuffled ? "shuffled" : "sequential";
        for (int64_t step = 1; step < 100; step += 31) {
            int32_t *want = read_step(&o, 1, 12, step);
            static const struct {
                int32_t data;
                int64_t micro;
            } layouts[] = {{1, 1}, {1, 3}, {2, 1}, {2, 2}, {2, 6},
                           {3, 1}, {3, 4}, {6, 1}, {6, 2}, {12, 1}};
            for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
                int32_t *got = read_step(&o, layouts[i].data, layouts[i].micro, step);
                assert_memory_equal(got, want, 2 * 12 * 13 * sizeof *got);
                free(got);
            }
            free(want);
        }
    }
}

/* Counts the samples of one epoch, by their first token's place in a file of distinct tokens. */
static void count_epoch(const struct loader_options *o, int64_t samples, int64_t epoch, int *seen,
                        int64_t *first)
{
    memset(seen, 0, (size_t)samples * sizeof *seen);
    for (int64_t g = epoch * samples; g < (epoch + 1) * samples; g++) {
        struct loader_options one = *o;
        one.global_batch_size = 1;
        int32_t *row = read_step(&one, 1, 1, g + 1);
        int64_t i = row[0] / o->seq_len;
        assert_int_equal(row[0] % o->seq_len, 0);
        assert_true(i < samples);
        seen[i]++;
        if (g == epoch * samples) {
            *first = i;
        }
        free(row);
    }
}

/* A shuffled epoch is a permutation: nothing is lost, nothing twice; the next epoch is another. */
static void a_shuffled_epoch_covers_each_sample_once(void **state)
{
    (void)state;
    for (int64_t samples = 1; samples <= 67; samples += 11) {
        uint16_t v[67 * 4 + 1];
        for (size_t i = 0; i < sizeof v / sizeof v[0]; i++) {
            v[i] = (uint16_t)i;
        }
        data_case_write(v, ((size_t)samples * 4 + 1) * sizeof v[0]);
        struct loader_options o = base(4, 1);
        o.order = "shuffled";
        int seen[67];
        int64_t first = 0, changes = 0, last = -1;
        for (int64_t epoch = 0; epoch < 5; epoch++) {
            count_epoch(&o, samples, epoch, seen, &first);
            for (int64_t i = 0; i < samples; i++) {
                assert_int_equal(seen[i], 1);
            }
            changes += last >= 0 && first != last;
            last = first;
        }
        assert_true(samples < 12 || changes > 0);
    }
}

static void the_order_follows_from_the_seed_alone(void **state)
{
    (void)state;
    write_u16(9000);
    struct loader_options o = base(8, 16);
    o.order = "shuffled";
    int32_t *a = read_step(&o, 1, 1, 3), *b = read_step(&o, 4, 2, 3);
    assert_memory_equal(a, b, 2 * 16 * 8 * sizeof *a);
    free(b);
    b = read_step(&o, 1, 1, 4);
    assert_memory_not_equal(a, b, 16 * 8 * sizeof *a);
    free(b);
    o.seed = 8;
    b = read_step(&o, 1, 1, 3);
    assert_memory_not_equal(a, b, 16 * 8 * sizeof *a);
    free(b);
    free(a);
}

/* The message must lead to the token: file, position and id. */
static void an_id_beyond_the_vocabulary_is_named(void **state)
{
    (void)state;
    uint16_t v[200] = {0};
    v[137] = 300;
    data_case_write(v, sizeof v);
    struct loader_options o = base(10, 1);
    o.vocab_size = 300;
    struct loader *l = data_case_open(&o);
    struct error err = {0};
    int32_t ids[10], targets[10];
    for (int64_t step = 1; step <= 19; step++) {
        int rc = read_batch(l, step, 0, ids, targets, &err);
        assert_int_equal(rc, step == 14 ? -1 : 0);
    }
    assert_int_equal(err.code, ERR_OUT_OF_RANGE);
    assert_non_null(strstr(err.text, path));
    assert_non_null(strstr(err.text, "token 137 is 300; the vocabulary has 300"));
    loader_close(l);

    uint32_t wide[20] = {[7] = 0x80000000u};
    data_case_write(wide, sizeof wide);
    o.format = "u32";
    o.vocab_size = 0;
    l = data_case_open(&o);
    assert_int_equal(read_batch(l, 1, 0, ids, targets, &err), -1);
    assert_non_null(
        strstr(err.text, "token 7 is 2147483648, which no vocabulary has: is the file u32?"));
    loader_close(l);
}

static void u32_and_text_are_read_as_they_lie(void **state)
{
    (void)state;
    uint32_t wide[5] = {1, 70000, 0x7FFFFFFE, 3, 4};
    int32_t ids[4], targets[4];
    struct error err = {0};
    struct loader_options o = base(4, 1);
    data_case_write(wide, sizeof wide);
    o.format = "u32";
    o.vocab_size = 0x7FFFFFFF;
    struct loader *l = data_case_open(&o);
    assert_int_equal(read_batch(l, 1, 0, ids, targets, &err), 0);
    assert_int_equal(ids[1], 70000);
    assert_int_equal(targets[1], 0x7FFFFFFE);
    loader_close(l);

    data_case_write("h\xC3\xA4llo", 6);
    o.format = "text";
    o.vocab_size = 256;
    l = data_case_open(&o);
    assert_int_equal(read_batch(l, 1, 0, ids, targets, &err), 0);
    assert_int_equal(ids[1], 0xC3);
    assert_int_equal(targets[3], 'l');
    loader_close(l);
}

static void sizes_that_are_no_whole_tokens_are_refused(void **state)
{
    (void)state;
    char bytes[35] = {0};
    struct loader_options o = base(4, 1);
    data_case_write(bytes, 35);
    data_case_open_fails(&o, ERR_INVALID_ARGUMENT, "35 bytes are not a whole number of u16 tokens");
    data_case_write(bytes, 34);
    o.format = "u32";
    data_case_open_fails(&o, ERR_INVALID_ARGUMENT, "34 bytes are not a whole number of u32 tokens");
}

/* Training on a file that is being rewritten must end in words. */
static void a_file_that_shrinks_is_an_error(void **state)
{
    (void)state;
    write_u16(100);
    struct loader_options o = base(9, 1);
    struct loader *l = data_case_open(&o);
    struct error err = {0};
    int32_t ids[9], targets[9];
    assert_int_equal(read_batch(l, 11, 0, ids, targets, &err), 0);
    assert_int_equal(truncate(path, 198), 0);
    assert_int_equal(read_batch(l, 1, 0, ids, targets, &err), -1);
    assert_int_equal(err.code, ERR_DATA_LOSS);
    assert_non_null(strstr(err.text, path));
    assert_non_null(strstr(err.text, "shrunk"));
    /* Growing changes nothing: the order was fixed at the start. */
    assert_int_equal(truncate(path, 400), 0);
    assert_int_equal(read_batch(l, 1, 0, ids, targets, &err), 0);
    assert_int_equal(loader_num_samples(l), 11);
    loader_close(l);
}

static void a_file_that_changed_since_the_plan_is_refused(void **state)
{
    (void)state;
    write_u16(100);
    struct loader_options o = base(9, 1);
    o.expected_tokens = 100;
    loader_close(data_case_open(&o));
    o.expected_tokens = 99;
    data_case_open_fails(&o, ERR_FAILED_PRECONDITION,
                         "has 100 tokens, had 99 when the job was planned");
}

static void options_that_make_no_sense_are_refused_by_name(void **state)
{
    (void)state;
    write_u16(100);
    struct loader_options o = base(4, 6);
    o.data_size = 4;
    data_case_open_fails(&o, ERR_INVALID_ARGUMENT, "global_batch_size of 6");
    o = base(4, 6);
    o.micro_batch_size = 4;
    data_case_open_fails(&o, ERR_INVALID_ARGUMENT, "micro_batch_size 4");
    o = base(0, 6);
    data_case_open_fails(&o, ERR_INVALID_ARGUMENT, "seq_len is 0");
    o = base(4, -1);
    data_case_open_fails(&o, ERR_INVALID_ARGUMENT, "global_batch_size is -1");
    o = base(4, 6);
    o.format = "jsonl";
    data_case_open_fails(&o, ERR_INVALID_ARGUMENT,
                         "\"jsonl\" is not a data format; text, u16, u32 and "
                         "tokenized-jsonl are");
    o = base(4, 6);
    o.window = "2T";
    data_case_open_fails(&o, ERR_INVALID_ARGUMENT, "window is \"2T\"; T and T+1 are possible");
    o = base(4, 6);
    o.order = "random";
    data_case_open_fails(&o, ERR_INVALID_ARGUMENT, "order is \"random\"");
    o = base(4, 6);
    o.format = "text";
    o.tokenizer = "tokenizer.json";
    data_case_open_fails(&o, ERR_UNIMPLEMENTED, "tokenizer is \"tokenizer.json\"");
    o = base(4, 6);
    o.path = "/nowhere/train.bin";
    data_case_open_fails(&o, ERR_NOT_FOUND, "/nowhere/train.bin");
    o.path = "/dev/zero";
    data_case_open_fails(&o, ERR_INVALID_ARGUMENT, "not a regular file");
}

/* Windows have a target everywhere; the three ranks' counts make up the whole step. */
static void a_ranks_share_of_a_step_counts_every_position_once(void **state)
{
    (void)state;
    write_u16(100);
    struct loader_options o = base(4, 6);
    o.data_size = 3;
    struct loader *l = data_case_open(&o);
    struct error err = {0};
    struct loader_counts counts;
    assert_false(loader_is_packed(l) || loader_can_ignore(l));
    assert_int_equal(loader_count_own_targets(l, 1, &counts, &err), 0);
    assert_int_equal(counts.targets, 8);
    assert_int_equal(counts.tokens, 8);
    assert_int_equal(counts.attended, 2 * (1 + 2 + 3 + 4));
    loader_close(l);
}

/* Reads at a file's very end and across the inner buffer's edge. */
static void long_windows_are_read_whole(void **state)
{
    (void)state;
    write_u16(140001);
    struct loader_options o = base(70000, 1);
    int32_t *row = read_step(&o, 1, 1, 2);
    check_row(row, row + 70000, 70000, 70000);
    free(row);
}

/* What a plan says reaches the loader: rank 3 of 4 is data rank 3. */
static void a_plan_gives_the_options(void **state)
{
    (void)state;
    Plan plan = PLAN__INIT;
    JobSpec spec = JOB_SPEC__INIT;
    DataSpec data = DATA_SPEC__INIT;
    SourceSpec source = SOURCE_SPEC__INIT, *sources[] = {&source};
    TrainingSpec training = TRAINING_SPEC__INIT;
    ModelFacts model = MODEL_FACTS__INIT;
    ModelConfig config = MODEL_CONFIG__INIT;
    DataFacts facts = DATA_FACTS__INIT, *all_facts[] = {&facts};
    Mesh mesh = MESH__INIT;
    struct loader_options o;
    assert_int_equal(loader_options_from_plan(&o, &plan, 0), -1);
    spec.data = &data;
    spec.training = &training;
    data.train = sources;
    data.n_train = 1;
    source.path = (char[]){"train.bin"};
    source.format = (char[]){"u16"};
    training.seq_len = 4;
    training.global_batch_size = 8;
    training.seed = 99;
    training.micro_batch_size = 2;
    config.vocab_size = 300;
    model.config = &config;
    facts.path = path;
    facts.num_tokens = 100;
    mesh.data = 4;
    mesh.num_ranks = 4;
    plan.spec = &spec;
    plan.model = &model;
    plan.mesh = &mesh;
    plan.train = all_facts;
    plan.n_train = 1;
    assert_int_equal(loader_options_from_plan(&o, &plan, 3), 0);
    assert_string_equal(o.path, path);
    assert_string_equal(o.format, "u16");
    assert_string_equal(o.window, "T");
    assert_string_equal(o.order, "shuffled");
    assert_string_equal(o.tokenizer, "bytes");
    assert_int_equal(o.seed, 99);
    assert_int_equal(o.seq_len, 4);
    assert_int_equal(o.global_batch_size, 8);
    assert_int_equal(o.micro_batch_size, 2);
    assert_int_equal(o.vocab_size, 300);
    assert_int_equal(o.data_rank, 3);
    assert_int_equal(o.data_size, 4);
    assert_int_equal(o.expected_tokens, 100);
    plan.n_train = 0;
    assert_int_equal(loader_options_from_plan(&o, &plan, 0), 0);
    assert_string_equal(o.path, "train.bin");
    data.n_train = 0;
    assert_int_equal(loader_options_from_plan(&o, &plan, 0), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(windows_are_those_of_a_direct_computation),
        cmocka_unit_test(seventeen_tokens_hold_one_sample_of_sixteen),
        cmocka_unit_test(every_layout_sees_the_same_rows),
        cmocka_unit_test(a_shuffled_epoch_covers_each_sample_once),
        cmocka_unit_test(the_order_follows_from_the_seed_alone),
        cmocka_unit_test(an_id_beyond_the_vocabulary_is_named),
        cmocka_unit_test(u32_and_text_are_read_as_they_lie),
        cmocka_unit_test(sizes_that_are_no_whole_tokens_are_refused),
        cmocka_unit_test(a_file_that_shrinks_is_an_error),
        cmocka_unit_test(a_file_that_changed_since_the_plan_is_refused),
        cmocka_unit_test(options_that_make_no_sense_are_refused_by_name),
        cmocka_unit_test(a_ranks_share_of_a_step_counts_every_position_once),
        cmocka_unit_test(long_windows_are_read_whole),
        cmocka_unit_test(a_plan_gives_the_options),
    };
    return cmocka_run_group_tests(tests, make_dir, data_case_remove);
}
