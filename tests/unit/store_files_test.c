/* server/store as files: kills, copies, what a restore changes, the log, old rows, retention. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/fs.h"
#include "base/rng.h"
#include "server/curve.h"
#include "server/msg.h"
#include "server/store/backup.h"
#include "server/store/sweep_rows.h"
#include "tests/effort.h"
#include "tests/unit/store_fixture.h"

static int64_t number(const char *path, const char *sql)
{
    sqlite3 *db;
    sqlite3_stmt *q;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    if (sqlite3_prepare_v2(db, sql, -1, &q, NULL) != SQLITE_OK) {
        fail_msg("%s: %s", sql, sqlite3_errmsg(db));
    }
    int rc = sqlite3_step(q);
    int64_t n = rc == SQLITE_ROW ? sqlite3_column_int64(q, 0) : -1;
    sqlite3_finalize(q);
    sqlite3_close(db);
    return n;
}

static double loss_of(int64_t step)
{
    return rng_normal(8, 8, (uint64_t)step);
}

static void rows(struct store *s, int64_t job, int32_t attempt, int64_t first, int64_t last)
{
    assert_int_equal(store_begin(s, NULL), 0);
    for (int64_t step = first; step <= last; step++) {
        store_fixture_metric(s, job, attempt, step, loss_of(step));
    }
    assert_int_equal(store_commit(s, NULL), 0);
}

static Metrics *read_curve(struct store *s, int64_t job, int64_t points)
{
    Metrics *m;
    GetMetricsRequest q = GET_METRICS_REQUEST__INIT;
    q.points = points;
    struct error err = {0};
    if (curve_read(s, &q, job, &m, &err) != 0) {
        fail_msg("%s", err.text);
    }
    return m;
}

/* Steps 1 to at least `least`, each once. */
static int64_t check_rows(struct store *s, int64_t job, int64_t least)
{
    Metrics *m = read_curve(s, job, 0);
    assert_true((int64_t)m->n_steps >= least);
    for (size_t i = 0; i < m->n_steps; i++) {
        assert_int_equal(m->steps[i], i + 1);
        assert_true(m->columns[0]->values[i] == loss_of(m->steps[i]));
    }
    int64_t num = (int64_t)m->n_steps;
    msg_free(m);
    return num;
}

/* ---- kills ---- */

/* Reports rows in commits of varying size, the last few of each again in the next one (what was not
 * acknowledged is sent again), and says through fd how far the commits go. */
static _Noreturn void report_for_ever(const char *path, int64_t job, int64_t from, int fd)
{
    struct store *s;
    if (store_open(&s, path, NULL) != 0) {
        _exit(1);
    }
    for (uint64_t n = 0;; n++) {
        int64_t num = 1 + (int64_t)(rng_u64(4, 4, n) % 400), first = from > 20 ? from - 20 : 1;
        if (store_begin(s, NULL) != 0) {
            _exit(1);
        }
        for (int64_t step = first; step <= from + num; step++) {
            store_fixture_metric(s, job, 1, step, loss_of(step));
        }
        if (store_commit(s, NULL) != 0) {
            _exit(1);
        }
        from += num;
        if (write(fd, &from, sizeof from) != sizeof from) {
            _exit(1);
        }
    }
}

/* No metric twice or missing, whenever the process is killed: what a commit was told of is there,
 * and no step is there twice, in rows or chunks. */
