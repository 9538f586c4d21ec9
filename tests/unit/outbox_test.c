/* runtime/node/outbox: what must arrive arrives once and in order, through broken streams, memory
 * that is too small, disks that are full; and stands on disk when the process is gone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "proto/journal.h"
#include "runtime/node/outbox.h"

#define WAIT_MS 60000

struct bench {
    char dir[64], reports[80];
    struct outbox *o;
    int64_t num_put;
};

static void begin_bounded(struct bench *b, bool disk, size_t window_bytes, size_t segment_bytes,
                          int64_t disk_bytes)
{
    *b = (struct bench){0};
    snprintf(b->dir, sizeof b->dir, "/tmp/tandem-outbox-test-XXXXXX");
    assert_non_null(mkdtemp(b->dir));
    snprintf(b->reports, sizeof b->reports, "%s/reports", b->dir);
    struct outbox_options options = {.job_id = 7,
                                     .attempt = 2,
                                     .max_bytes = 1 << 20,
                                     .window_bytes = window_bytes,
                                     .dir = disk ? b->reports : NULL,
                                     .disk_bytes = disk_bytes,
                                     .segment_bytes = segment_bytes};
    assert_int_equal(outbox_new(&b->o, &options, NULL), 0);
}

static void begin(struct bench *b, bool disk, size_t window_bytes, size_t segment_bytes)
{
    begin_bounded(b, disk, window_bytes, segment_bytes, 1 << 28);
}

static void end(struct bench *b)
{
    outbox_free(b->o);
    assert_int_equal(fs_remove_tree(b->dir, NULL), 0);
}

/* Steps 10, 20, ...: number n is step 10 n. */
static void put_steps(struct bench *b, int num)
{
    for (int i = 0; i < num; i++) {
        StepMetrics m = STEP_METRICS__INIT;
        m.has_step = 1;
        m.step = ++b->num_put * 10;
        WorkerUp up = WORKER_UP__INIT;
        up.body_case = WORKER_UP__BODY_METRICS;
        up.metrics = &m;
        outbox_put(b->o, &up);
    }
}

static void put_progress(struct outbox *o, int32_t rank, int64_t step)
{
    Progress p = PROGRESS__INIT;
    p.has_rank = p.has_step = 1;
    p.rank = rank;
    p.step = step;
    outbox_put_progress(o, &p);
}

static void expect(struct outbox *o, int64_t from, int64_t to)
{
    for (int64_t seq = from; seq <= to; seq++) {
        WorkerUp *up = outbox_take(o);
        assert_non_null(up);
        assert_int_equal(up->job_id, 7);
        assert_int_equal(up->attempt, 2);
        assert_int_equal(up->seq, seq);
        assert_int_equal(up->metrics->step, seq * 10);
        worker_up__free_unpacked(up, NULL);
    }
}

/* The records on disk follow each other; returns the last number, 0 = no journal. */
static int64_t last_on_disk(const struct bench *b, int64_t *first, size_t *num_segments)
{
    struct journal_head want = {.job_id = 7, .attempt = 2};
    int32_t *list;
    int64_t last = 0;
    int fd = open(b->reports, O_RDONLY | O_DIRECTORY);
    *first = 0;
    *num_segments = 0;
    if (fd < 0) {
        return 0;
    }
    assert_int_equal(journal_list(fd, &list, num_segments, NULL), 0);
    for (size_t i = 0; i < *num_segments; i++) {
        char *text;
        size_t len, at = JOURNAL_HEAD_BYTES;
        struct journal_record r;
        want.segment = list[i];
        if (journal_read(fd, &want, &text, &len, NULL) != 0) {
            continue; /* dropped, or begun, since */
        }
        while (journal_take_record(text, len, &at, &r, NULL) == 1) {
            assert_true(!last || r.seq == last + 1);
            *first = *first ? *first : r.seq;
            last = r.seq;
        }
        free(text);
    }
    free(list);
    close(fd);
    return last;
}

static void wait_for_disk(const struct bench *b, int64_t last)
{
    int64_t until = clock_mono_ms() + WAIT_MS, first;
    size_t num;
    while (last_on_disk(b, &first, &num) < last) {
        assert_true(clock_mono_ms() < until);
        clock_sleep_ms(1);
    }
}

/* ---- streams ----------------------------------------------------------------------------------
 */

