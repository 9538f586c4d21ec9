#include "server/store/sweep_rows.h"

#include "server/store/metric_chunks.h"
#include "server/store/sql.h"

/* Ended, before ?1, and nothing of it runs any more. */
#define ENDED                                                                                      \
    "j.state >= 7 AND j.ended_us > 0 AND j.ended_us < ?1 AND NOT EXISTS "                          \
    "(SELECT 1 FROM attempts a WHERE a.job = j.id AND a.condition < 5) "

static int read_jobs(struct store *s, sqlite3_stmt *q, struct sweep_job *jobs, size_t max,
                     size_t *num, struct error *err)
{
    int rc = q ? 0 : -1;
    *num = 0;
    while (q && (rc = sql_step(s, q, err)) == 1) {
        ASSERT(*num < max);
        jobs[(*num)++] = (struct sweep_job){.job = sqlite3_column_int64(q, 0),
                                            .ended_us = sqlite3_column_int64(q, 1),
                                            .attempt = sqlite3_column_int(q, 2)};
    }
    return rc;
}

int sweep_ended(struct store *s, int64_t before_us, struct sweep_cursor *at, struct sweep_job *jobs,
                size_t max, size_t *num, struct error *err)
{
    sqlite3_stmt *q = sql_query(s, err,
                                "SELECT j.id, j.ended_us, j.attempt FROM jobs j WHERE " ENDED
                                "AND (j.ended_us, j.id) > (?2, ?3) ORDER BY j.ended_us, j.id "
                                "LIMIT ?4",
                                "iiiw", before_us, at->ended_us, at->job, (int)max);
    int rc = read_jobs(s, q, jobs, max, num, err);
    if (rc == 0 && *num > 0) {
        *at = (struct sweep_cursor){jobs[*num - 1].ended_us, jobs[*num - 1].job};
    }
    return rc;
}

/* ---- curves ---- */

/* The rows that are extremes of their block, in their order. */
static void thin_rows(struct metric_chunk *c)
{
    bool keep[METRIC_CHUNK_STEPS] = {false};
    size_t num = 0;
    for (size_t i = 0; i < c->num;) {
        struct metric_extremes e = {0};
        int64_t block = (c->rows[i].step - 1) / METRIC_BLOCK_STEPS;
        size_t first = i;
        for (; i < c->num && (c->rows[i].step - 1) / METRIC_BLOCK_STEPS == block; i++) {
            metric_extremes_add(&e, &c->rows[i]);
        }
        for (size_t k = first; k < i; k++) {
            int64_t step = c->rows[k].step;
            keep[k] = step == e.first.step || step == e.last.step;
            for (int n = 0; n < METRIC_SERIES; n++) {
                keep[k] = keep[k] || step == e.min[n].step || step == e.max[n].step;
            }
        }
    }
    for (size_t i = 0; i < c->num; i++) {
        if (keep[i]) {
            c->rows[num++] = c->rows[i];
        }
    }
    c->num = num;
}

static int thin_chunk(struct store *s, struct metric_chunk *c, struct error *err)
{
    int rc = metric_chunk_read(s, c, err);
    if (rc == 1) {
        thin_rows(c);
        c->thinned = true;
        return metric_chunk_write(s, c, err);
    }
    /* Damaged: nothing to gain from it, and it isn't looked at again. */
    return rc == -2 ? sql_exec(s, err,
                               "UPDATE metric_chunks SET thinned = 1 WHERE job = ? AND "
                               "attempt = ? AND chunk = ?",
                               "iwi", c->job, c->attempt, c->chunk)
                    : -1;
}

int sweep_metrics(struct store *s, int64_t job, int max, int *num, struct error *err)
{
    struct metric_chunk c = {.job = job};
    for (*num = 0; *num < max; ++*num) {
        sqlite3_stmt *q = sql_query(s, err,
                                    "SELECT attempt, chunk FROM metric_chunks WHERE job = ? AND "
                                    "thinned = 0 LIMIT 1",
                                    "i", job);
        int rc = q ? sql_step(s, q, err) : -1;
        if (rc != 1) {
            return rc;
        }
        c.attempt = sqlite3_column_int(q, 0);
        c.chunk = sqlite3_column_int64(q, 1);
        sql_done(q);
        if (thin_chunk(s, &c, err) != 0) {
            return -1;
        }
    }
    return 0;
}

/* ---- events, keys ---- */

int sweep_events(struct store *s, int64_t job, int max, int *num, struct error *err)
{
    if (sql_exec(s, err,
                 "DELETE FROM events WHERE id IN (SELECT id FROM events WHERE job = ? "
                 "ORDER BY id LIMIT ?)",
                 "iw", job, max) != 0) {
        return -1;
    }
    *num = sqlite3_changes(s->db);
    return 0;
}

int sweep_keys(struct store *s, int64_t job, struct error *err)
{
    return sql_exec(s, err, "DELETE FROM idempotency_keys WHERE job = ?", "i", job);
}

/* ---- logs ---- */

int sweep_logs_mark(struct store *s, int64_t job, struct error *err)
{
    return sql_exec(s, err,
                    "UPDATE jobs SET logs_going = 1 WHERE id = ? AND logs_going = 0 AND "
                    "logs_removed_us < ended_us",
                    "i", job);
}

int sweep_logs_going(struct store *s, int64_t after, struct sweep_job *jobs, size_t max,
                     size_t *num, struct error *err)
{
    return read_jobs(s,
                     sql_query(s, err,
                               "SELECT id, ended_us, attempt FROM jobs WHERE logs_going = 1 "
                               "AND id > ? ORDER BY id LIMIT ?",
                               "iw", after, (int)max),
                     jobs, max, num, err);
}

int sweep_logs_done(struct store *s, const struct sweep_job *job, struct error *err)
{
    return sql_exec(s, err, "UPDATE jobs SET logs_going = 0, logs_removed_us = ?2 WHERE id = ?1",
                    "ii", job->job, job->ended_us);
}
