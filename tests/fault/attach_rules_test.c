/* tandem-node and the rules between it and its controller: who may say what for which attempt, how
 * long a lease holds, what stands on disk when it is killed. */
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
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "proto/journal.h"
#include "runtime/node/proctree.h"
#include "tests/fault/attach_bench.h"

/* ---- who may say what ---- */

static void send_cancel(struct controller *t, bool has_attempt, int32_t attempt)
{
    CancelAttempt cancel = CANCEL_ATTEMPT__INIT;
    WorkerDown down = WORKER_DOWN__INIT;
    down.body_case = WORKER_DOWN__BODY_CANCEL;
    down.cancel = &cancel;
    down.has_attempt = has_attempt;
    down.attempt = attempt;
    pthread_mutex_lock(&t->lock);
    call_send(t->call, &down.base);
    pthread_mutex_unlock(&t->lock);
}

static void send_stop(struct controller *t)
{
    StopAtStep stop = STOP_AT_STEP__INIT;
    WorkerDown down = WORKER_DOWN__INIT;
    down.body_case = WORKER_DOWN__BODY_STOP_AT_STEP;
    down.stop_at_step = &stop;
    send_down(t, &down);
}

/* [7] A command for another attempt, or for none, does nothing to this one. */
static void commands_for_another_attempt_are_refused(void **state)
{
    (void)state;
    struct controller t;
    begin(&t, 2, "obey", "obey");
    controller_serve(&t);
    node_start(&t, "the-token");
    wait_for_log(&t, "node.log", "starting");
    send_cancel(&t, true, 1);
    send_cancel(&t, true, 3);
    send_cancel(&t, false, 0);
    wait_for_log(&t, "node.log", "a command for attempt 1 refused: this is attempt 2");
    wait_for_log(&t, "node.log", "a command for attempt 3 refused");
    wait_for_log(&t, "node.log", "a command for attempt 0 refused");
    send_stop(&t);
    assert_int_equal(node_wait(&t), 0);
    assert_true(the_end(&t)->paused && !the_end(&t)->cancelled);
    finish(&t);
}

/* A Start that is said again, because its stream broke, starts no second gang. */
static void a_start_that_comes_twice_starts_one_gang(void **state)
{
    (void)state;
    struct controller t;
    begin(&t, 2, "obey", "obey");
    controller_serve(&t);
    node_start(&t, "the-token");
    wait_for_log(&t, "node.log", "starting");
    send_start(&t);
    send_start(&t);
    send_stop(&t);
    assert_int_equal(node_wait(&t), 0);
    assert_int_equal(t.num_ups, 3); /* two exits and the end */
    assert_true(the_end(&t)->paused);
    finish(&t);
}

/* An acknowledgement of what was never sent doesn't make that unneeded. */
static void an_acknowledgement_of_the_future_loses_nothing(void **state)
{
    (void)state;
    struct controller t;
    begin(&t, 1, "obey", "");
    controller_serve(&t);
    node_start(&t, "the-token");
    wait_for_log(&t, "node.log", "starting");
    send_ack(&t, 1000000);
    send_ack(&t, -5);
    wait_for_log(&t, "node.log", "acknowledges report 1000000; ");
    send_stop(&t);
    assert_int_equal(node_wait(&t), 0);
    assert_true(the_end(&t)->paused);
    for (int i = 0; i < t.num_ups; i++) {
        assert_int_equal(t.ups[i]->seq, i + 1);
    }
    finish(&t);
}

/* ---- what communicators are made from ---- */

static void expect_in_no_file(const struct controller *t, const char *words)
{
    char line[256], found[256] = "";
    snprintf(line, sizeof line, "grep -rl -e '%s' %s", words, t->dir);
    FILE *f = popen(line, "r");
    assert_non_null(f);
    bool any = fgets(found, sizeof found, f) != NULL;
    pclose(f);
    if (any) {
        fail_msg("%s stands in %s", words, found);
    }
}

/* What rank 0 says, and nothing else, comes to all ranks; also when the answer is lost twice. It
 * isn't written down anywhere. */
static void the_id_of_rank_0_comes_to_all_ranks_and_stays_secret(void **state)
{
    (void)state;
    for (int lost = 0; lost <= 2; lost += 2) {
        struct controller t;
        begin(&t, 2, "find", "find");
        t.num_ids_lost = lost;
        t.mute = true; /* the journal stays */
        controller_serve(&t);
        node_start(&t, "the-token");
        wait_for_ups(&t, 3, lost + 1);
        wait_for_log(&t, "node.log", "rank 0 sent an id for communicators, which isn't taken: it");
        wait_for_log(&t, "node.log", "which isn't taken: there is one already");
        wait_for_log(&t, "node.log", "rank 1 sent an id for communicators, which isn't taken: ran");
        assert_true(the_end(&t)->finished);
        expect_in_no_file(&t, "the-secret-of");
        send_ack(&t, 3);
        assert_int_equal(node_wait(&t), 0);
        assert_int_equal(t.num_ids, lost + 1);
        finish(&t);
    }
}

