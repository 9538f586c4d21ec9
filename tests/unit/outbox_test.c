/* runtime/node/outbox: what must arrive arrives once and in order, through broken streams, memory
 * that is too small; and stands on disk when the process is gone. (Full disks: outbox_full_test.c.)
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "runtime/node/spool.h"
#include "tests/deadline.h"
#include "tests/unit/outbox_bench.h"

/* ---- streams ----------------------------------------------------------------------------------
 */

/* What wasn't acknowledged goes again on the next stream, in order, and only that. */
static void it_sends_again_what_was_not_acknowledged(void **state)
{
    struct bench *b = *state;
    for (int disk = 0; disk < 2; disk++) {
        begin(b, disk, 1 << 16, 0);
        put_steps(b, 5);
        assert_null(outbox_take(b->o)); /* no stream yet */
        outbox_rewind(b->o);
        expect(b->o, 1, 4);
        outbox_ack(b->o, 2);
        outbox_interrupt(b->o);
        assert_null(outbox_take(b->o));
        outbox_rewind(b->o);
        expect(b->o, 3, 3);
        outbox_ack(b->o, 4); /* carried by the stream before */
        expect(b->o, 5, 5);
        assert_int_equal(outbox_acked_seq(b->o), 4);
        assert_false(outbox_is_settled(b->o));
        outbox_ack(b->o, 1000); /* never sent: as if it were the last that was */
        assert_true(outbox_is_settled(b->o));
        assert_int_equal(outbox_acked_seq(b->o), 5);
        outbox_ack(b->o, 3);
        assert_int_equal(outbox_acked_seq(b->o), 5);
        put_steps(b, 1);
        assert_false(outbox_is_settled(b->o));
        expect(b->o, 6, 6);
        end(b);
    }
}

static void progress_is_merged_and_never_numbered(void **state)
{
    struct bench *b = *state;
    begin(b, true, 1 << 16, 0);
    for (int64_t i = 1; i <= 1000; i++) {
        put_progress(b->o, 0, i);
        put_progress(b->o, 3, i);
    }
    outbox_rewind(b->o);
    for (int i = 0; i < 2; i++) {
        WorkerUp *up = take_numbered(b->o, 0);
        assert_int_equal(up->progress->rank, i * 3);
        assert_int_equal(up->progress->step, 1000);
        worker_up__free_unpacked(up, NULL);
    }
    put_progress(b->o, 300, 1); /* no such rank: passed over */
    put_steps(b, 1);
    expect(b->o, 1, 1);
    outbox_ack(b->o, 1);
    assert_true(outbox_is_settled(b->o));
    end(b);
}

/* ... and when it isn't any more: whoever waits for that is told. */
static void it_says_when_it_is_full(void **state)
{
    struct bench *b = *state;
    begin(b, false, 1 << 16, 0);
    while (!outbox_is_full(b->o)) {
        put_steps(b, 1);
        assert_true(b->num_put < 100000);
    }
    outbox_rewind(b->o);
    expect(b->o, 1, b->num_put);
    assert_int_equal(b->num_wakes, 0);
    outbox_ack(b->o, b->num_put / 2);
    assert_int_equal(b->num_wakes, 1);
    assert_false(outbox_is_full(b->o));
    end(b);
}

/* ---- disk -------------------------------------------------------------------------------------
 */

/* Before it can be sent, a report is on disk: a process that is killed leaves it there. */
static void what_can_be_sent_is_on_disk(void **state)
{
    struct bench *b = *state;
    int64_t first;
    size_t num;
    begin(b, true, 1 << 16, 0);
    outbox_rewind(b->o);
    for (int64_t i = 1; i <= 200; i++) {
        put_steps(b, 1);
        expect(b->o, i, i);
        assert_int_equal(last_on_disk(b, &first, &num), i);
    }
    struct stat st;
    char path[128];
    snprintf(path, sizeof path, "%s/00000001.journal", b->reports);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    end(b);
}

/* Where tandem-node has a user of its own, tandemd reads as a member of the folder's group. */
static void a_shared_folder_shares_its_journal(void **state)
{
    struct bench *b = *state;
    struct stat st;
    char path[128];
    mode_t mask = umask(007); /* as tandem-spawn sets it */
    begin(b, true, 1 << 16, 0);
    assert_int_equal(chmod(b->dir, 02770), 0);
    put_steps(b, 1);
    wait_for_disk(b, 1);
    umask(mask);
    assert_int_equal(stat(b->reports, &st), 0);
    assert_int_equal(st.st_mode & 07777, 02770);
    snprintf(path, sizeof path, "%s/00000001.journal", b->reports);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0660);
    end(b);
}

/* A controller that is away costs disk, not memory; on its return it hears all, in order, also
 * through streams that break meanwhile; disk is given back as it acknowledges. */
