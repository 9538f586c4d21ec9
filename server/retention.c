#include "server/retention.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "server/controller.h"
#include "server/job.h"
#include "server/store/sweep_rows.h"
#include "server/worker.h"

#define DAY_US (86400 * (int64_t)1000000)
#define ROUND_MS 600000
/* How often the log beside the database is looked at, and from what size on it is cut. */
#define WAL_MS 2000
#define WAL_MAX_BYTES (128 << 20)
#define PAUSE_MS 20
/* The owner does other things for so many times as long as it does a piece. */
#define PAUSE_RATIO 4
/* A piece: */
#define FOLD_ROWS 2048
#define FOLD_JOBS 64
#define JOBS_A_TIME 16
#define CHUNKS 8
#define EVENTS 500
/* A key that comes again so long after its job's end is a new one. */
#define KEYS_DAYS 30

enum phase { PHASE_FOLD, PHASE_ENDED, PHASE_LOGS, PHASE_DONE };

/* Where a round stands. The owner works on a copy, which counts once it is committed. */
struct round {
    enum phase phase;
    int64_t fold_job;
    struct sweep_cursor at;
    struct sweep_job jobs[JOBS_A_TIME]; /* ENDED: to be looked at; LOGS: files to be removed */
    size_t num_jobs, next_job;
    bool gone[JOBS_A_TIME]; /* LOGS: the files of jobs[i] are */
    int64_t logs_job;       /* LOGS: up to here it was tried */
};

struct retention {
    struct worker *worker;
    struct mailbox *owner;
    char data_dir[PATH_MAX];
    int64_t metrics_us, events_us, logs_us; /* ages; 0 = for ever */
    atomic_bool busy;                       /* a piece is with the owner: round is its */
    struct round round;
    bool failed;
    int64_t posted_ms, due_ms, wal_due_ms;
};

struct piece_mail {
    struct mail mail; /* first */
    struct retention *r;
    struct round round;
    bool ok;
};

/* ---- owner thread ---- */

/* Attempts' tails that belong in chunks: of ended jobs all, of others what an older tandemd left.
 */
static int fold(struct store *s, struct round *r, struct error *err)
{
    int64_t rows = 0;
    for (int i = 0; i < FOLD_JOBS && rows < FOLD_ROWS; i++) {
        int64_t job, num;
        struct job_row row;
        int rc = store_metric_next_job(s, r->fold_job, &job, err);
        if (rc == 0) {
            r->phase = PHASE_ENDED;
        }
        if (rc != 1) {
            return rc;
        }
        rc = store_job_get(s, job, &row, err);
        bool over = rc == 1 && job_state_is_end(row.state) &&
                    (!row.attempt.number || row.attempt.condition == ATTEMPT_GONE);
        if (rc < 0 || store_metric_fold(s, job, over, FOLD_ROWS, &num, err) != 0) {
            return -1;
        }
        rows += num;
        r->fold_job = num < FOLD_ROWS ? job : r->fold_job;
    }
    return 0;
}

static bool is_older(const struct sweep_job *j, int64_t age_us, int64_t now_us)
{
    return age_us > 0 && j->ended_us < now_us - age_us;
}

/* *whole: nothing is left to do for it. */
static int sweep_job(const struct retention *r, struct store *s, const struct sweep_job *j,
                     int64_t now_us, bool *whole, struct error *err)
{
    int num = 0;
    *whole = true;
    if (is_older(j, r->metrics_us, now_us)) {
        if (sweep_metrics(s, j->job, CHUNKS, &num, err) != 0) {
            return -1;
        }
        *whole = num < CHUNKS;
    }
    if (is_older(j, r->events_us, now_us)) {
        if (sweep_events(s, j->job, EVENTS, &num, err) != 0) {
            return -1;
        }
        *whole = *whole && num < EVENTS;
    }
    if (is_older(j, r->logs_us, now_us) && sweep_logs_mark(s, j->job, err) != 0) {
        return -1;
    }
    return is_older(j, KEYS_DAYS * DAY_US, now_us) ? sweep_keys(s, j->job, err) : 0;
}

static int64_t youngest(const struct retention *r)
{
    int64_t age_us = KEYS_DAYS * DAY_US;
    const int64_t ages[] = {r->metrics_us, r->events_us, r->logs_us};
    for (size_t i = 0; i < sizeof ages / sizeof *ages; i++) {
        age_us = ages[i] > 0 && ages[i] < age_us ? ages[i] : age_us;
    }
    return age_us;
}

static int sweep_jobs(const struct retention *r, struct store *s, struct round *at, int64_t now_us,
                      struct error *err)
{
    if (at->next_job == at->num_jobs) {
        at->next_job = 0;
        if (sweep_ended(s, now_us - youngest(r), &at->at, at->jobs, JOBS_A_TIME, &at->num_jobs,
                        err) != 0) {
            return -1;
        }
        if (at->num_jobs == 0) {
            at->phase = PHASE_LOGS;
        }
    }
    bool whole = true;
    while (whole && at->next_job < at->num_jobs) {
        if (sweep_job(r, s, &at->jobs[at->next_job], now_us, &whole, err) != 0) {
            return -1;
        }
        at->next_job += whole;
    }
    return 0;
}

static int sweep_logs(struct store *s, struct round *at, struct error *err)
{
    for (size_t i = 0; i < at->num_jobs; i++) {
        if (at->gone[i] && sweep_logs_done(s, &at->jobs[i], err) != 0) {
            return -1;
        }
        at->logs_job = at->jobs[i].job;
    }
    if (sweep_logs_going(s, at->logs_job, at->jobs, JOBS_A_TIME, &at->num_jobs, err) != 0) {
        return -1;
    }
    at->phase = at->num_jobs == 0 ? PHASE_DONE : PHASE_LOGS;
    return 0;
}

