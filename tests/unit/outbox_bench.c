#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/unit/outbox_bench.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "proto/journal.h"
#include "tests/deadline.h"

/* ---- life -------------------------------------------------------------------------------------
 */

int bench_set_up(void **state)
{
    *state = calloc(1, sizeof(struct bench));
    return *state ? 0 : -1;
}

static void clean(struct bench *b)
{
    limit_files(RLIM_INFINITY);
    end(b);
    if (b->dir[0]) {
        fs_remove_tree(b->dir, NULL);
    }
    *b = (struct bench){0};
}

int bench_tear_down(void **state)
{
    clean(*state);
    free(*state);
    return 0;
}

static void count_wake(void *arg)
{
    atomic_fetch_add(&((struct bench *)arg)->num_wakes, 1);
}

void begin_bounded(struct bench *b, bool disk, size_t window_bytes, size_t segment_bytes,
                   int64_t disk_bytes)
{
    clean(b);
    snprintf(b->dir, sizeof b->dir, "/tmp/tandem-outbox-test-XXXXXX");
    assert_non_null(mkdtemp(b->dir));
    snprintf(b->reports, sizeof b->reports, "%s/reports", b->dir);
    struct outbox_options options = {.job_id = 7,
                                     .attempt = 2,
                                     .max_bytes = BENCH_MAX_BYTES,
                                     .window_bytes = window_bytes,
                                     .dir = disk ? b->reports : NULL,
                                     .disk_bytes = disk_bytes ? disk_bytes : 1 << 28,
                                     .segment_bytes = segment_bytes,
                                     .wake = count_wake,
                                     .arg = b};
    assert_int_equal(outbox_new(&b->o, &options, NULL), 0);
}

void begin(struct bench *b, bool disk, size_t window_bytes, size_t segment_bytes)
{
    begin_bounded(b, disk, window_bytes, segment_bytes, 0);
}

void end(struct bench *b)
{
    deadline_begin(DEADLINE_S, "the end of the outbox's threads");
    outbox_free(b->o);
    deadline_end();
    b->o = NULL;
}

/* ---- in, out ----------------------------------------------------------------------------------
 */

void put_steps(struct bench *b, int num)
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

void put_progress(struct outbox *o, int32_t rank, int64_t step)
{
    Progress p = PROGRESS__INIT;
    p.has_rank = p.has_step = 1;
    p.rank = rank;
    p.step = step;
    outbox_put_progress(o, &p);
}

WorkerUp *take(struct outbox *o)
{
    deadline_begin(DEADLINE_S, "a message to send");
    WorkerUp *up = outbox_take(o);
    deadline_end();
    assert_non_null(up);
    return up;
}

WorkerUp *take_numbered(struct outbox *o, int64_t seq)
{
    deadline_begin(DEADLINE_S, "report %lld to send", (long long)seq);
    WorkerUp *up = outbox_take(o);
    deadline_end();
    assert_non_null(up);
    assert_int_equal(up->seq, seq);
    return up;
}

void expect(struct outbox *o, int64_t from, int64_t to)
{
    for (int64_t seq = from; seq <= to; seq++) {
        WorkerUp *up = take_numbered(o, seq);
        assert_int_equal(up->job_id, 7);
        assert_int_equal(up->attempt, 2);
        assert_int_equal(up->metrics->step, seq * 10);
        worker_up__free_unpacked(up, NULL);
    }
}

int64_t take_to_note(struct outbox *o, int64_t from, const char *part)
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

/* ---- disk -------------------------------------------------------------------------------------
 */

int64_t last_on_disk(const struct bench *b, int64_t *first, size_t *num_segments)
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
            char name[JOURNAL_NAME_MAX];
            journal_name(name, list[i]);
            if (faccessat(fd, name, F_OK, 0) != 0) {
                *first = last = 0; /* dropped since, and so is all before it */
            }
            continue; /* or begun since */
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

void wait_for_disk(const struct bench *b, int64_t last)
{
    int64_t first;
    size_t num;
    WAIT_UNTIL(last_on_disk(b, &first, &num) >= last, "report %lld on disk", (long long)last);
}

void limit_files(rlim_t bytes)
{
    struct rlimit r;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &r), 0);
    r.rlim_cur = bytes < r.rlim_max ? bytes : r.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &r), 0);
}