static void a_kill_at_any_moment_leaves_each_reported_step_once(void **state)
{
    struct store_fixture *f = *state;
    int64_t job = store_fixture_job(f->s, "one"), have = 0;
    store_fixture_attempt(f->s, job, 1, 0);
    int rounds = effort(60, 12, 4);
    for (int i = 0; i < rounds; i++) {
        int ends[2];
        store_close(f->s);
        f->s = NULL;
        assert_int_equal(pipe(ends), 0);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            close(ends[0]);
            report_for_ever(f->path, job, have, ends[1]);
        }
        close(ends[1]);
        /* Somewhere between commits number k and k + 1. */
        int64_t acked = have, commits = 1 + (int64_t)(rng_u64(5, 5, (uint64_t)i) % 12);
        for (int64_t k = 0; k < commits; k++) {
            assert_int_equal(read(ends[0], &acked, sizeof acked), sizeof acked);
        }
        for (uint64_t spin = rng_u64(5, 6, (uint64_t)i) % 2000000; spin > 0; spin--) {
            __asm__ volatile("" : : : "memory");
        }
        kill(pid, SIGKILL);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
        int64_t last;
        while (read(ends[0], &last, sizeof last) == sizeof last) {
            acked = last;
        }
        close(ends[0]);
        assert_int_equal(store_open(&f->s, f->path, NULL), 0);
        /* Above a page of a reply this counts; below, it looks at each. */
        if (acked < CURVE_ROWS_MAX - 1000) {
            have = check_rows(f->s, job, acked);
        }
        int64_t tail = number(f->path, "SELECT count(*) FROM metrics");
        int64_t chunks = number(f->path, "SELECT coalesce(sum(rows), 0) FROM metric_chunks");
        have = tail + chunks;
        assert_true(have >= acked);
        assert_int_equal(have, number(f->path, "SELECT max(step) FROM metrics"));
    }
    assert_true(number(f->path, "SELECT count(*) FROM metric_chunks") > 0);
}

/* ---- rows of before there were chunks ---- */

static void old_rows_become_chunks_in_pieces_and_curves_stay_the_same(void **state)
{
    struct store_fixture *f = *state;
    int64_t job = store_fixture_job(f->s, "one"), num, pieces = 0;
    store_fixture_attempt(f->s, job, 1, 0);
    assert_int_equal(number(f->path, "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 "
                                     "FROM n WHERE i < 20000) INSERT INTO metrics SELECT 1, i, 1, "
                                     "i * 7919 % 1000, NULL, 0.5, i, 1, 2, NULL FROM n"),
                     -1);
    Metrics *before = read_curve(f->s, job, 0), *thin = read_curve(f->s, job, 300);
    do {
        assert_int_equal(store_begin(f->s, NULL), 0);
        assert_int_equal(store_metric_fold(f->s, job, false, 2048, &num, NULL), 0);
        assert_true(num <= 2048 + 1024);
        assert_int_equal(store_commit(f->s, NULL), 0);
        pieces++;
        Metrics *now = read_curve(f->s, job, 0), *less = read_curve(f->s, job, 300);
        assert_true(protobuf_c_message_get_packed_size(&now->base) ==
                    protobuf_c_message_get_packed_size(&before->base));
        for (size_t i = 0; i < now->n_steps; i++) {
            assert_int_equal(now->steps[i], before->steps[i]);
            assert_true(now->columns[0]->values[i] == before->columns[0]->values[i]);
        }
        assert_int_equal(less->n_steps, thin->n_steps);
        for (size_t i = 0; i < less->n_steps; i++) {
            assert_int_equal(less->steps[i], thin->steps[i]);
        }
        msg_free(now);
        msg_free(less);
    } while (num >= 2048);
    assert_true(pieces > 5);
    assert_int_equal(number(f->path, "SELECT count(*) FROM metrics"), 20000 % 1024);
    assert_int_equal(store_metric_fold(f->s, job, true, 2048, &num, NULL), 0);
    assert_int_equal(number(f->path, "SELECT count(*) FROM metrics"), 0);
    msg_free(before);
    msg_free(thin);
}

/* ---- retention ---- */

static void end_job(struct store *s, int64_t job, int64_t ended_us)
{
    struct job_row row;
    assert_int_equal(store_job_get(s, job, &row, NULL), 1);
    row.state = JOB_SUCCEEDED;
    row.ended_us = ended_us;
    row.attempt.condition = ATTEMPT_GONE;
    assert_int_equal(store_job_update(s, &row, NULL), 0);
    if (row.attempt.number) {
        assert_int_equal(store_attempt_update(s, job, &row.attempt, NULL), 0);
    }
}