/* What wasn't acknowledged goes again on the next stream, in order, and only that. */
static void it_sends_again_what_was_not_acknowledged(void **state)
{
    (void)state;
    struct bench b;
    for (int disk = 0; disk < 2; disk++) {
        begin(&b, disk, 1 << 16, 0);
        put_steps(&b, 5);
        assert_null(outbox_take(b.o)); /* no stream yet */
        outbox_rewind(b.o);
        expect(b.o, 1, 4);
        outbox_ack(b.o, 2);
        outbox_interrupt(b.o);
        assert_null(outbox_take(b.o));
        outbox_rewind(b.o);
        expect(b.o, 3, 3);
        outbox_ack(b.o, 4); /* carried by the stream before */
        expect(b.o, 5, 5);
        assert_int_equal(outbox_acked_seq(b.o), 4);
        assert_false(outbox_is_settled(b.o));
        outbox_ack(b.o, 1000); /* never sent: as if it were the last that was */
        assert_true(outbox_is_settled(b.o));
        assert_int_equal(outbox_acked_seq(b.o), 5);
        outbox_ack(b.o, 3);
        assert_int_equal(outbox_acked_seq(b.o), 5);
        put_steps(&b, 1);
        assert_false(outbox_is_settled(b.o));
        expect(b.o, 6, 6);
        end(&b);
    }
}

static void progress_is_merged_and_never_numbered(void **state)
{
    (void)state;
    struct bench b;
    begin(&b, true, 1 << 16, 0);
    for (int64_t i = 1; i <= 1000; i++) {
        put_progress(b.o, 0, i);
        put_progress(b.o, 3, i);
    }
    outbox_rewind(b.o);
    for (int i = 0; i < 2; i++) {
        WorkerUp *up = outbox_take(b.o);
        assert_int_equal(up->seq, 0);
        assert_int_equal(up->progress->rank, i * 3);
        assert_int_equal(up->progress->step, 1000);
        worker_up__free_unpacked(up, NULL);
    }
    put_progress(b.o, 300, 1); /* no such rank: passed over */
    put_steps(&b, 1);
    expect(b.o, 1, 1);
    outbox_ack(b.o, 1);
    assert_true(outbox_is_settled(b.o));
    end(&b);
}

static void it_says_when_it_is_full(void **state)
{
    (void)state;
    struct bench b;
    begin(&b, false, 1 << 16, 0);
    while (!outbox_is_full(b.o)) {
        put_steps(&b, 1);
        assert_true(b.num_put < 100000);
    }
    outbox_rewind(b.o);
    expect(b.o, 1, b.num_put);
    outbox_ack(b.o, b.num_put / 2);
    assert_false(outbox_is_full(b.o));
    end(&b);
}

/* ---- disk -------------------------------------------------------------------------------------
 */

/* Before it can be sent, a report is on disk: a process that is killed leaves it there. */
static void what_can_be_sent_is_on_disk(void **state)
{
    (void)state;
    struct bench b;
    int64_t first;
    size_t num;
    begin(&b, true, 1 << 16, 0);
    outbox_rewind(b.o);
    for (int64_t i = 1; i <= 200; i++) {
        put_steps(&b, 1);
        expect(b.o, i, i);
        assert_int_equal(last_on_disk(&b, &first, &num), i);
    }
    struct stat st;
    char path[128];
    snprintf(path, sizeof path, "%s/00000001.journal", b.reports);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    end(&b);
}

/* Where tandem-node has a user of its own, tandemd reads as a member of the folder's group. */
static void a_shared_folder_shares_its_journal(void **state)
{
    (void)state;
    struct bench b;
    struct stat st;
    char path[128];
    mode_t mask = umask(007); /* as tandem-spawn sets it */
    begin(&b, true, 1 << 16, 0);
    assert_int_equal(chmod(b.dir, 02770), 0);
    put_steps(&b, 1);
    wait_for_disk(&b, 1);
    assert_int_equal(stat(b.reports, &st), 0);
    assert_int_equal(st.st_mode & 07777, 02770);
    snprintf(path, sizeof path, "%s/00000001.journal", b.reports);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0660);
    umask(mask);
    end(&b);
}

/* A controller that is away costs disk, not memory; on its return it hears all, in order, also
 * through streams that break meanwhile; disk is given back as it acknowledges. */