/* ---- what is left on disk ---- */

/* Checks the records of a segment, which follow on *last. */
static void read_segment(const char *text, size_t len, int64_t *last, int *ends)
{
    size_t at = JOURNAL_HEAD_BYTES;
    struct journal_record r;
    while (journal_take_record(text, len, &at, &r, NULL) == 1) {
        WorkerUp *up = worker_up__unpack(NULL, r.len, r.body);
        assert_non_null(up);
        assert_int_equal(up->seq, r.seq);
        assert_int_equal(up->attempt, 2);
        assert_int_equal(r.seq, ++*last);
        *ends += up->body_case == WORKER_UP__BODY_ATTEMPT_END;
        worker_up__free_unpacked(up, NULL);
    }
}

/* The numbers in the journal, from 1 on; *ends: how many of them are ends of the attempt. */
static int64_t read_journal(const struct controller *t, int *ends)
{
    char dir[128];
    int64_t last = 0;
    int32_t *list;
    size_t num;
    snprintf(dir, sizeof dir, "%s/logs/attempt-2/" JOURNAL_FOLDER, t->dir);
    int fd = open(dir, O_RDONLY | O_DIRECTORY);
    *ends = 0;
    if (fd < 0) {
        return 0;
    }
    assert_int_equal(journal_list(fd, &list, &num, NULL), 0);
    for (size_t i = 0; i < num; i++) {
        struct journal_head want = {.job_id = 7, .attempt = 2, .segment = list[i]};
        char *text;
        size_t len;
        assert_int_equal(journal_read(fd, &want, &text, &len, NULL), 0);
        read_segment(text, len, &last, ends);
        free(text);
    }
    free(list);
    close(fd);
    return last;
}

/* [5] The gang has ended, nobody has heard it, and tandem-node is killed: it stands on disk. */
static void a_result_outlives_a_killed_node(void **state)
{
    (void)state;
    struct controller t;
    int status, ends;
    begin(&t, 2, "talk 300", "done");
    t.mute = true;
    controller_serve(&t);
    node_start(&t, "the-token");
    wait_for_ups(&t, 303, 1);
    assert_int_equal(kill(t.node, SIGKILL), 0);
    assert_int_equal(waitpid(t.node, &status, 0), t.node);
    assert_int_equal(read_journal(&t, &ends), 303);
    assert_int_equal(ends, 1);
    finish(&t);
}

static long rss_kib(pid_t pid)
{
    char path[64], line[128];
    long kib = 0;
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        if (sscanf(line, "VmRSS: %ld", &kib) == 1) {
            break;
        }
    }
    fclose(f);
    return kib;
}

static void wait_for_journal(const struct controller *t, int64_t num)
{
    int ends;
    int64_t until = clock_mono_ms() + WAIT_MS;
    while (read_journal(t, &ends) < num) {
        assert_true(clock_mono_ms() < until);
        clock_sleep_ms(50);
    }
}

/* [4] Ranks don't wait for a controller that is away, and its absence costs disk, not memory: what
 * the disk was given time to take is there. */
static void a_long_absence_costs_disk_and_no_memory(void **state)
{
    (void)state;
    enum { NUM = 400000, PIECE = 50000 }; /* in memory, 70 MiB */
    struct controller t;
    int status, ends;
    char word[48], go[128];
    snprintf(word, sizeof word, "then talk %d by %d", NUM, PIECE);
    begin(&t, 1, word, "");
    t.mute = true; /* all of it stays on disk */
    controller_serve(&t);
    node_start(&t, "the-token");
    wait_for_log(&t, "node.log", "starting");
    send_stop(&t); /* any command lets it talk */
    wait_for_ups(&t, 1, 1);
    controller_leave(&t);
    long before = rss_kib(t.node);
    for (int i = 1; i < NUM / PIECE; i++) {
        wait_for_journal(&t, i * PIECE);
        snprintf(go, sizeof go, "%s/go-%d", t.dir, i);
        assert_int_equal(fs_write_atomic(go, "", 0, 0600, NULL), 0);
    }
    wait_for_log(&t, "node.log", "ended: finished");
    wait_for_journal(&t, NUM + 2); /* it is said before it is written */
    long grown = rss_kib(t.node) - before;
    assert_int_equal(kill(t.node, SIGKILL), 0);
    assert_int_equal(waitpid(t.node, &status, 0), t.node);
    assert_int_equal(read_journal(&t, &ends), NUM + 2);
    assert_int_equal(ends, 1);
    print_message("%d reports, %ld KiB\n", NUM, grown);
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
    assert_in_range(grown, 0, 40 << 10);
#endif
    controller_serve(&t);
    finish(&t);
}