/* Thinned curves keep their extremes, bit for bit; whoever asks for all rows is told. */
static void an_old_curve_is_thinned_to_its_extremes_and_says_so(void **state)
{
    struct store_fixture *f = *state;
    int64_t job = store_fixture_job(f->s, "one"), rows_folded;
    store_fixture_attempt(f->s, job, 1, 0);
    rows(f->s, job, 1, 1, 30000);
    end_job(f->s, job, 1000);
    Metrics *before = read_curve(f->s, job, 200);
    assert_int_equal(store_metric_fold(f->s, job, true, 100000, &rows_folded, NULL), 0);
    int num, total = 0;
    do {
        assert_int_equal(sweep_metrics(f->s, job, 4, &num, NULL), 0);
        total += num;
    } while (num == 4);
    assert_int_equal(total, 30);
    Metrics *after = read_curve(f->s, job, 200), *all = read_curve(f->s, job, 0);
    assert_int_equal(after->n_steps, before->n_steps);
    for (size_t i = 0; i < after->n_steps; i++) {
        assert_int_equal(after->steps[i], before->steps[i]);
        assert_true(after->columns[0]->values[i] == before->columns[0]->values[i]);
    }
    assert_true(all->thinned);
    assert_true(all->n_steps < 30000 / 8);
    assert_int_equal(all->steps[0], 1);
    assert_int_equal(all->steps[all->n_steps - 1], 30000);
    assert_false(before->thinned);
    msg_free(before);
    msg_free(after);
    msg_free(all);
}

static void a_sweep_sees_each_ended_job_once_and_none_that_runs(void **state)
{
    struct store_fixture *f = *state;
    for (int i = 0; i < 10; i++) {
        int64_t job = store_fixture_job(f->s, "j");
        store_fixture_attempt(f->s, job, 1, 0);
        if (i != 4) {
            end_job(f->s, job, 100 + i / 2);
        }
    }
    /* Its processes may still be there. */
    number(f->path, "UPDATE attempts SET condition = 4 WHERE job = 2");
    struct sweep_cursor at = {0};
    struct sweep_job jobs[3];
    size_t num, total = 0;
    int64_t seen = 0;
    do {
        assert_int_equal(sweep_ended(f->s, 104, &at, jobs, 3, &num, NULL), 0);
        for (size_t i = 0; i < num; i++) {
            assert_true(jobs[i].job > seen); /* here, later jobs ended later */
            seen = jobs[i].job;
            assert_true(seen != 2 && seen != 5 && seen < 9);
        }
        total += num;
    } while (num == 3);
    assert_int_equal(total, 6);
}

/* Scenario 29, for logs: mark, files, row; whatever step it ends at, it goes on from there. */
static void logs_are_marked_before_their_files_go(void **state)
{
    struct store_fixture *f = *state;
    int64_t job = store_fixture_job(f->s, "one");
    store_fixture_attempt(f->s, job, 1, 0);
    end_job(f->s, job, 500);
    struct sweep_job going[4];
    size_t num;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(sweep_logs_mark(f->s, job, NULL), 0);
        store_close(f->s);
        assert_int_equal(store_open(&f->s, f->path, NULL), 0);
        assert_int_equal(sweep_logs_going(f->s, 0, going, 4, &num, NULL), 0);
        assert_int_equal(num, 1);
        assert_int_equal(going[0].attempt, 1);
        assert_int_equal(sweep_logs_going(f->s, job, going, 4, &num, NULL), 0);
        assert_int_equal(num, 0); /* it was tried, and others are next */
    }
    assert_int_equal(sweep_logs_done(f->s, &going[0], NULL), 0);
    assert_int_equal(sweep_logs_mark(f->s, job, NULL), 0); /* they are gone: no work */
    assert_int_equal(sweep_logs_going(f->s, 0, going, 4, &num, NULL), 0);
    assert_int_equal(num, 0);
    end_job(f->s, job, 900); /* it ran again */
    assert_int_equal(sweep_logs_mark(f->s, job, NULL), 0);
    assert_int_equal(sweep_logs_going(f->s, 0, going, 4, &num, NULL), 0);
    assert_int_equal(num, 1);
}