static void reports_beyond_the_window_come_back_from_disk(void **state)
{
    (void)state;
    enum { NUM = 50000 };
    struct bench b;
    int64_t first, until = clock_mono_ms() + WAIT_MS;
    size_t before, after;
    begin(&b, true, 1 << 16, 1 << 14);
    while (b.num_put < NUM) { /* 50,000 parcels take five times the bound of memory */
        put_steps(&b, outbox_is_full(b.o) ? 0 : 100);
        assert_true(clock_mono_ms() < until);
    }
    wait_for_disk(&b, NUM);
    assert_int_equal(last_on_disk(&b, &first, &before), NUM);
    assert_int_equal(first, 1);
    assert_true(before > 2);
    int64_t acked = 0;
    for (int stream = 0; acked < NUM; stream++) {
        outbox_rewind(b.o);
        int64_t to = acked + 700 < NUM ? acked + 700 : NUM;
        for (int64_t seq = acked; seq < to; seq += 70) {
            expect(b.o, seq + 1, seq + 70 < to ? seq + 70 : to);
            outbox_ack(b.o, seq + 35 < to ? seq + 35 : to);
        }
        acked = outbox_acked_seq(b.o);
        outbox_interrupt(b.o);
        if (stream == 10) {
            put_steps(&b, 1); /* goes behind all that waits on disk */
        }
    }
    outbox_rewind(b.o);
    expect(b.o, outbox_acked_seq(b.o) + 1, NUM + 1);
    outbox_ack(b.o, NUM + 1);
    assert_true(outbox_is_settled(b.o));
    do {
        assert_int_equal(last_on_disk(&b, &first, &after), NUM + 1);
        assert_true(clock_mono_ms() < until);
    } while (after > 1);
    outbox_free(b.o);
    assert_false(fs_exists(b.reports)); /* nobody needs it any more */
    assert_int_equal(fs_remove_tree(b.dir, NULL), 0);
}

/* A node that must leave unheard leaves all that wasn't acknowledged. */
static void what_was_not_acknowledged_stays_on_disk(void **state)
{
    (void)state;
    struct bench b;
    int64_t first;
    size_t num;
    begin(&b, true, 1 << 12, 1 << 12);
    put_steps(&b, 3000);
    outbox_rewind(b.o);
    expect(b.o, 1, 20);
    outbox_ack(b.o, 20);
    outbox_free(b.o);
    assert_int_equal(last_on_disk(&b, &first, &num), 3000);
    assert_true(first <= 21);
    assert_int_equal(fs_remove_tree(b.dir, NULL), 0);
}

/* The rest of the journal can't be given away for what is in it. */
static void a_journal_that_is_damaged_under_it_is_told(void **state)
{
    (void)state;
    struct bench b;
    char why[512], path[128];
    int64_t until = clock_mono_ms() + WAIT_MS;
    begin(&b, true, 1 << 12, 1 << 20);
    put_steps(&b, 1000);
    wait_for_disk(&b, 1000);
    snprintf(path, sizeof path, "%s/00000001.journal", b.reports);
    int fd = open(path, O_RDWR);
    assert_int_equal(pwrite(fd, "xxxxxxxx", 8, 20000), 8);
    close(fd);
    outbox_rewind(b.o);
    for (int64_t seq = 1; !outbox_is_broken(b.o, why, sizeof why); seq++) {
        put_progress(b.o, 0, 1);
        WorkerUp *up = outbox_take(b.o);
        outbox_ack(b.o, up->seq);
        worker_up__free_unpacked(up, NULL);
        assert_true(clock_mono_ms() < until);
    }
    assert_non_null(strstr(why, "can't be read back"));
    assert_non_null(strstr(why, "damaged at byte"));
    end(&b);
}

/* ---- a full disk ------------------------------------------------------------------------------
 */

static void limit_files(rlim_t bytes)
{
    struct rlimit r;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &r), 0);
    r.rlim_cur = bytes < r.rlim_max ? bytes : r.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &r), 0);
}

static WorkerUp *take_numbered(struct outbox *o, int64_t seq)
{
    WorkerUp *up = outbox_take(o);
    assert_non_null(up);
    assert_int_equal(up->seq, seq);
    return up;
}

/* Takes numbers from .. until a note that says `part`; returns its number. */
static int64_t take_to_note(struct outbox *o, int64_t from, const char *part)
{
    for (int64_t seq = from;; seq++) {
        WorkerUp *up = take_numbered(o, seq);
        bool is_note = up->body_case == WORKER_UP__BODY_NOTE && strstr(up->note->message, part);
        worker_up__free_unpacked(up, NULL);
        if (is_note) {
            return seq;
        }
        assert_true(seq < from + 100000);
    }
}

/* Reports go on from memory, up to its bound, and a note says so; they are on disk again, and
 * nothing is missing there, once there is room. */
