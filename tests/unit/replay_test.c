/* server/replay: what a dead tandem-node left unsaid is read once, in order, in pieces, from its
 * own folder alone; what can't be had is told. */
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

#include "base/fs.h"
#include "proto/journal.h"
#include "server/replay.h"

struct bench {
    char data[64], logs[128], reports[160];
    struct buf text; /* the segment that is being made */
    int32_t segment;
    struct replay got;
    struct error err;
};

static void begin(struct bench *b)
{
    memset(b, 0, sizeof *b);
    snprintf(b->data, sizeof b->data, "/tmp/tandem-replay-test-XXXXXX");
    assert_non_null(mkdtemp(b->data));
    snprintf(b->logs, sizeof b->logs, "%s/jobs/7/logs/attempt-2", b->data);
    snprintf(b->reports, sizeof b->reports, "%s/" JOURNAL_FOLDER, b->logs);
    assert_int_equal(fs_mkdirs(b->reports, 0700, NULL), 0);
}

static void end(struct bench *b)
{
    replay_free(&b->got);
    buf_free(&b->text);
    assert_int_equal(fs_remove_tree(b->data, NULL), 0);
}

static void put(struct bench *b, int64_t from, int64_t to, int32_t attempt)
{
    if (!b->text.len) {
        journal_put_head(&b->text, &(struct journal_head){7, 2, ++b->segment});
    }
    for (int64_t seq = from; seq <= to; seq++) {
        uint8_t body[64];
        WorkerUp up = WORKER_UP__INIT;
        up.has_job_id = up.has_attempt = up.has_seq = 1;
        up.job_id = 7;
        up.attempt = attempt;
        up.seq = seq;
        journal_put_record(&b->text, seq, body, worker_up__pack(&up, body));
    }
}

static void write_segment(struct bench *b)
{
    char path[256], name[JOURNAL_NAME_MAX];
    journal_name(name, b->segment);
    assert_true(fs_join(path, sizeof path, b->reports, name));
    assert_int_equal(fs_write_atomic(path, b->text.data, b->text.len, 0600, NULL), 0);
    buf_clear(&b->text);
}

static size_t num_segments(const struct bench *b)
{
    int32_t *list;
    size_t num;
    int fd = open(b->reports, O_RDONLY | O_DIRECTORY);
    assert_true(fd >= 0);
    assert_int_equal(journal_list(fd, &list, &num, NULL), 0);
    free(list);
    close(fd);
    return num;
}

/* Asks for what comes after acked: from acked + 1 to `to`. */
static void expect(struct bench *b, int64_t acked, int64_t to)
{
    replay_free(&b->got);
    assert_int_equal(replay_read(&b->got, b->data, 7, 2, acked, &b->err), 0);
    assert_int_equal(b->got.num_ups, to - acked);
    for (size_t i = 0; i < b->got.num_ups; i++) {
        assert_int_equal(b->got.ups[i]->seq, acked + 1 + (int64_t)i);
    }
}

/* Committed segments go on the way, the folder when nothing new is left. */
static void a_journal_is_read_in_pieces_and_then_removed(void **state)
{
    (void)state;
    struct bench b;
    begin(&b);
    for (int64_t n = 0; n < 10; n++) {
        put(&b, n * 1000 + 1, n * 1000 + 1000, 2);
        write_segment(&b);
    }
    expect(&b, 2500, 2500 + REPLAY_RECORDS_MAX);
    assert_int_equal(num_segments(&b), 8);
    expect(&b, 2500, 2500 + REPLAY_RECORDS_MAX); /* what was not committed is given again */
    expect(&b, 6500, 10000);
    assert_int_equal(num_segments(&b), 4);
    expect(&b, 10000, 10000);
    assert_string_equal(b.got.loss, "");
    assert_false(fs_exists(b.reports));
    expect(&b, 10000, 10000); /* none: as good as an empty one */
    end(&b);
}

/* A record that was torn in one segment was written again in the next. */
static void a_torn_segment_is_gone_on_with_in_the_next(void **state)
{
    (void)state;
    struct bench b;
    begin(&b);
    put(&b, 1, 6, 2);
    b.text.len -= 3;
    write_segment(&b);
    put(&b, 6, 9, 2);
    write_segment(&b);
    expect(&b, 0, 9);
    expect(&b, 9, 9);
    end(&b);
}