/* ---- the log beside the database ---- */

/* Long reads make it grow; it doesn't stay so. */
static void a_long_read_does_not_leave_a_large_log(void **state)
{
    struct store_fixture *f = *state;
    struct store *reader;
    int64_t job = store_fixture_job(f->s, "one"), bytes, id;
    store_fixture_attempt(f->s, job, 1, 0);
    assert_int_equal(store_open_reader(&reader, f->path, NULL), 0);
    assert_int_equal(store_begin_read(reader, NULL), 0);
    assert_int_equal(store_event_last(reader, &id, NULL), 0); /* the state is taken here */
    for (int64_t i = 0; i < 40; i++) {
        rows(f->s, job, 1, i * 1000 + 1, i * 1000 + 1000);
    }
    assert_int_equal(store_trim_wal(f->path, 1 << 20, &bytes, NULL), 0); /* can't, and says so */
    assert_true(bytes > 1 << 20);
    store_end_read(reader);
    assert_int_equal(store_trim_wal(f->path, 1 << 20, &bytes, NULL), 0);
    assert_int_equal(bytes, 0);
    /* Nobody was disturbed. */
    rows(f->s, job, 1, 40001, 40100);
    assert_int_equal(store_begin_read(reader, NULL), 0);
    GetMetricsRequest q = GET_METRICS_REQUEST__INIT;
    Metrics *m;
    q.from = 40000;
    assert_int_equal(curve_read(reader, &q, job, &m, NULL), 0);
    assert_int_equal(m->n_steps, 101);
    msg_free(m);
    store_end_read(reader);
    store_close(reader);
}

static void network_filesystems_have_names(void **state)
{
    (void)state;
    static const struct {
        uint32_t magic;
        const char *name;
    } want[] = {{0x6969, "NFS"},        {0xFF534D42, "CIFS"}, {0x00C36400, "Ceph"},
                {0x0BD00BD0, "Lustre"}, {0x47504653, "GPFS"}, {0x01021997, "9P"}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        assert_string_equal(store_network_name(want[i].magic), want[i].name);
    }
    /* ext4, xfs, btrfs, tmpfs, overlay, zfs */
    static const uint32_t local[] = {0xEF53,     0x58465342, 0x9123683E,
                                     0x01021994, 0x794C7630, 0x2FC12FC1};
    for (size_t i = 0; i < sizeof local / sizeof *local; i++) {
        assert_null(store_network_name(local[i]));
    }
}

/* ---- copies ---- */

static bool some(void *arg)
{
    return --*(int *)arg > 0;
}

