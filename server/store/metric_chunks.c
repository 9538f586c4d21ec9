/* How rows get into chunks.
 *
 * New rows go to table metrics, an attempt's tail. Once a row of a later chunk has come, the tail's
 * oldest chunk is complete: it is written as one row, with the extremes that curves are drawn from,
 * and its rows leave metrics, all in the transaction of the row that caused it. So a row is in one
 * of the two tables at any time, and which one is decided by the attempt's newest chunk alone. A
 * row that comes late, for a chunk that is written, is put into it (a step that is there stays as
 * it is).
 *
 * A table that was large before there were chunks has many complete ones: they are made as rows
 * come in, a thousand rows for each 512 new ones, and by store_metric_fold. */
#include "server/store/metric_chunks.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "server/store/metric_codec.h"
#include "server/store/store.h"

/* New rows for each piece of work, and rows that a piece ends at. */
#define CREDIT (METRIC_CHUNK_STEPS / 2)
#define PIECE_ROWS METRIC_CHUNK_STEPS

void metric_row_read(sqlite3_stmt *q, struct metric_row *r)
{
    r->step = sqlite3_column_int64(q, 0);
    r->attempt = sqlite3_column_int(q, 1);
    for (int i = 0; i < METRIC_SERIES; i++) {
        r->values[i] = sql_double(q, 2 + i);
    }
    r->tokens = sqlite3_column_int64(q, 2 + METRIC_TOKENS);
    r->values[METRIC_TOKENS] = (double)r->tokens;
}

/* ---- one chunk ---- */

/* Once for each chunk: a curve may be drawn every second. */
static void tell_damaged(struct store *s, const struct metric_chunk *c)
{
    for (size_t i = 0; i < SQL_TOLD_MAX; i++) {
        const struct metric_told *t = &s->told[i];
        if (t->job == c->job && t->attempt == c->attempt && t->chunk == c->chunk) {
            return;
        }
    }
    s->told[s->num_told++ % SQL_TOLD_MAX] = (struct metric_told){c->job, c->chunk, c->attempt};
    int64_t first = c->chunk * METRIC_CHUNK_STEPS + 1;
    log_error("job %lld: metrics of steps %lld to %lld of attempt %d are damaged in the database "
              "and left out",
              (long long)c->job, (long long)first, (long long)first + METRIC_CHUNK_STEPS - 1,
              c->attempt);
}

int metric_chunk_read(struct store *s, struct metric_chunk *c, struct error *err)
{
    sqlite3_stmt *q = sql_query(s, err,
                                "SELECT thinned, data FROM metric_chunks WHERE job = ? AND "
                                "attempt = ? AND chunk = ?",
                                "iwi", c->job, c->attempt, c->chunk);
    int rc = q ? sql_step(s, q, err) : -1;
    if (rc != 1) {
        return rc;
    }
    c->thinned = sqlite3_column_int(q, 0) != 0;
    int64_t first = c->chunk * METRIC_CHUNK_STEPS + 1;
    if (metric_unpack_rows(sqlite3_column_blob(q, 1), (size_t)sqlite3_column_bytes(q, 1),
                           c->attempt, first, first + METRIC_CHUNK_STEPS - 1, c->rows,
                           &c->num) != 0) {
        tell_damaged(s, c);
        rc = -2;
    }
    sql_done(q);
    return rc;
}

static int write_rollup(struct store *s, const struct metric_chunk *c, int level, int64_t block,
                        const struct metric_extremes *e, struct error *err)
{
    struct buf packed = {0};
    metric_pack_extremes(e, 1, &packed);
    int rc = sql_exec(s, err,
                      "INSERT INTO metric_rollups (job, attempt, level, block, data) VALUES "
                      "(?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET data = excluded.data",
                      "iwwib", c->job, c->attempt, level, block,
                      &(struct sql_blob){packed.data, packed.len});
    buf_free(&packed);
    return rc;
}

