/* runtime/node/outbox over a disk that takes nothing, takes its time, or can't be read: reports go
 * on from memory, in order, up to its bound; nothing is tried for nothing, nobody waits for what
 * has come. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <string.h>

#include "base/fs.h"
#include "runtime/node/outbox_state.h"
#include "tests/deadline.h"
#include "tests/unit/outbox_bench.h"

/* ---- what it calls ----------------------------------------------------------------------------
 */

/* Linked with --wrap: the outbox's writes, which a closed gate holds; its waits without an end. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool closed;
    int num_held, num_let;
} gate = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
static _Atomic(pthread_cond_t *) watched;
static _Atomic int num_waits;

int __real_fs_write_all(int fd, const void *data, size_t len);
int __wrap_fs_write_all(int fd, const void *data, size_t len);
int __real_pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *lock);
int __wrap_pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *lock);

int __wrap_fs_write_all(int fd, const void *data, size_t len)
{
    pthread_mutex_lock(&gate.lock);
    int number = gate.closed ? ++gate.num_held : 0;
    while (gate.closed && gate.num_let < number) {
        __real_pthread_cond_wait(&gate.changed, &gate.lock);
    }
    pthread_mutex_unlock(&gate.lock);
    return __real_fs_write_all(fd, data, len);
}

int __wrap_pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *lock)
{
    if (c == atomic_load(&watched)) {
        atomic_fetch_add(&num_waits, 1);
    }
    return __real_pthread_cond_wait(c, lock);
}

/* The next writes are held until they are let through, counted from 1. */
static void close_gate(void)
{
    pthread_mutex_lock(&gate.lock);
    gate.closed = true;
    gate.num_held = gate.num_let = 0;
    pthread_mutex_unlock(&gate.lock);
}

static void let_through(int num)
{
    pthread_mutex_lock(&gate.lock);
    gate.num_let = num;
    pthread_cond_broadcast(&gate.changed);
    pthread_mutex_unlock(&gate.lock);
}

static void open_gate(void)
{
    pthread_mutex_lock(&gate.lock);
    gate.closed = false;
    pthread_cond_broadcast(&gate.changed);
    pthread_mutex_unlock(&gate.lock);
}

static int num_held(void)
{
    pthread_mutex_lock(&gate.lock);
    int num = gate.num_held;
    pthread_mutex_unlock(&gate.lock);
    return num;
}

/* As many reads of a segment fail, as a disk does it; those that have. */
static _Atomic int num_to_fail, num_unread;

int __real_journal_read(int dir_fd, const struct journal_head *want, char **out, size_t *len,
                        struct error *err);
int __wrap_journal_read(int dir_fd, const struct journal_head *want, char **out, size_t *len,
                        struct error *err);

int __wrap_journal_read(int dir_fd, const struct journal_head *want, char **out, size_t *len,
                        struct error *err)
{
    if (atomic_load(&num_unread) < atomic_load(&num_to_fail)) {
        atomic_fetch_add(&num_unread, 1);
        return error_errno(err, EIO, "read");
    }
    return __real_journal_read(dir_fd, want, out, len, err);
}

static int tear_down(void **state)
{
    atomic_store(&num_to_fail, 0);
    open_gate();
    atomic_store(&watched, NULL);
    return bench_tear_down(state);
}

/* ---- a full disk ------------------------------------------------------------------------------
 */

/* Reports go on from memory, up to its bound, and a note says so; they are on disk again, and
 * nothing is missing there, once there is room. (The window holds all that the disk takes: a
 * smaller one goes on only as the controller acknowledges, which it does here at the end.) */