static void a_backup_that_is_given_up_leaves_nothing(void **state)
{
    struct store_fixture *f = *state;
    int64_t job = store_fixture_job(f->s, "one");
    store_fixture_attempt(f->s, job, 1, 0);
    for (int64_t i = 0; i < 60; i++) {
        rows(f->s, job, 1, i * 1000 + 1, i * 1000 + 1000);
    }
    char to[128], partial[160];
    snprintf(to, sizeof to, "%s/copy.db", f->dir);
    snprintf(partial, sizeof partial, "%s.partial", to);
    struct store_copy copy;
    struct error err = {0};
    int pieces = 2;
    assert_int_equal(store_backup(f->path, to, some, &pieces, &copy, &err), -1);
    assert_int_equal(err.code, ERR_CANCELLED);
    assert_false(fs_exists(to));
    assert_false(fs_exists(partial));
    /* One that was killed left a part: it is no hindrance. */
    assert_int_equal(fs_write_atomic(partial, "x", 1, 0600, NULL), 0);
    pieces = 1 << 20;
    assert_int_equal(store_backup(f->path, to, some, &pieces, &copy, &err), 0);
    assert_int_equal(copy.num_jobs, 1);
    assert_false(fs_exists(partial));
    struct stat st;
    assert_int_equal(stat(to, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(st.st_size, copy.size_bytes);
    assert_int_equal(store_backup(f->path, to, some, &pieces, &copy, &err), -1);
    assert_int_equal(err.code, ERR_ALREADY_EXISTS);
}

/* Ids, attempts and tokens after a restore: see server/store/backup.h. */
static void a_restored_database_gives_out_no_name_twice(void **state)
{
    struct store_fixture *f = *state;
    char to[128];
    snprintf(to, sizeof to, "%s/copy.db", f->dir);
    int64_t running = store_fixture_job(f->s, "running"), far = store_fixture_job(f->s, "far");
    int64_t fresh = store_fixture_job(f->s, "fresh");
    store_fixture_attempt(f->s, running, 1, 0);
    store_fixture_attempt(f->s, far, 1, 0);
    number(f->path, "UPDATE jobs SET state = 4 WHERE id IN (1, 2)");
    number(f->path, "UPDATE attempts SET condition = 3");
    number(f->path, "INSERT INTO tokens (tenant, user, sha256, prefix, created_us) VALUES "
                    "('default', 'dev', zeroblob(32), 'x', 1)");
    struct store_copy copy;
    int pieces = 1000;
    assert_int_equal(store_backup(f->path, to, some, &pieces, &copy, NULL), 0);
    /* Later: jobs 4 to 6, attempt 2 of "far", a token revoked. */
    for (int i = 0; i < 3; i++) {
        store_fixture_job(f->s, "later");
    }
    number(f->path, "UPDATE tokens SET revoked_us = 77");
    const struct store_seen seen[] = {{.job = far, .attempt = 4}, {.job = 90, .attempt = 1}};
    struct error err = {0};
    if (store_restored(to, f->path, seen, 2, &err) != 0) {
        fail_msg("%s", err.text);
    }
    struct store *s;
    struct job_row row;
    assert_int_equal(store_open(&s, to, &err), 0);
    assert_int_equal(store_job_get(s, running, &row, NULL), 1);
    assert_int_equal(row.state, JOB_QUEUED);
    assert_int_equal(row.attempt.number, 2);
    assert_int_equal(row.attempt.condition, ATTEMPT_GONE);
    assert_int_equal(store_job_get(s, far, &row, NULL), 1);
    assert_int_equal(row.state, JOB_HELD);
    assert_int_equal(row.attempt.number, 5);
    assert_int_equal(store_job_get(s, fresh, &row, NULL), 1);
    assert_int_equal(row.state, JOB_QUEUED);
    assert_int_equal(row.attempt.number, 0);
    assert_true(store_fixture_job(s, "next") > 90);
    store_close(s);
    assert_int_equal(number(to, "SELECT count(*) FROM attempts WHERE condition < 5"), 0);
    assert_int_equal(number(to, "SELECT revoked_us FROM tokens"), 77);
    /* Without the old database it can't know: far beyond. */
    assert_int_equal(store_restored(to, NULL, NULL, 0, &err), 0);
    assert_int_equal(store_open(&s, to, &err), 0);
    assert_true(store_fixture_job(s, "next") > 1000);
    store_close(s);
    assert_int_equal(store_copy_check(to, &copy, &err), 0);
}

int main(void)
{
#define WITH_STORE(test)                                                                           \
    cmocka_unit_test_setup_teardown(test, store_fixture_setup, store_fixture_teardown)
    const struct CMUnitTest tests[] = {
        WITH_STORE(a_kill_at_any_moment_leaves_each_reported_step_once),
        WITH_STORE(old_rows_become_chunks_in_pieces_and_curves_stay_the_same),
        WITH_STORE(an_old_curve_is_thinned_to_its_extremes_and_says_so),
        WITH_STORE(a_sweep_sees_each_ended_job_once_and_none_that_runs),
        WITH_STORE(logs_are_marked_before_their_files_go),
        WITH_STORE(a_long_read_does_not_leave_a_large_log),
        cmocka_unit_test(network_filesystems_have_names),
        WITH_STORE(a_backup_that_is_given_up_leaves_nothing),
        WITH_STORE(a_restored_database_gives_out_no_name_twice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