int metric_chunk_write(struct store *s, const struct metric_chunk *c, struct error *err)
{
    struct metric_extremes blocks[METRIC_CHUNK_BLOCKS], whole = {0};
    size_t num = 0;
    int64_t block = -1;
    for (size_t i = 0; i < c->num; i++) {
        int64_t mine = (c->rows[i].step - 1) / METRIC_BLOCK_STEPS;
        if (mine != block) {
            block = mine;
            blocks[num++].any = false;
        }
        metric_extremes_add(&blocks[num - 1], &c->rows[i]);
    }
    for (size_t i = 0; i < num; i++) {
        metric_extremes_merge(&whole, &blocks[i]);
    }
    struct buf rollup = {0}, data = {0};
    if (!c->thinned) {
        metric_pack_extremes(blocks, num, &rollup);
    }
    metric_pack_rows(c->rows, c->num, &data);
    int rc = sql_exec(
        s, err,
        "INSERT INTO metric_chunks (job, attempt, chunk, rows, first_step, last_step, thinned, "
        "blocks, data) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET "
        "rows = excluded.rows, first_step = excluded.first_step, last_step = excluded.last_step, "
        "thinned = excluded.thinned, blocks = excluded.blocks, data = excluded.data",
        "iwiwiiwbb", c->job, c->attempt, c->chunk, (int)c->num, c->rows[0].step,
        c->rows[c->num - 1].step, (int)c->thinned, &(struct sql_blob){rollup.data, rollup.len},
        &(struct sql_blob){data.data, data.len});
    buf_free(&rollup);
    buf_free(&data);
    return rc == 0 ? write_rollup(s, c, 1, c->chunk, &whole, err) : -1;
}

/* ---- rollups above a chunk ---- */

/* Out of the blocks below it. If one of them is damaged it is left out: readers then look below. */
static int build_rollup(struct store *s, const struct metric_chunk *c, int level, int64_t block,
                        struct error *err)
{
    sqlite3_stmt *q = sql_query(s, err,
                                "SELECT block, data FROM metric_rollups WHERE job = ? AND "
                                "attempt = ? AND level = ? AND block BETWEEN ? AND ?",
                                "iwwii", c->job, c->attempt, level - 1, 4 * block, 4 * block + 3);
    if (!q) {
        return -1;
    }
    struct metric_extremes whole = {0}, parts[METRIC_CHUNK_BLOCKS];
    bool damaged = false;
    int rc;
    while ((rc = sql_step(s, q, err)) == 1) {
        int64_t first = sqlite3_column_int64(q, 0) * metric_level_steps(level - 1) + 1;
        size_t num;
        if (metric_unpack_extremes(sqlite3_column_blob(q, 1), (size_t)sqlite3_column_bytes(q, 1),
                                   c->attempt, first, first + metric_level_steps(level - 1) - 1,
                                   parts, &num) == 0) {
            metric_extremes_merge(&whole, &parts[0]);
        } else {
            damaged = true;
        }
    }
    if (rc < 0) {
        return -1;
    }
    if (damaged) {
        return sql_exec(s, err,
                        "DELETE FROM metric_rollups WHERE job = ? AND attempt = ? AND level = ? "
                        "AND block = ?",
                        "iwwi", c->job, c->attempt, level, block);
    }
    return whole.any ? write_rollup(s, c, level, block, &whole, err) : 0;
}

/* A block is built once the newest chunk is its last one or lies behind it. before: the newest
 * chunk before c was written. */
static int build_rollups(struct store *s, const struct metric_chunk *c, int64_t before,
                         struct error *err)
{
    int64_t newest = c->chunk > before ? c->chunk : before;
    for (int level = 2; level <= METRIC_LEVELS; level++) {
        int shift = 2 * (level - 1);
        int64_t block = c->chunk >> shift, old = before >> shift;
        bool complete = ((block + 1) << shift) - 1 <= newest;
        bool left = before >= 0 && old < block;
        /* What was complete then was built then. */
        if (left && ((old + 1) << shift) - 1 > before && build_rollup(s, c, level, old, err) != 0) {
            return -1;
        }
        if (complete && build_rollup(s, c, level, block, err) != 0) {
            return -1;
        }
        if (!complete && !left) {
            break;
        }
    }
    return 0;
}