static void a_full_disk_keeps_reports_in_memory(void **state)
{
    struct bench *b = *state;
    int64_t first;
    size_t num;
    begin(b, true, 1 << 16, 1 << 20);
    limit_files(3000);
    put_steps(b, 50);
    wait_for_disk(b, 50);
    outbox_rewind(b->o);
    for (int i = 0; i < 30; i++) {
        put_steps(b, 5);
    }
    int64_t seq = take_to_note(b->o, 1, "kept in memory");
    while (!outbox_is_full(b->o)) {
        put_steps(b, 100);
        assert_true(b->num_put < 100000);
    }
    int64_t last = b->num_put + 1; /* the note is one of the numbers */
    for (int64_t n = seq + 1; n <= last; n++) {
        worker_up__free_unpacked(take_numbered(b->o, n), NULL);
    }
    int64_t on_disk = last_on_disk(b, &first, &num);
    assert_true(on_disk >= 50 && on_disk < last);
    outbox_ack(b->o, on_disk / 2);
    limit_files(RLIM_INFINITY);
    wait_for_disk(b, last);
    outbox_ack(b->o, last);
    take_to_note(b->o, last + 1, "written to disk again");
    outbox_ack(b->o, last + 1);
    assert_true(outbox_is_settled(b->o));
    end(b);
}

/* Takes and acknowledges what is behind report `seq` (all steps so far), until nothing is left:
 * steps in order, and notes. Returns the number of notes. */
static int hear_all_from(struct bench *b, int64_t seq)
{
    int64_t num_steps = seq;
    int num_notes = 0;
    while (!outbox_is_settled(b->o)) {
        WorkerUp *up = take_numbered(b->o, ++seq);
        if (up->body_case == WORKER_UP__BODY_METRICS) {
            assert_int_equal(up->metrics->step, ++num_steps * 10);
        } else {
            assert_non_null(strstr(up->note->message, "disk"));
            num_notes++;
        }
        worker_up__free_unpacked(up, NULL);
        outbox_ack(b->o, seq);
    }
    assert_int_equal(num_steps, b->num_put);
    return num_notes;
}

static int hear_all(struct bench *b)
{
    return hear_all_from(b, 0);
}

/* What was spilled to disk before it was full still comes before what memory holds. */
static void a_disk_that_fills_behind_a_backlog_keeps_the_order(void **state)
{
    struct bench *b = *state;
    begin(b, true, 1 << 12, 1 << 20);
    limit_files(30000);
    put_steps(b, 500); /* many times the window */
    wait_for_disk(b, 500);
    put_steps(b, 1500);
    outbox_rewind(b->o);
    assert_true(hear_all(b) > 0);
    end(b);
}

static bool is_failing(struct outbox *o)
{
    pthread_mutex_lock(&o->lock);
    bool failing = o->failing;
    pthread_mutex_unlock(&o->lock);
    return failing;
}

/* Memory is free again once the disk takes what lay there, though the controller is still away: the
 * ranks go on. On its return it hears all. */
static void a_disk_with_room_again_takes_what_memory_held(void **state)
{
    struct bench *b = *state;
    begin(b, true, 1 << 12, 1 << 14);
    put_steps(b, 60);
    outbox_rewind(b->o);
    expect(b->o, 1, 50);
    outbox_ack(b->o, 30); /* 20 are on their way as the stream breaks */
    outbox_interrupt(b->o);
    limit_files(1);
    while (!outbox_is_full(b->o)) {
        put_steps(b, 100);
        assert_true(b->num_put < 100000);
    }
    WAIT_UNTIL(is_failing(b->o), "a write that fails");
    limit_files(RLIM_INFINITY);
    WAIT_UNTIL(b->num_wakes > 0, "room in memory");
    assert_false(outbox_is_full(b->o));
    put_steps(b, 1000);
    outbox_rewind(b->o);
    outbox_ack(b->o, 50); /* they had arrived */
    assert_true(hear_all_from(b, 50) > 0);
    end(b);
}

/* The journal's own bound is met like a full disk: memory fills, then the ranks wait; all goes on,
 * in order, as the controller hears it. */
static void a_journal_at_its_bound_fills_memory_and_keeps_the_order(void **state)
{
    struct bench *b = *state;
    int64_t first;
    size_t num;
    begin_bounded(b, true, 1 << 14, 1 << 13, 100000);
    put_steps(b, 1000);
    wait_for_disk(b, 1000);
    while (!outbox_is_full(b->o)) {
        put_steps(b, 100);
        assert_true(b->num_put < 100000);
    }
    assert_true(last_on_disk(b, &first, &num) >= 1000);
    outbox_rewind(b->o);
    hear_all(b);
    end(b);
}