static int run_piece(void *controller, struct mail *base, struct error *err)
{
    struct piece_mail *m = (struct piece_mail *)base;
    const struct retention *r = m->r;
    struct store *s = controller_store(controller);
    struct round at = r->round;
    int rc = at.phase == PHASE_FOLD    ? fold(s, &at, err)
             : at.phase == PHASE_ENDED ? sweep_jobs(r, s, &at, controller_wall_us(controller), err)
                                       : sweep_logs(s, &at, err);
    m->round = at;
    m->ok = rc == 0;
    return rc;
}

/* After the commit; or the owner ends and drops it. */
static void free_piece(struct mail *base)
{
    struct piece_mail *m = (struct piece_mail *)base;
    m->r->failed = !m->ok;
    if (m->ok) {
        m->r->round = m->round;
    }
    atomic_store(&m->r->busy, false);
}

/* ---- sweep thread ---- */

/* The job's logs. The folder may be a tenant's, who could put a link there to somebody else's: that
 * is no folder of logs. */
static int open_logs(const struct retention *r, int64_t job)
{
    char folder[PATH_MAX];
    int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    if (!job_dir(folder, sizeof folder, r->data_dir, job)) {
        errno = ENOENT;
        return -1;
    }
    int own = open(folder, flags);
    int logs = own < 0 ? -1 : openat(own, "logs", flags), errnum = errno;
    if (own >= 0) {
        close(own);
    }
    errno = errnum;
    return logs;
}

/* Attempts up to the latest of the time when they were marked: the job may run again by now. */
static bool remove_logs(const struct retention *r, const struct sweep_job *j)
{
    char name[32];
    struct error err = {0};
    int logs = open_logs(r, j->job);
    bool removed = logs >= 0 || errno == ENOENT || errno == ENOTDIR || errno == ELOOP;
    if (!removed) {
        error_errno(&err, errno, "open");
    }
    for (int32_t a = 1; logs >= 0 && removed && a <= j->attempt; a++) {
        snprintf(name, sizeof name, "attempt-%d", a);
        removed = fs_remove_tree_at(logs, name, &err) == 0;
    }
    if (logs >= 0) {
        close(logs);
    }
    if (!removed) {
        log_warn("retention: logs of job %lld: %s", (long long)j->job, err.text);
    }
    return removed;
}

static void remove_files(struct retention *r)
{
    struct round *at = &r->round;
    for (size_t i = 0; i < at->num_jobs; i++) {
        at->gone[i] = remove_logs(r, &at->jobs[i]); /* else with the next round */
    }
}

static void trim_wal(struct retention *r)
{
    char db[PATH_MAX];
    int64_t bytes;
    struct error err = {0};
    if (fs_join(db, sizeof db, r->data_dir, "tandem.db") &&
        store_trim_wal(db, WAL_MAX_BYTES, &bytes, &err) != 0) {
        log_warn("the database's log was not cut: %s", err.text);
    }
}

/* What is due of the round; how long until more is. */
static int64_t go_on(struct retention *r, int64_t now_ms)
{
    if (atomic_load(&r->busy)) {
        return PAUSE_MS;
    }
    if (r->posted_ms) {
        int64_t pause_ms = PAUSE_RATIO * (now_ms - r->posted_ms);
        r->posted_ms = 0;
        if (r->failed || r->round.phase == PHASE_DONE) {
            pause_ms = ROUND_MS;
        } else if (r->round.phase == PHASE_LOGS && r->round.num_jobs > 0) {
            remove_files(r);
        }
        r->due_ms = now_ms + (pause_ms > PAUSE_MS ? pause_ms : PAUSE_MS);
    }
    if (now_ms < r->due_ms) {
        return r->due_ms - now_ms;
    }
    if (r->failed || r->round.phase == PHASE_DONE) {
        memset(&r->round, 0, sizeof r->round);
    }
    struct piece_mail *m = mail_new(sizeof *m, run_piece, NULL, NULL);
    m->mail.free_fn = free_piece;
    m->r = r;
    r->posted_ms = now_ms;
    atomic_store(&r->busy, true);
    mailbox_post(r->owner, &m->mail.node);
    return PAUSE_MS;
}

static int64_t idle(void *owner)
{
    struct retention *r = owner;
    int64_t now_ms = clock_mono_ms();
    if (now_ms >= r->wal_due_ms) {
        trim_wal(r);
        r->wal_due_ms = now_ms + WAL_MS;
    }
    int64_t wait_ms = go_on(r, now_ms);
    return wait_ms < WAL_MS ? wait_ms : WAL_MS;
}

int retention_new(struct retention **out, const RetentionConfig *config, const char *data_dir,
                  struct mailbox *owner, struct error *err)
{
    const RetentionConfig defaults = RETENTION_CONFIG__INIT;
    config = config ? config : &defaults;
    struct retention *r = calloc(1, sizeof *r);
    if (!r) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "out of memory");
    }
    atomic_init(&r->busy, false);
    r->owner = owner;
    r->metrics_us = config->metrics_full_days * DAY_US;
    r->events_us = config->events_days * DAY_US;
    r->logs_us = config->logs_days * DAY_US;
    snprintf(r->data_dir, sizeof r->data_dir, "%s", data_dir);
    if (worker_new(&r->worker, "sweep", r, idle, err) != 0) {
        free(r);
        return -1;
    }
    *out = r;
    return 0;
}

void retention_stop(struct retention *r)
{
    if (r) {
        worker_free(r->worker);
        r->worker = NULL;
    }
}

void retention_free(struct retention *r)
{
    if (r) {
        retention_stop(r);
        free(r);
    }
}