/* ---- tails ---- */

int metric_chunks_newest(struct store *s, int64_t job, int32_t attempt, int64_t *out,
                         struct error *err)
{
    sqlite3_stmt *q = sql_query(s, err,
                                "SELECT chunk FROM metric_chunks WHERE job = ? AND attempt = ? "
                                "ORDER BY chunk DESC LIMIT 1",
                                "iw", job, attempt);
    int rc = q ? sql_step(s, q, err) : -1;
    if (rc >= 0) {
        *out = rc == 1 ? sqlite3_column_int64(q, 0) : -1;
        sql_done(q);
    }
    return rc < 0 ? -1 : 0;
}

static int find_lowest(struct store *s, struct metric_tail *t, int64_t after_step,
                       struct error *err)
{
    sqlite3_stmt *q = sql_query(s, err,
                                "SELECT step FROM metrics WHERE job = ? AND step > ? AND "
                                "attempt = ? ORDER BY step LIMIT 1",
                                "iiw", t->job, after_step, t->attempt);
    int rc = q ? sql_step(s, q, err) : -1;
    if (rc < 0) {
        return -1;
    }
    t->lowest = rc == 1 ? metric_chunk_of(sqlite3_column_int64(q, 0)) : INT64_MAX;
    sql_done(q);
    return 0;
}

static struct metric_tail *find_tail(struct store *s, int64_t job, int32_t attempt,
                                     struct error *err)
{
    if (!s->tails) {
        s->tails = calloc(SQL_TAILS_MAX, sizeof *s->tails);
        ASSERT(s->tails);
    }
    struct metric_tail *t = &s->tails[((uint64_t)job * 31 + (uint64_t)attempt) % SQL_TAILS_MAX];
    if (t->job == job && t->attempt == attempt) {
        return t;
    }
    struct metric_tail found = {.job = job, .attempt = attempt};
    if (metric_chunks_newest(s, job, attempt, &found.newest, err) != 0 ||
        find_lowest(s, &found, 0, err) != 0) {
        return NULL;
    }
    *t = found;
    return t;
}

void metric_chunks_forget(struct store *s)
{
    if (s->tails) {
        memset(s->tails, 0, SQL_TAILS_MAX * sizeof *s->tails);
    }
}

int metric_chunks_take_late(struct store *s, const struct metric_row *r, int64_t job, bool *taken,
                            struct error *err)
{
    const struct metric_tail *t = find_tail(s, job, r->attempt, err);
    *taken = false;
    if (!t) {
        return -1;
    }
    if (metric_chunk_of(r->step) > t->newest) {
        return 0;
    }
    *taken = true;
    struct metric_chunk c = {.job = job, .attempt = r->attempt, .chunk = metric_chunk_of(r->step)};
    int rc = metric_chunk_read(s, &c, err);
    if (rc < 0) {
        return rc == -2 ? 0 : -1; /* it was most likely there */
    }
    size_t at = 0;
    while (at < c.num && c.rows[at].step < r->step) {
        at++;
    }
    if (at < c.num && c.rows[at].step == r->step) {
        return 0;
    }
    memmove(&c.rows[at + 1], &c.rows[at], (c.num - at) * sizeof *c.rows);
    c.rows[at] = *r;
    c.num++;
    if (metric_chunk_write(s, &c, err) != 0) {
        return -1;
    }
    return build_rollups(s, &c, t->newest, err);
}