static void reports_beyond_the_window_come_back_from_disk(void **state)
{
    enum { NUM = 50000 };
    struct bench *b = *state;
    int64_t first;
    size_t before, after;
    begin(b, true, 1 << 16, 1 << 14);
    while (b->num_put < NUM) { /* 50,000 parcels take five times the bound of memory */
        WAIT_UNTIL(!outbox_is_full(b->o), "room behind report %lld", (long long)b->num_put);
        put_steps(b, 100);
    }
    wait_for_disk(b, NUM);
    assert_int_equal(last_on_disk(b, &first, &before), NUM);
    assert_int_equal(first, 1);
    assert_true(before > 2);
    int64_t acked = 0;
    for (int stream = 0; acked < NUM; stream++) {
        outbox_rewind(b->o);
        int64_t to = acked + 700 < NUM ? acked + 700 : NUM;
        for (int64_t seq = acked; seq < to; seq += 70) {
            expect(b->o, seq + 1, seq + 70 < to ? seq + 70 : to);
            outbox_ack(b->o, seq + 35 < to ? seq + 35 : to);
        }
        acked = outbox_acked_seq(b->o);
        outbox_interrupt(b->o);
        if (stream == 10) {
            put_steps(b, 1); /* goes behind all that waits on disk */
        }
    }
    outbox_rewind(b->o);
    expect(b->o, outbox_acked_seq(b->o) + 1, NUM + 1);
    outbox_ack(b->o, NUM + 1);
    assert_true(outbox_is_settled(b->o));
    WAIT_UNTIL(last_on_disk(b, &first, &after) == NUM + 1 && after == 1,
               "the end of segments that were heard: %zu are there", after);
    end(b);
    assert_false(fs_exists(b->reports)); /* nobody needs it any more */
}

/* A node that must leave unheard leaves all that wasn't acknowledged. */
static void what_was_not_acknowledged_stays_on_disk(void **state)
{
    struct bench *b = *state;
    int64_t first;
    size_t num;
    begin(b, true, 1 << 12, 1 << 12);
    put_steps(b, 3000);
    outbox_rewind(b->o);
    expect(b->o, 1, 20);
    outbox_ack(b->o, 20);
    end(b);
    assert_int_equal(last_on_disk(b, &first, &num), 3000);
    assert_true(first <= 21);
}

static bool note_first(void *arg, const struct journal_record *r)
{
    *(int64_t *)arg = r->seq;
    return false;
}

/* The journal is read on from where the last reader stopped, or anew by who asks for earlier. */
static void a_journal_is_read_from_any_number(void **state)
{
    struct bench *b = *state;
    struct spool *s;
    struct buf records = {0};
    begin(b, false, 1 << 12, 0);
    struct spool_options options = {
        .dir = b->reports, .job_id = 7, .attempt = 2, .max_bytes = 1 << 20, .segment_bytes = 400};
    assert_int_equal(spool_new(&s, &options, NULL), 0);
    for (int64_t seq = 1; seq <= 100; seq++) {
        buf_clear(&records);
        journal_put_record(&records, seq, "report", 6);
        assert_int_equal(spool_append(s, &records, seq, NULL), 0);
    }
    static const int64_t after[] = {0, 0, 3, 4, 1, 50, 52, 51, 98, 99, 20, 0};
    for (size_t i = 0; i < sizeof after / sizeof *after; i++) {
        int64_t first = 0;
        assert_int_equal(spool_read(s, after[i], note_first, &first, NULL), 0);
        assert_int_equal(first, after[i] + 1);
    }
    spool_remove(s);
    buf_free(&records);
    end(b);
}

/* The rest of the journal can't be given away for what is in it. */
static void a_journal_that_is_damaged_under_it_is_told(void **state)
{
    struct bench *b = *state;
    char why[512], path[128];
    int64_t until_ms = clock_mono_ms() + DEADLINE_S * 1000;
    begin(b, true, 1 << 12, 1 << 20);
    put_steps(b, 1000);
    wait_for_disk(b, 1000);
    snprintf(path, sizeof path, "%s/00000001.journal", b->reports);
    int fd = open(path, O_RDWR);
    assert_int_equal(pwrite(fd, "xxxxxxxx", 8, 20000), 8);
    close(fd);
    outbox_rewind(b->o);
    while (!outbox_is_broken(b->o, why, sizeof why)) {
        put_progress(b->o, 0, 1);
        WorkerUp *up = take(b->o);
        outbox_ack(b->o, up->seq);
        worker_up__free_unpacked(up, NULL);
        if (clock_mono_ms() >= until_ms) {
            fail_msg("a minute has passed without word of the damage; %lld are acknowledged",
                     (long long)outbox_acked_seq(b->o));
        }
    }
    assert_non_null(strstr(why, "can't be read back"));
    assert_non_null(strstr(why, "damaged at byte"));
    end(b);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, bench_set_up, bench_tear_down)
    const struct CMUnitTest tests[] = {
        T(it_sends_again_what_was_not_acknowledged),
        T(progress_is_merged_and_never_numbered),
        T(it_says_when_it_is_full),
        T(what_can_be_sent_is_on_disk),
        T(a_shared_folder_shares_its_journal),
        T(reports_beyond_the_window_come_back_from_disk),
        T(what_was_not_acknowledged_stays_on_disk),
        T(a_journal_is_read_from_any_number),
        T(a_journal_that_is_damaged_under_it_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
