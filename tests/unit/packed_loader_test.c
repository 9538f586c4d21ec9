/* runtime/data: files of packed rows, and the loader's steps of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "data_case.h"
#include "runtime/data/row_file.h"

#define T 6

static char *path;

static int make_dir(void **state)
{
    (void)state;
    path = data_case_make("train.jsonl");
    return 0;
}

/* Row i: a document of 1 + i % 5 tokens, id i in front; every third row has no target. */
static int64_t tokens_of(int64_t i)
{
    return 1 + i % 5;
}

static void put_row(struct buf *b, int64_t i, const char *end)
{
    buf_puts(b, "{\"input_ids\": [");
    for (int64_t t = 0; t < tokens_of(i); t++) {
        buf_printf(b, "%s%lld", t ? ", " : "", (long long)(t ? t : i));
    }
    buf_puts(b, "], \"labels\": [");
    for (int64_t t = 0; t < tokens_of(i); t++) {
        buf_printf(b, "%s%lld", t ? ", " : "", (long long)(i % 3 == 2 ? -100 : t));
    }
    buf_printf(b, "]}%s", end);
}

static void write_rows(int64_t num, const char *end)
{
    struct buf b = {0};
    for (int64_t i = 0; i < num; i++) {
        put_row(&b, i, end);
    }
    data_case_write_text(b.data);
    buf_free(&b);
}

static const struct packed_limits limits = {
    .max_tokens = T, .vocab_size = 10000, .max_positions = T};

static struct row_file *open_file(int64_t max_marks)
{
    struct row_file_options o = {.path = path, .max_marks = max_marks};
    struct row_file *f;
    struct error err = {0};
    if (row_file_open(&f, &o, &err) != 0) {
        fail_msg("%s", err.text);
    }
    return f;
}

static void read_well(struct row_file *f, int64_t i, struct packed_row *row)
{
    struct error err = {0};
    if (row_file_read(f, i, &limits, row, &err) != 0) {
        fail_msg("%s", err.text);
    }
    assert_int_equal(row->num_tokens, tokens_of(i));
    assert_int_equal(row->ids.at[0], i);
}

/* Rows are found however few places are kept, in any order, and over the edges of what is read at
 * once. */
static void every_row_is_found(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 2, 3, 7, 8, 9, 64, 65, 2500};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        int64_t num = sizes[s];
        write_rows(num, s % 2 ? "\r\n" : "\n");
        for (int64_t marks = 1; marks <= 4096; marks *= 4) {
            struct row_file *f = open_file(marks);
            struct packed_row row = {0};
            assert_int_equal(row_file_num_rows(f), num);
            for (int64_t i = 0; i < num; i++) {
                read_well(f, i, &row);
            }
            for (int64_t i = 0; i < (marks == 1 && num > 100 ? 40 : num); i++) {
                read_well(f, (i * 997 + 13) % num, &row);
            }
            packed_row_free(&row);
            row_file_close(f);
        }
    }
}

/* With or without a last newline, with white space behind: the same rows. */
static void what_stands_behind_the_last_row_is_none(void **state)
{
    (void)state;
    static const char *const tails[] = {"", "\n", "\r\n", "\n\n\n", "  \n\t\r\n "};
    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++) {
        struct buf b = {0};
        put_row(&b, 0, "\n");
        put_row(&b, 1, tails[i]);
        data_case_write_text(b.data);
        buf_free(&b);
        struct row_file *f = open_file(0);
        struct packed_row row = {0};
        assert_int_equal(row_file_num_rows(f), 2);
        read_well(f, 1, &row);
        packed_row_free(&row);
        row_file_close(f);
    }
}

static void a_file_without_rows_is_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {"", "\n", " \r\n\n\t"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct row_file_options o = {.path = path};
        struct row_file *f;
        struct error err = {0};
        data_case_write_text(texts[i]);
        assert_int_equal(row_file_open(&f, &o, &err), -1);
        assert_int_equal(err.code, ERR_INVALID_ARGUMENT);
        assert_non_null(strstr(err.text, "train.jsonl: holds no rows"));
    }
}