static void a_journal_that_was_heard_is_removed(void **state)
{
    (void)state;
    struct controller t;
    int ends;
    begin(&t, 1, "talk 300", "");
    controller_serve(&t);
    node_start(&t, "the-token");
    assert_int_equal(node_wait(&t), 0);
    assert_int_equal(read_journal(&t, &ends), 0);
    finish(&t);
}

/* [30] What killed ranks left under temporary names goes at the start, or with the end. */
static void what_killed_ranks_left_is_swept(void **state)
{
    (void)state;
    struct controller t;
    char kept[128], left[2][128];
    begin(&t, 1, "obey", "");
    snprintf(kept, sizeof kept, "%s/config.json", t.dir);
    assert_int_equal(fs_write_atomic(kept, "{}", 2, 0600, NULL), 0);
    snprintf(left[0], sizeof left[0], "%s/config.json.tmp123", t.dir);
    assert_int_equal(fs_write_atomic(left[0], "{", 1, 0600, NULL), 0);
    snprintf(left[1], sizeof left[1], "%s/export.tmp/deeper", t.dir);
    controller_serve(&t);
    node_start(&t, "the-token");
    wait_for_log(&t, "node.log", "starting");
    assert_false(fs_exists(left[0]));
    assert_int_equal(fs_mkdirs(left[1], 0700, NULL), 0);
    send_stop(&t);
    assert_int_equal(node_wait(&t), 0);
    assert_false(fs_exists(left[1]));
    assert_true(fs_exists(kept));
    finish(&t);
}

/* ---- leases ---- */

/* [8], [34] It stood still, with its machine perhaps, while the lease ran out: by our clock,
 * whatever others think. The gang stops before anything else happens. */
static void a_node_that_slept_through_its_lease_stops_its_gang(void **state)
{
    (void)state;
    struct controller t;
    int ends;
    begin(&t, 2, "hang", "stubborn");
    controller_serve(&t);
    node_start(&t, "the-token");
    wait_for_log(&t, "logs/attempt-2/rank-0.log", "waiting");
    wait_for_log(&t, "logs/attempt-2/rank-1.log", "waiting");
    t.lease_ms = 600;
    send_lease(&t);
    send_ack(&t, 1000000); /* once it has heard of this, it has of the lease */
    wait_for_log(&t, "node.log", "acknowledges report 1000000; ");
    assert_int_equal(kill(t.node, SIGSTOP), 0);
    clock_sleep_ms(700); /* the lease: nobody can see it end */
    assert_int_equal(kill(t.node, SIGCONT), 0);
    assert_int_equal(node_wait(&t), 1);
    wait_for_log(&t, "node.log", "the lease is over");
    assert_true(read_journal(&t, &ends) == 0 || ends == 1);
    finish(&t);
}

/* Renews for longer than a lease is. False: this process stood still for about as long. */
static bool renew(struct controller *t)
{
    int64_t now, last = clock_mono_ms(), until = last + t->lease_ms + 1000;
    bool in_time = true;
    while ((now = clock_mono_ms()) < until) {
        send_lease(t);
        in_time = in_time && now - last < t->lease_ms / 2;
        last = now;
        clock_sleep_ms(100);
    }
    return in_time && now - last < t->lease_ms / 2;
}

/* A lease that is renewed doesn't end, however short it is. */
static void a_renewed_lease_holds(void **state)
{
    (void)state;
    struct controller t;
    bool in_time = false;
    for (int tries = 0; tries < 5 && !in_time; tries++) {
        begin(&t, 1, "obey", "");
        controller_serve(&t);
        node_start(&t, "the-token");
        wait_for_log(&t, "node.log", "starting");
        t.lease_ms = 4000;
        in_time = renew(&t);
        send_stop(&t);
        int rc = node_wait(&t);
        if (in_time) {
            assert_int_equal(rc, 0);
            assert_true(the_end(&t)->paused);
        }
        finish(&t);
    }
    assert_true(in_time);
}

int main(void)
{
    if (proctree_adopt_orphans(NULL) != 0) {
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(commands_for_another_attempt_are_refused),
        cmocka_unit_test(a_start_that_comes_twice_starts_one_gang),
        cmocka_unit_test(an_acknowledgement_of_the_future_loses_nothing),
        cmocka_unit_test(the_id_of_rank_0_comes_to_all_ranks_and_stays_secret),
        cmocka_unit_test(a_result_outlives_a_killed_node),
        cmocka_unit_test(a_long_absence_costs_disk_and_no_memory),
        cmocka_unit_test(a_journal_that_was_heard_is_removed),
        cmocka_unit_test(what_killed_ranks_left_is_swept),
        cmocka_unit_test(a_node_that_slept_through_its_lease_stops_its_gang),
        cmocka_unit_test(a_renewed_lease_holds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