static void what_is_missing_is_told(void **state)
{
    (void)state;
    struct bench b;
    begin(&b);
    put(&b, 1, 5, 2);
    put(&b, 8, 9, 2);
    write_segment(&b);
    expect(&b, 0, 5);
    expect(&b, 5, 5);
    assert_non_null(strstr(b.got.loss, "00000001.journal: report 8 follows on 5"));
    assert_false(fs_exists(b.reports));
    end(&b);
    begin(&b);
    put(&b, 1, 5, 2);
    b.text.data[b.text.len - 1] ^= 1;
    write_segment(&b);
    expect(&b, 0, 4);
    expect(&b, 4, 4);
    assert_non_null(strstr(b.got.loss, "00000001.journal: damaged at byte"));
    end(&b);
}

/* [7] Whatever stands in the folder, only this attempt can speak from it. */
static void reports_of_another_attempt_are_not_taken(void **state)
{
    (void)state;
    struct bench b;
    begin(&b);
    put(&b, 1, 3, 2);
    put(&b, 4, 5, 1);
    write_segment(&b);
    expect(&b, 0, 3);
    expect(&b, 3, 3);
    assert_non_null(strstr(b.got.loss, "another attempt"));
    end(&b);
}

/* A tenant's process can write below the job's folder. */
static void links_are_not_followed(void **state)
{
    (void)state;
    struct bench b;
    char other[128];
    begin(&b);
    put(&b, 1, 3, 2);
    write_segment(&b);
    snprintf(other, sizeof other, "%s/other", b.data);
    assert_int_equal(rename(b.reports, other), 0);
    assert_int_equal(symlink(other, b.reports), 0);
    expect(&b, 0, 0);
    assert_int_equal(unlink(b.reports), 0);
    assert_int_equal(rename(other, b.reports), 0);
    snprintf(other, sizeof other, "%s/elsewhere", b.data);
    assert_int_equal(rename(b.logs, other), 0);
    assert_int_equal(symlink(other, b.logs), 0);
    expect(&b, 0, 0);
    snprintf(b.reports, sizeof b.reports, "%s/" JOURNAL_FOLDER, other);
    assert_int_equal(num_segments(&b), 1);
    end(&b);
}

/* [9] A disk that doesn't answer now proves nothing: nothing is given up or removed. */
static void what_cannot_be_read_now_is_an_error(void **state)
{
    (void)state;
    struct bench b;
    char path[256];
    begin(&b);
    put(&b, 1, 3, 2);
    write_segment(&b);
    b.segment++;
    snprintf(path, sizeof path, "%s/00000002.journal", b.reports);
    assert_int_equal(mkdir(path, 0700), 0); /* stands for what read(2) refuses */
    assert_int_equal(replay_read(&b.got, b.data, 7, 2, 0, &b.err), -1);
    assert_non_null(strstr(b.err.text, "job 7, attempt 2: 00000002.journal"));
    assert_int_equal(num_segments(&b), 2);
    end(&b);
}

/* A tenant's process can put there what it likes: it costs bounded time. */
static void a_journal_that_no_node_wrote_is_bounded(void **state)
{
    (void)state;
    struct bench b;
    char path[256];
    begin(&b);
    for (int i = 1; i <= 200; i++) {
        snprintf(path, sizeof path, "%s/%08d.journal", b.reports, i);
        int fd = open(path, O_WRONLY | O_CREAT, 0600);
        assert_true(fd >= 0);
        assert_int_equal(ftruncate(fd, 10 << 20), 0);
        close(fd);
    }
    assert_int_equal(replay_read(&b.got, b.data, 7, 2, 0, &b.err), -1);
    assert_non_null(strstr(b.err.text, "over 1024 MiB"));
    end(&b);
    begin(&b);
    for (int i = 1; i <= JOURNAL_SEGMENTS_MAX + 1; i++) {
        snprintf(path, sizeof path, "%s/x%d", b.reports, i);
        close(open(path, O_WRONLY | O_CREAT, 0600));
    }
    assert_int_equal(replay_read(&b.got, b.data, 7, 2, 0, &b.err), -1);
    assert_non_null(strstr(b.err.text, "over 4096 files"));
    end(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_journal_is_read_in_pieces_and_then_removed),
        cmocka_unit_test(a_torn_segment_is_gone_on_with_in_the_next),
        cmocka_unit_test(what_is_missing_is_told),
        cmocka_unit_test(reports_of_another_attempt_are_not_taken),
        cmocka_unit_test(links_are_not_followed),
        cmocka_unit_test(what_cannot_be_read_now_is_an_error),
        cmocka_unit_test(a_journal_that_no_node_wrote_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