/* Line numbers are those that an editor shows. */
static void a_wrong_row_is_named_by_its_line(void **state)
{
    (void)state;
    struct buf b = {0};
    for (int64_t i = 0; i < 40; i++) {
        i == 25 ? buf_puts(&b, "{\"input_ids\": [1, 70000], \"labels\": [1, 2]}\n")
                : put_row(&b, i, "\n");
    }
    buf_puts(&b, "\n");
    put_row(&b, 40, "\n");
    data_case_write_text(b.data);
    buf_free(&b);
    for (int64_t marks = 1; marks <= 64; marks *= 8) {
        struct row_file *f = open_file(marks);
        struct packed_row row = {0};
        struct error err = {0};
        char want[256];
        read_well(f, 24, &row);
        assert_int_equal(row_file_read(f, 25, &limits, &row, &err), -1);
        snprintf(want, sizeof want, "%s:26: input_ids[1] is 70000; wants an id from 0 to 9999",
                 path);
        assert_non_null(strstr(err.text, want));
        read_well(f, 26, &row);
        assert_int_equal(row_file_num_rows(f), 42);
        assert_int_equal(row_file_read(f, 40, &limits, &row, &err), -1);
        snprintf(want, sizeof want, "%s:41: the line is empty; remove it", path);
        assert_string_equal(err.text, want);
        packed_row_free(&row);
        row_file_close(f);
    }
}

/* Places were found at the open: whatever is done to the file afterwards ends in words. */
static void a_file_that_changes_under_a_job_is_an_error(void **state)
{
    (void)state;
    static const char *const words[] = {"has shrunk", "has grown", "was written to"};
    for (int how = 0; how < 3; how++) {
        write_rows(9, "\n");
        struct row_file *f = open_file(0);
        struct packed_row row = {0};
        struct error err = {0};
        struct stat st;
        read_well(f, 3, &row);
        assert_int_equal(stat(path, &st), 0);
        if (how < 2) {
            assert_int_equal(truncate(path, st.st_size + (how ? 1 : -1)), 0);
        } else {
            struct timespec times[] = {st.st_atim, {.tv_sec = st.st_mtim.tv_sec + 1}};
            assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
        }
        assert_int_equal(row_file_read(f, 4, &limits, &row, &err), -1);
        assert_int_equal(err.code, ERR_DATA_LOSS);
        assert_non_null(strstr(err.text, words[how]));
        assert_non_null(strstr(err.text, path));
        packed_row_free(&row);
        row_file_close(f);
    }
}

/* ---- the loader ------------------------------------------------------------------------------ */

static struct loader_options base(int64_t global)
{
    return data_case_options("tokenized-jsonl", T, global, 10000);
}

static void padding_has_no_target_and_a_document_of_its_own(void **state)
{
    (void)state;
    data_case_write_text("{\"input_ids\":[7,8,9],\"labels\":[8,-100,5],\"segment_ids\":[3,3,4]}\n"
                         "{\"input_ids\":[1,2,3,4,5,6],\"labels\":[2,3,4,5,6,7],"
                         "\"position_ids\":[0,1,2,3,4,5]}\n");
    struct loader_options o = base(2);
    o.micro_batch_size = 2;
    struct loader *l = data_case_open(&o);
    int32_t got[4][2 * T];
    static const int32_t want[4][2 * T] = {{7, 8, 9, 0, 0, 0, 1, 2, 3, 4, 5, 6},
                                           {8, -100, 5, -100, -100, -100, 2, 3, 4, 5, 6, 7},
                                           {0, 1, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5},
                                           {0, 0, 1, 2, 2, 2, 0, 0, 0, 0, 0, 0}};
    const struct host_batch batch = {got[0], got[1], got[2], got[3]};
    struct loader_counts counts;
    struct error err = {0};
    assert_true(loader_is_packed(l) && loader_can_ignore(l));
    assert_int_equal(loader_num_samples(l), 2);
    assert_int_equal(loader_read(l, 1, 0, &batch, &err), 0);
    assert_memory_equal(got, want, sizeof want);
    assert_int_equal(loader_count_own_targets(l, 1, &counts, &err), 0);
    assert_int_equal(counts.targets, 2 + 6);
    assert_int_equal(counts.tokens, 3 + 6);
    assert_int_equal(counts.attended, (1 + 2 + 1) + 21);
    loader_close(l);
}