/* The tail's lowest chunk. Adds its rows to *rows. */
static int fold_one(struct store *s, struct metric_tail *t, int64_t *rows, struct error *err)
{
    struct metric_chunk c = {.job = t->job, .attempt = t->attempt, .chunk = t->lowest};
    int64_t first = c.chunk * METRIC_CHUNK_STEPS + 1, last = first + METRIC_CHUNK_STEPS - 1;
    sqlite3_stmt *q = sql_query(s, err,
                                "SELECT " METRIC_COLUMNS " FROM metrics WHERE job = ? AND "
                                "step BETWEEN ? AND ? AND attempt = ? ORDER BY step",
                                "iiiw", c.job, first, last, c.attempt);
    if (!q) {
        return -1;
    }
    int rc;
    while ((rc = sql_step(s, q, err)) == 1) {
        ASSERT(c.num < METRIC_CHUNK_STEPS);
        metric_row_read(q, &c.rows[c.num++]);
    }
    ASSERT(rc < 0 || c.num > 0);
    if (rc < 0 || metric_chunk_write(s, &c, err) != 0 ||
        build_rollups(s, &c, t->newest, err) != 0 ||
        sql_exec(s, err,
                 "DELETE FROM metrics WHERE job = ? AND step BETWEEN ? AND ? AND attempt = ?",
                 "iiiw", c.job, first, last, c.attempt) != 0) {
        return -1;
    }
    t->newest = c.chunk;
    *rows += (int64_t)c.num;
    return find_lowest(s, t, last, err);
}

int metric_chunks_added(struct store *s, const struct metric_row *r, int64_t job, struct error *err)
{
    struct metric_tail *t = find_tail(s, job, r->attempt, err);
    if (!t) {
        return -1;
    }
    int64_t chunk = metric_chunk_of(r->step), rows = 0;
    t->lowest = chunk < t->lowest ? chunk : t->lowest;
    t->credit++;
    if (chunk <= t->lowest || t->credit < CREDIT) {
        return 0;
    }
    t->credit = 0;
    while (t->lowest < chunk && rows < PIECE_ROWS) {
        if (fold_one(s, t, &rows, err) != 0) {
            metric_chunks_forget(s);
            return -1;
        }
    }
    return 0;
}

static int last_of(struct store *s, const struct metric_tail *t, int64_t *last, struct error *err)
{
    sqlite3_stmt *q = sql_query(s, err,
                                "SELECT step FROM metrics WHERE job = ? AND attempt = ? "
                                "ORDER BY step DESC LIMIT 1",
                                "iw", t->job, t->attempt);
    int rc = q ? sql_step(s, q, err) : -1;
    if (rc == 1) {
        *last = metric_chunk_of(sqlite3_column_int64(q, 0));
        sql_done(q);
    }
    return rc;
}

static int fold_attempt(struct store *s, int64_t job, int32_t attempt, bool whole, int64_t max_rows,
                        int64_t *rows, struct error *err)
{
    struct metric_tail *t = find_tail(s, job, attempt, err);
    int64_t last;
    int rc = t ? last_of(s, t, &last, err) : -1;
    while (rc == 1 && *rows < max_rows && t->lowest < last + whole) {
        if (fold_one(s, t, rows, err) != 0) {
            metric_chunks_forget(s);
            return -1;
        }
    }
    return rc < 0 ? -1 : 0;
}

int store_metric_fold(struct store *s, int64_t job, bool whole, int64_t max_rows, int64_t *rows,
                      struct error *err)
{
    *rows = 0;
    int32_t attempt = 0;
    while (*rows < max_rows) {
        sqlite3_stmt *q = sql_query(s, err,
                                    "SELECT number FROM attempts WHERE job = ? AND number > ? "
                                    "ORDER BY number LIMIT 1",
                                    "iw", job, attempt);
        int rc = q ? sql_step(s, q, err) : -1;
        if (rc != 1) {
            return rc;
        }
        attempt = sqlite3_column_int(q, 0);
        sql_done(q);
        if (fold_attempt(s, job, attempt, whole, max_rows, rows, err) != 0) {
            return -1;
        }
    }
    return 0;
}

int store_metric_next_job(struct store *s, int64_t after, int64_t *job, struct error *err)
{
    sqlite3_stmt *q =
        sql_query(s, err, "SELECT job FROM metrics WHERE job > ? ORDER BY job LIMIT 1", "i", after);
    int rc = q ? sql_step(s, q, err) : -1;
    if (rc == 1) {
        *job = sqlite3_column_int64(q, 0);
        sql_done(q);
    }
    return rc;
}
