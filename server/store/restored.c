/* What a restored database must not believe: that its ids are the last that were given out, and
 * that its attempts are those that run. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "server/store/backup.h"
#include "server/store/sql.h"
#include "server/store/store.h"

/* Ids that may have been given out since the backup, where nothing tells how many. */
#define IDS_UNKNOWN 1000000
#define JOBS_UNKNOWN 1000

/* ---- sequences ---- */

static int64_t old_sequence(sqlite3 *old, const char *table)
{
    sqlite3_stmt *q;
    int64_t seq = -1;
    if (old && sqlite3_prepare_v2(old, "SELECT max(seq) FROM sqlite_sequence WHERE name = ?", -1,
                                  &q, NULL) == SQLITE_OK) {
        sqlite3_bind_text(q, 1, table, -1, SQLITE_STATIC);
        seq = sqlite3_step(q) == SQLITE_ROW ? sqlite3_column_int64(q, 0) : -1;
        sqlite3_finalize(q);
    }
    return seq;
}

static int raise_sequence(struct store *s, const char *table, int64_t to, struct error *err)
{
    return sql_exec(s, err, "UPDATE sqlite_sequence SET seq = max(seq, ?2) WHERE name = ?1", "ti",
                    table, to);
}

static int raise_sequences(struct store *s, sqlite3 *old, int64_t last_job, struct error *err)
{
    /* A table that never had a row has no line yet. */
    if (sql_script(s,
                   "INSERT INTO sqlite_sequence (name, seq) SELECT name, 0 FROM sqlite_schema "
                   "WHERE type = 'table' AND sql LIKE '%AUTOINCREMENT%' AND "
                   "name NOT IN (SELECT name FROM sqlite_sequence)",
                   err) != 0) {
        return -1;
    }
    char names[64][64];
    int num = 0;
    sqlite3_stmt *q = sql_query(s, err, "SELECT name FROM sqlite_sequence", "");
    int rc = q ? 0 : -1;
    while (q && (rc = sql_step(s, q, err)) == 1) {
        ASSERT(num < 64);
        sql_text(q, 0, names[num++], sizeof names[0]);
    }
    for (int i = 0; rc == 0 && i < num; i++) {
        bool jobs = strcmp(names[i], "jobs") == 0;
        int64_t seq = old_sequence(old, names[i]), by = jobs ? JOBS_UNKNOWN : IDS_UNKNOWN;
        rc = seq >= 0
                 ? raise_sequence(s, names[i], seq, err)
                 : sql_exec(s, err, "UPDATE sqlite_sequence SET seq = seq + ?2 WHERE name = ?1",
                            "ti", names[i], by);
    }
    return rc == 0 ? raise_sequence(s, "jobs", last_job, err) : -1;
}

/* ---- who may come in ---- */

/* What was taken away since the backup stays away: else a restore would let a stolen token in
 * again. Needs an old database that can be read. */
static int copy_refusals(struct store *s, sqlite3 *old, const char *from, const char *to,
                         struct error *err)
{
    sqlite3_stmt *q, *set;
    if (!old || sqlite3_prepare_v2(old, from, -1, &q, NULL) != SQLITE_OK) {
        return 0;
    }
    int rc = sqlite3_prepare_v2(s->db, to, -1, &set, NULL);
    while (rc == SQLITE_OK && sqlite3_step(q) == SQLITE_ROW) {
        for (int i = 0; i < sqlite3_column_count(q); i++) {
            sqlite3_bind_value(set, i + 1, sqlite3_column_value(q, i));
        }
        rc = sqlite3_step(set) == SQLITE_DONE ? SQLITE_OK : sqlite3_errcode(s->db);
        sqlite3_reset(set);
    }
    sqlite3_finalize(q);
    sqlite3_finalize(set);
    return rc == SQLITE_OK ? 0 : sql_error(s, rc, to, err);
}

static int keep_refusals(struct store *s, sqlite3 *old, struct error *err)
{
    if (copy_refusals(s, old,
                      "SELECT sha256, max(revoked_us, 1) FROM tokens "
                      "WHERE revoked_us <> 0 OR expired <> 0",
                      "UPDATE tokens SET revoked_us = ?2 WHERE sha256 = ?1 AND revoked_us = 0",
                      err) != 0 ||
        copy_refusals(s, old, "SELECT name FROM tenants WHERE disabled <> 0",
                      "UPDATE tenants SET disabled = 1 WHERE name = ?1", err) != 0) {
        return -1;
    }
    return copy_refusals(s, old, "SELECT tenant, name FROM users WHERE disabled <> 0",
                         "UPDATE users SET disabled = 1 WHERE tenant = ?1 AND name = ?2", err);
}

/* ---- jobs ---- */

static int by_job(const void *a, const void *b)
{
    const struct store_seen *x = a, *y = b;
    return (x->job > y->job) - (x->job < y->job);
}

static int tell(struct store *s, const struct job_row *row, JobState to, const char *cause,
                const char *message, struct error *err)
{
    Event e = EVENT__INIT;
    e.has_job_id = e.has_time_us = e.has_from = e.has_to = 1;
    e.job_id = row->id;
    e.time_us = clock_wall_us();
    e.kind = (char *)(uintptr_t) "state";
    e.from = row->state;
    e.to = to;
    e.cause = (char *)(uintptr_t)cause;
    e.actor = (char *)(uintptr_t) "restore";
    e.message = (char *)(uintptr_t)message;
    return store_event_insert(s, &e, err);
}

/* The number after all that may have been used, as an attempt that is over: whoever comes with an
 * older one is stale. It hides nothing of the curve. */