/* Four lists of a whole step over all data ranks, row by row; and the counts, summed. */
static int32_t *read_step(const struct loader_options *options, int32_t data, int64_t micro,
                          int64_t step, struct loader_counts *sum)
{
    size_t G = (size_t)options->global_batch_size, n = (size_t)micro * T, at = 0;
    int32_t *all = calloc(4 * G * T, sizeof *all);
    assert_non_null(all);
    *sum = (struct loader_counts){0};
    for (int32_t rank = 0; rank < data; rank++) {
        struct loader_options o = *options;
        struct error err = {0};
        struct loader_counts own;
        o.data_rank = rank;
        o.data_size = data;
        o.micro_batch_size = micro;
        struct loader *l = data_case_open(&o);
        assert_int_equal(loader_count_own_targets(l, step, &own, &err), 0);
        sum->targets += own.targets;
        sum->tokens += own.tokens;
        sum->attended += own.attended;
        for (int64_t m = 0; m < (int64_t)G / data / micro; m++, at += n) {
            const struct host_batch batch = {all + at, all + G * T + at, all + 2 * G * T + at,
                                             all + 3 * G * T + at};
            if (loader_read(l, step, m, &batch, &err) != 0) {
                fail_msg("%s", err.text);
            }
        }
        loader_close(l);
    }
    assert_int_equal(at, G * T);
    return all;
}

/* Rows, targets and FLOPs of a step are the same in any layout; epochs wrap. */
static void every_layout_sees_the_same_rows_and_counts(void **state)
{
    (void)state;
    write_rows(29, "\n");
    for (int shuffled = 0; shuffled < 2; shuffled++) {
        struct loader_options o = base(12);
        o.order = shuffled ? "shuffled" : "sequential";
        for (int64_t step = 1; step < 8; step += 2) {
            struct loader_counts want, got;
            int32_t *rows = read_step(&o, 1, 12, step, &want);
            assert_true(want.targets > 0 && want.targets < want.tokens);
            for (int64_t j = 0; !shuffled && j < 12; j++) {
                assert_int_equal(rows[j * T], ((step - 1) * 12 + j) % 29);
            }
            static const int64_t layouts[][2] = {{1, 1}, {2, 3}, {3, 2}, {4, 1}, {6, 2}, {12, 1}};
            for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
                int32_t *other = read_step(&o, (int32_t)layouts[i][0], layouts[i][1], step, &got);
                assert_memory_equal(other, rows, 4 * 12 * T * sizeof *rows);
                assert_memory_equal(&got, &want, sizeof got);
                free(other);
            }
            free(rows);
        }
    }
}

/* Rows that don't fit into what is kept are parsed again; nobody sees a difference. */
static void a_step_larger_than_the_cache_reads_the_same(void **state)
{
    (void)state;
    const int64_t seq_len = (int64_t)1 << 20; /* two rows fit */
    write_rows(5, "\n");
    struct loader_options o = base(5);
    o.seq_len = seq_len;
    struct loader *l = data_case_open(&o);
    size_t n = (size_t)seq_len;
    int32_t *lists = malloc(4 * n * sizeof *lists);
    assert_non_null(lists);
    const struct host_batch batch = {lists, lists + n, lists + 2 * n, lists + 3 * n};
    struct error err = {0};
    struct loader_counts counts;
    assert_int_equal(loader_count_own_targets(l, 1, &counts, &err), 0);
    assert_int_equal(counts.tokens, 1 + 2 + 3 + 4 + 5);
    for (int64_t m = 4; m >= 0; m--) {
        assert_int_equal(loader_read(l, 1, m, &batch, &err), 0);
        assert_int_equal(batch.ids[0], m);
        assert_int_equal(batch.targets[n - 1], -100);
        assert_int_equal(batch.segments[n - 1], 1);
    }
    free(lists);
    loader_close(l);
}