/* Once all has been heard there is nothing to try again: the keeper sleeps, and takes no processor
 * from the ranks, however long the disk stays full. */
static void a_full_disk_is_left_alone_while_nothing_waits(void **state)
{
    struct bench *b = *state;
    begin(b, true, 1 << 16, 0);
    atomic_store(&watched, &b->o->work);
    limit_files(0);
    outbox_rewind(b->o);
    put_steps(b, 1);
    int64_t last = take_to_note(b->o, 1, "kept in memory");
    int before = atomic_load(&num_waits); /* from its note on, its waits end by themselves */
    outbox_ack(b->o, last);
    WAIT_UNTIL(atomic_load(&num_waits) > before, "the keeper at rest");
    end(b);
}

/* ---- a disk that can't be read ----------------------------------------------------------------
 */

/* Many times the window, all of it on disk; the next `num` reads fail. */
static void put_backlog(struct bench *b, int num)
{
    begin(b, true, 1 << 12, 1 << 14);
    put_steps(b, 2000);
    wait_for_disk(b, 2000);
    outbox_rewind(b->o);
    atomic_store(&num_unread, 0);
    atomic_store(&num_to_fail, num);
}

/* There always is one: progress has no number. */
static bool hear_one(struct outbox *o)
{
    put_progress(o, 0, 1);
    WorkerUp *up = take(o);
    outbox_ack(o, up->seq);
    worker_up__free_unpacked(up, NULL);
    return true;
}

/* An error of reading that passes costs the attempt nothing, and no report. */
static void a_read_error_that_passes_is_tried_again(void **state)
{
    struct bench *b = *state;
    char why[512];
    put_backlog(b, 3);
    hear_all(b);
    assert_int_equal(atomic_load(&num_unread), 3);
    assert_false(outbox_is_broken(b->o, why, sizeof why));
    end(b);
}

/* Nobody waits for ever for a disk that stays unreadable. */
static void a_journal_that_stays_unreadable_is_given_up_in_words(void **state)
{
    struct bench *b = *state;
    char why[512];
    put_backlog(b, INT_MAX);
    WAIT_UNTIL(hear_one(b->o) && outbox_is_broken(b->o, why, sizeof why),
               "word that the journal is given up");
    assert_int_equal(atomic_load(&num_unread), 8);
    assert_non_null(strstr(why, "can't be read back in 8 tries: "));
    assert_non_null(strstr(why, "Input/output error"));
    end(b);
}

/* ---- a slow disk ------------------------------------------------------------------------------
 */

/* Memory that fills while a write lasts, and is free again after it: whoever saw it full hears of
 * the room. */
static void room_that_one_write_makes_is_told(void **state)
{
    struct bench *b = *state;
    begin(b, true, 1 << 12, 0);
    close_gate();
    put_steps(b, 1);
    WAIT_UNTIL(num_held() == 1, "a segment's head to be written");
    put_steps(b, 20000); /* most of what memory may hold */
    assert_false(outbox_is_full(b->o));
    let_through(1);
    WAIT_UNTIL(num_held() == 2, "the first report to be written");
    let_through(2);
    WAIT_UNTIL(num_held() == 3, "thousands to be written");
    while (!outbox_is_full(b->o)) {
        put_steps(b, 100);
        assert_true(b->num_put < 100000);
    }
    assert_int_equal(b->num_wakes, 0);
    open_gate();
    WAIT_UNTIL(b->num_wakes > 0, "word of the room that was made");
    assert_false(outbox_is_full(b->o));
    end(b);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, bench_set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(a_full_disk_keeps_reports_in_memory),
        T(a_disk_that_fills_behind_a_backlog_keeps_the_order),
        T(a_disk_with_room_again_takes_what_memory_held),
        T(a_journal_at_its_bound_fills_memory_and_keeps_the_order),
        T(a_full_disk_is_left_alone_while_nothing_waits),
        T(room_that_one_write_makes_is_told),
        T(a_read_error_that_passes_is_tried_again),
        T(a_journal_that_stays_unreadable_is_given_up_in_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