static void a_full_disk_keeps_reports_in_memory(void **state)
{
    (void)state;
    struct bench b;
    int64_t first, until = clock_mono_ms() + WAIT_MS;
    size_t num;
    signal(SIGXFSZ, SIG_IGN);
    begin(&b, true, 1 << 12, 1 << 20);
    limit_files(3000);
    outbox_rewind(b.o);
    for (int i = 0; i < 40; i++) {
        put_steps(&b, 5);
    }
    int64_t seq = take_to_note(b.o, 1, "kept in memory");
    while (!outbox_is_full(b.o)) {
        put_steps(&b, 100);
        assert_true(clock_mono_ms() < until);
    }
    int64_t last = b.num_put + 1; /* the note is one of the numbers */
    for (int64_t n = seq + 1; n <= last; n++) {
        worker_up__free_unpacked(take_numbered(b.o, n), NULL);
    }
    int64_t on_disk = last_on_disk(&b, &first, &num);
    assert_true(on_disk < last);
    outbox_ack(b.o, on_disk / 2);
    limit_files(RLIM_INFINITY);
    wait_for_disk(&b, last);
    outbox_ack(b.o, last);
    take_to_note(b.o, last + 1, "written to disk again");
    outbox_ack(b.o, last + 1);
    assert_true(outbox_is_settled(b.o));
    end(&b);
}

/* What was spilled to disk before it was full still comes before what memory holds. */
static void a_disk_that_fills_behind_a_backlog_keeps_the_order(void **state)
{
    (void)state;
    struct bench b;
    signal(SIGXFSZ, SIG_IGN);
    begin(&b, true, 1 << 12, 1 << 20);
    limit_files(30000);
    put_steps(&b, 2000);
    outbox_rewind(b.o);
    int64_t note = 0;
    for (int64_t seq = 1; seq <= 2001; seq++) {
        WorkerUp *up = take_numbered(b.o, seq);
        note = up->body_case == WORKER_UP__BODY_NOTE ? seq : note;
        if (up->body_case == WORKER_UP__BODY_METRICS) {
            assert_int_equal(up->metrics->step, (seq - (note ? 1 : 0)) * 10);
        }
        worker_up__free_unpacked(up, NULL);
        outbox_ack(b.o, seq);
    }
    assert_true(note > 0);
    assert_true(outbox_is_settled(b.o));
    limit_files(RLIM_INFINITY);
    end(&b);
}

/* The journal's own bound is met like a full disk: memory fills, then the ranks wait; all goes on,
 * in order, as the controller hears it. */
static void a_journal_at_its_bound_fills_memory_and_keeps_the_order(void **state)
{
    (void)state;
    struct bench b;
    int64_t until = clock_mono_ms() + WAIT_MS, num_steps = 0, seq = 0, first;
    size_t num;
    begin_bounded(&b, true, 1 << 14, 1 << 13, 100000);
    while (!outbox_is_full(b.o)) {
        put_steps(&b, 100);
        assert_true(clock_mono_ms() < until);
        clock_sleep_ms(1); /* lets the disk fill before memory does */
    }
    assert_true(last_on_disk(&b, &first, &num) > 0);
    outbox_rewind(b.o);
    while (!outbox_is_settled(b.o)) {
        WorkerUp *up = take_numbered(b.o, ++seq);
        if (up->body_case == WORKER_UP__BODY_METRICS) {
            assert_int_equal(up->metrics->step, ++num_steps * 10);
        } else {
            assert_non_null(strstr(up->note->message, "disk"));
        }
        worker_up__free_unpacked(up, NULL);
        outbox_ack(b.o, seq);
    }
    assert_int_equal(num_steps, b.num_put);
    end(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_sends_again_what_was_not_acknowledged),
        cmocka_unit_test(progress_is_merged_and_never_numbered),
        cmocka_unit_test(it_says_when_it_is_full),
        cmocka_unit_test(what_can_be_sent_is_on_disk),
        cmocka_unit_test(a_shared_folder_shares_its_journal),
        cmocka_unit_test(reports_beyond_the_window_come_back_from_disk),
        cmocka_unit_test(what_was_not_acknowledged_stays_on_disk),
        cmocka_unit_test(a_journal_that_is_damaged_under_it_is_told),
        cmocka_unit_test(a_full_disk_keeps_reports_in_memory),
        cmocka_unit_test(a_journal_at_its_bound_fills_memory_and_keeps_the_order),
        cmocka_unit_test(a_disk_that_fills_behind_a_backlog_keeps_the_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