/* A rank without a target is nothing special; the error of a whole step names its lines. */
static void a_step_without_targets_names_its_lines(void **state)
{
    (void)state;
    struct buf b = {0};
    for (int i = 0; i < 24; i++) {
        buf_printf(&b, "{\"input_ids\":[1,2],\"labels\":[%d,-100]}\n", i < 12 ? -100 : 2);
    }
    data_case_write_text(b.data);
    buf_free(&b);
    struct loader_options o = base(12);
    o.data_size = 3;
    struct loader *l = data_case_open(&o);
    struct loader_counts counts;
    struct error err = {0};
    char want[512];
    assert_int_equal(loader_count_own_targets(l, 1, &counts, &err), 0);
    assert_int_equal(counts.targets, 0);
    assert_int_equal(counts.tokens, 8);
    assert_int_equal(loader_no_targets(l, 1, &err), -1);
    snprintf(want, sizeof want,
             "%s: every label of the step's 12 rows is -100, so there is nothing to learn (lines "
             "1, 2, 3, 4, 5, 6, 7, 8, ...); remove such rows, or raise global_batch_size",
             path);
    assert_string_equal(err.text, want);
    assert_int_equal(err.code, ERR_INVALID_ARGUMENT);
    loader_close(l);
    o = base(1);
    l = data_case_open(&o);
    assert_int_equal(loader_no_targets(l, 3, &err), -1);
    assert_non_null(strstr(err.text, "the step's 1 rows is -100, so there is nothing to learn "
                                     "(line 3);"));
    loader_close(l);
}

/* Another file would be another order of rows. */
static void a_file_that_changed_since_the_plan_is_refused(void **state)
{
    (void)state;
    struct stat st;
    write_rows(9, "\n");
    assert_int_equal(stat(path, &st), 0);
    struct loader_options o = base(1);
    o.expected_rows = 9;
    o.expected_bytes = (int64_t)st.st_size;
    loader_close(data_case_open(&o));
    o.expected_rows = 8;
    data_case_open_fails(&o, ERR_FAILED_PRECONDITION, "has 9 rows, had 8 when the job was planned");
    o.expected_rows = 9;
    o.expected_bytes++;
    data_case_open_fails(&o, ERR_FAILED_PRECONDITION, "when the job was planned");
    o.path = "/nowhere/train.jsonl";
    data_case_open_fails(&o, ERR_NOT_FOUND, "/nowhere/train.jsonl");
    o.path = "/dev/zero";
    data_case_open_fails(&o, ERR_INVALID_ARGUMENT, "not a regular file");
}

/* Longer than seq_len, an id above the vocabulary, a position above seq_len: by line. */
static void rows_that_do_not_fit_the_job_are_refused_when_read(void **state)
{
    (void)state;
    static const char *const words[] = {
        ":1: input_ids has more than 6 numbers; that is training.seq_len: cut the row",
        ":2: input_ids[0] is 10000; wants an id from 0 to 9999 (the model's vocab_size is 10000)",
        ":3: position_ids[0] is 6; wants a position from 0 to 5 (training.seq_len is 6)"};
    data_case_write_text("{\"input_ids\":[1,2,3,4,5,6,7],\"labels\":[1,2,3,4,5,6,7]}\n"
                         "{\"input_ids\":[10000],\"labels\":[1]}\n"
                         "{\"input_ids\":[1],\"labels\":[1],\"position_ids\":[6]}");
    struct loader_options o = base(1);
    struct loader *l = data_case_open(&o);
    for (int64_t step = 1; step <= 3; step++) {
        struct loader_counts counts;
        struct error err = {0};
        assert_int_equal(loader_count_own_targets(l, step, &counts, &err), -1);
        assert_int_equal(err.code, ERR_INVALID_ARGUMENT);
        if (!strstr(err.text, words[step - 1])) {
            fail_msg("says \"%s\", wanted \"%s\"", err.text, words[step - 1]);
        }
    }
    loader_close(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_is_found),
        cmocka_unit_test(what_stands_behind_the_last_row_is_none),
        cmocka_unit_test(a_file_without_rows_is_refused),
        cmocka_unit_test(a_wrong_row_is_named_by_its_line),
        cmocka_unit_test(a_file_that_changes_under_a_job_is_an_error),
        cmocka_unit_test(padding_has_no_target_and_a_document_of_its_own),
        cmocka_unit_test(every_layout_sees_the_same_rows_and_counts),
        cmocka_unit_test(a_step_larger_than_the_cache_reads_the_same),
        cmocka_unit_test(a_step_without_targets_names_its_lines),
        cmocka_unit_test(a_file_that_changed_since_the_plan_is_refused),
        cmocka_unit_test(rows_that_do_not_fit_the_job_are_refused_when_read),
    };
    return cmocka_run_group_tests(tests, make_dir, data_case_remove);
}
