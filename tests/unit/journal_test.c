/* proto/journal: what was written whole is read; a torn or damaged end is cut, whatever it is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "proto/journal.h"

#define NUM 5

static const struct journal_head HEAD = {.job_id = 7, .attempt = 2, .segment = 1};

/* Record n: number 10 n, n bytes. at[n]: where it begins; at[NUM]: the end. */
static struct buf make(size_t at[NUM + 1])
{
    struct buf b = {0};
    journal_put_head(&b, &HEAD);
    for (size_t i = 0; i < NUM; i++) {
        at[i] = b.len;
        journal_put_record(&b, (int64_t)(i + 1) * 10, "abcdefgh", i);
    }
    at[NUM] = b.len;
    return b;
}

/* Reads to the end or to what is bad: how many records were good, each checked. */
static size_t count(const void *data, size_t len, int *rc, struct error *err)
{
    struct journal_head head;
    struct journal_record r;
    size_t at = JOURNAL_HEAD_BYTES, num = 0;
    *rc = journal_take_head(data, len, &head, err);
    if (*rc != 0) {
        return 0;
    }
    while ((*rc = journal_take_record(data, len, &at, &r, err)) == 1) {
        assert_int_equal(r.seq, (num + 1) * 10);
        assert_int_equal(r.len, num);
        assert_memory_equal(r.body, "abcdefgh", num);
        num++;
    }
    return num;
}

static void what_was_written_is_read(void **state)
{
    (void)state;
    size_t at[NUM + 1];
    struct buf b = make(at);
    struct journal_head head;
    int rc;
    assert_int_equal(count(b.data, b.len, &rc, NULL), NUM);
    assert_int_equal(rc, 0);
    assert_int_equal(journal_take_head(b.data, b.len, &head, NULL), 0);
    assert_int_equal(head.job_id, 7);
    assert_int_equal(head.attempt, 2);
    assert_int_equal(head.segment, 1);
    buf_free(&b);
}

/* A write that a kill or a full disk cut off: all records before it are whole. */
static void a_journal_cut_at_any_byte_gives_its_whole_records(void **state)
{
    (void)state;
    size_t at[NUM + 1];
    struct buf b = make(at);
    for (size_t len = 0; len <= b.len; len++) {
        struct error err = {0};
        size_t whole = 0;
        int rc;
        while (whole < NUM && at[whole + 1] <= len) {
            whole++;
        }
        char *copy = malloc(len ? len : 1); /* so that a sanitizer sees a read beyond the end */
        memcpy(copy, b.data, len);
        assert_int_equal(count(copy, len, &rc, &err), whole);
        free(copy);
        bool is_clean = len >= JOURNAL_HEAD_BYTES && len == at[whole];
        assert_int_equal(rc, is_clean ? 0 : -1);
        if (!is_clean) {
            assert_non_null(strstr(err.text, len < JOURNAL_HEAD_BYTES ? "head" : "torn at byte"));
        }
    }
    buf_free(&b);
}

/* A bad disk: the records before the flipped bit are given, none from there on. */
static void a_flipped_bit_is_found_wherever_it_is(void **state)
{
    (void)state;
    size_t at[NUM + 1];
    struct buf b = make(at);
    for (size_t bit = 0; bit < 8 * b.len; bit++) {
        size_t good = 0;
        int rc;
        b.data[bit / 8] = (char)(b.data[bit / 8] ^ 1 << bit % 8);
        while (good < NUM && at[good + 1] <= bit / 8) {
            good++;
        }
        assert_int_equal(count(b.data, b.len, &rc, NULL), good);
        assert_int_equal(rc, -1);
        b.data[bit / 8] = (char)(b.data[bit / 8] ^ 1 << bit % 8);
    }
    buf_free(&b);
}

/* A length beyond the bound takes no memory and reads nothing. */
static void a_record_of_any_length_is_bounded(void **state)
{
    (void)state;
    size_t at = JOURNAL_HEAD_BYTES, starts[NUM + 1];
    struct journal_record r;
    struct error err;
    struct buf b = make(starts);
    memcpy(b.data + at, (uint8_t[]){0xff, 0xff, 0xff, 0xff}, 4);
    assert_int_equal(journal_take_record(b.data, b.len, &at, &r, &err), -1);
    assert_non_null(strstr(err.text, "4294967295 bytes"));
    assert_int_equal(at, JOURNAL_HEAD_BYTES);
    buf_free(&b);
}

static void another_format_is_refused_in_words(void **state)
{
    (void)state;
    size_t at[NUM + 1];
    struct journal_head head;
    struct error err;
    struct buf b = make(at);
    b.data[8] = 9;
    assert_int_equal(journal_take_head(b.data, b.len, &head, &err), -1);
    assert_non_null(strstr(err.text, "format 9"));
    buf_free(&b);
}

static void write_file(int dir_fd, const char *name, const void *data, size_t len)
{
    int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(fs_write_all(fd, data, len), 0);
    close(fd);
}

/* Files of other names are passed over, links aren't followed, a segment of another attempt isn't
 * taken for ours. */
static void a_folder_of_segments_is_read_with_care(void **state)
{
    (void)state;
    char dir[] = "/tmp/tandem-journal-test-XXXXXX", *text;
    size_t at[NUM + 1], num, len;
    int32_t *list;
    struct error err;
    assert_non_null(mkdtemp(dir));
    int fd = open(dir, O_RDONLY | O_DIRECTORY);
    struct buf b = make(at);
    write_file(fd, "00000001.journal", b.data, b.len);
    write_file(fd, "00000012.journal", b.data, b.len);
    write_file(fd, "3.journal", b.data, b.len);
    write_file(fd, "00000004.journal.tmp", b.data, b.len);
    write_file(fd, "-0000005.journal", b.data, b.len);
    assert_int_equal(symlinkat("00000001.journal", fd, "00000002.journal"), 0);
    assert_int_equal(journal_list(fd, &list, &num, NULL), 0);
    assert_int_equal(num, 3);
    assert_int_equal(list[0], 1);
    assert_int_equal(list[1], 2);
    assert_int_equal(list[2], 12);
    free(list);
    struct journal_head want = HEAD;
    assert_int_equal(journal_read(fd, &want, &text, &len, NULL), 0);
    assert_int_equal(len, b.len);
    assert_memory_equal(text, b.data, len);
    free(text);
    want.segment = 2;
    assert_int_equal(journal_read(fd, &want, &text, &len, &err), -1);
    want.segment = 12;
    assert_int_equal(journal_read(fd, &want, &text, &len, &err), -1);
    assert_non_null(strstr(err.text, "segment 1"));
    want = HEAD;
    want.attempt = 3;
    assert_int_equal(journal_read(fd, &want, &text, &len, &err), -1);
    assert_non_null(strstr(err.text, "attempt 2"));
    assert_int_equal(unlinkat(fd, "00000002.journal", 0), 0);
    assert_int_equal(mkfifoat(fd, "00000002.journal", 0600), 0);
    want.segment = 2;
    assert_int_equal(journal_read(fd, &want, &text, &len, &err), -1);
    buf_free(&b);
    close(fd);
    assert_int_equal(fs_remove_tree(dir, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_written_is_read),
        cmocka_unit_test(a_journal_cut_at_any_byte_gives_its_whole_records),
        cmocka_unit_test(a_flipped_bit_is_found_wherever_it_is),
        cmocka_unit_test(a_record_of_any_length_is_bounded),
        cmocka_unit_test(another_format_is_refused_in_words),
        cmocka_unit_test(a_folder_of_segments_is_read_with_care),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