static int close_attempts(struct store *s, struct job_row *row, int32_t highest, struct error *err)
{
    struct attempt_row none = {.number = highest + 1,
                               .condition = ATTEMPT_GONE,
                               .start_step = row->step,
                               .created_us = clock_wall_us()};
    none.ended_us = none.gone_us = none.created_us;
    row->attempt.number = none.number;
    return store_attempt_insert(s, row->id, &none, "", "", 0, err);
}

static int settle_job(struct store *s, int64_t id, const struct store_seen *seen, struct error *err)
{
    struct job_row row;
    if (store_job_get(s, id, &row, err) != 1) {
        return -1;
    }
    bool live = row.state < JOB_SUCCEEDED;
    int32_t known = row.attempt.number,
            highest = seen && seen->attempt > known ? seen->attempt : known;
    bool further = highest > known || (live && seen && seen->exported);
    JobState to = row.state;
    const char *message = "the database was restored from a backup";
    if (row.state == JOB_STOPPING && row.target) {
        to = (JobState)row.target;
    } else if (live && further) {
        to = JOB_HELD;
        message = "it went on after the backup that was restored: look at what its folder holds, "
                  "then release or cancel it";
    } else if (row.state == JOB_STARTING || row.state == JOB_RUNNING || row.state == JOB_STOPPING) {
        to = JOB_QUEUED;
    }
    if (highest > 0 && (live || highest > known) && close_attempts(s, &row, highest, err) != 0) {
        return -1;
    }
    if (to != row.state) {
        if (tell(s, &row, to, "restored", message, err) != 0) {
            return -1;
        }
        row.state = to;
        row.target = 0;
        row.waits_us = to == JOB_QUEUED ? clock_wall_us() : 0;
        row.not_before_us = 0;
        row.ended_us = to >= JOB_SUCCEEDED ? clock_wall_us() : row.ended_us;
        snprintf(row.cause, sizeof row.cause, "restored");
        snprintf(row.message, sizeof row.message, "%s", message);
    }
    return store_job_update(s, &row, err);
}

/* Jobs that may run again, and those that were seen to have gone further. */
static int settle_jobs(struct store *s, struct store_seen *seen, size_t num, struct error *err)
{
    int64_t id = 0;
    qsort(seen, num, sizeof *seen, by_job);
    for (;;) {
        sqlite3_stmt *q =
            sql_query(s, err, "SELECT id FROM jobs WHERE id > ? ORDER BY id LIMIT 1", "i", id);
        int rc = q ? sql_step(s, q, err) : -1;
        if (rc != 1) {
            return rc;
        }
        id = sqlite3_column_int64(q, 0);
        sql_done(q);
        struct store_seen key = {.job = id};
        if (settle_job(s, id, bsearch(&key, seen, num, sizeof *seen, by_job), err) != 0) {
            return -1;
        }
    }
}

/* Whatever ran when the backup was made holds nothing any more. How long it did after the last that
 * is on record of it nobody knows: that isn't counted. */
static int end_attempts(struct store *s, struct error *err)
{
    return sql_exec(s, err,
                    "UPDATE attempts SET gone_us = max(created_us, ended_us, coalesce((SELECT "
                    "max(time_us) FROM events e WHERE e.job = attempts.job), 0)) "
                    "WHERE condition < ?1",
                    "w", (int)ATTEMPT_GONE) != 0 ||
                   sql_exec(s, err,
                            "UPDATE attempts SET condition = ?1, device_us = CASE WHEN gone_us - "
                            "created_us > ?2 / max(1, num_devices) THEN ?2 ELSE num_devices * "
                            "(gone_us - created_us) END WHERE condition < ?1",
                            "wi", (int)ATTEMPT_GONE, ATTEMPT_DEVICE_US_MAX) != 0
               ? -1
               : 0;
}

/* Nobody is on the way out for whom they were made. */
static int end_claims(struct store *s, struct error *err)
{
    return sql_exec(s, err, "UPDATE jobs SET claim = '' WHERE claim <> ''", "");
}

static int settle(struct store *s, sqlite3 *old, struct store_seen *seen, size_t num,
                  struct error *err)
{
    int64_t last_job = 0;
    for (size_t i = 0; i < num; i++) {
        last_job = seen[i].job > last_job ? seen[i].job : last_job;
    }
    if (store_begin(s, err) != 0) {
        return -1;
    }
    if (raise_sequences(s, old, last_job, err) != 0 || keep_refusals(s, old, err) != 0 ||
        end_attempts(s, err) != 0 || end_claims(s, err) != 0 ||
        settle_jobs(s, seen, num, err) != 0 || store_commit(s, err) != 0) {
        store_rollback(s);
        return -1;
    }
    return 0;
}

int store_restored(const char *path, const char *old, const struct store_seen *seen,
                   size_t num_seen, struct error *err)
{
    struct store *s;
    sqlite3 *before = NULL;
    if (store_open(&s, path, err) != 0) {
        return -1;
    }
    if (old && sqlite3_open_v2(old, &before, SQLITE_OPEN_READWRITE, NULL) != SQLITE_OK) {
        log_warn("%s can't be read: %s", old, sqlite3_errmsg(before));
        sqlite3_close(before);
        before = NULL;
    }
    struct store_seen *copy = calloc(num_seen + 1, sizeof *copy);
    ASSERT(copy);
    if (num_seen) {
        memcpy(copy, seen, num_seen * sizeof *copy);
    }
    int rc = settle(s, before, copy, num_seen, err);
    /* One file again, to be put in place as one. */
    if (rc == 0) {
        rc = sql_script(s, "PRAGMA journal_mode = DELETE", err);
    }
    free(copy);
    sqlite3_close(before);
    store_close(s);
    return rc;
}
