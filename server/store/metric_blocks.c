/* What a thinned curve is drawn from: extents, and the extremes of blocks of steps.
 *
 * A range is covered top down: rollups of the level asked for where a whole block is visible, lower
 * levels for what is left at the ends, for blocks that are not built yet and for damaged ones, rows
 * for the rest. So the shown part of an attempt that a later one cuts short, and the tail of one
 * that runs, need a thousand rows or so each, and everything between is read in proportion to what
 * is drawn. */
#include "server/store/store.h"

#include "base/buf.h"
#include "server/store/metric_chunks.h"
#include "server/store/metric_codec.h"
#include "server/store/metric_visible.h"

struct walk {
    struct store *s;
    int64_t job;
    int32_t attempt;
    const struct store_metric_visitor *v;
};

struct steps {
    int64_t first, last;
};

int64_t store_metric_block(int64_t max_steps)
{
    if (max_steps < METRIC_CHUNK_STEPS) {
        return max_steps < METRIC_BLOCK_STEPS ? 1 : METRIC_BLOCK_STEPS;
    }
    int level = 1;
    while (level < METRIC_LEVELS && metric_level_steps(level + 1) <= max_steps) {
        level++;
    }
    return metric_level_steps(level);
}

/* ---- rows and blocks of chunks ---- */

static int walk_rows(const struct walk *w, int64_t chunk, struct steps part, struct error *err)
{
    struct metric_chunk c = {.job = w->job, .attempt = w->attempt, .chunk = chunk};
    int rc = metric_chunk_read(w->s, &c, err);
    int64_t first = chunk * METRIC_CHUNK_STEPS + 1;
    if (rc == -2 || (rc == 1 && c.thinned)) {
        w->v->gap(w->v->arg, rc == 1 ? METRIC_THINNED : METRIC_DAMAGED, w->attempt, first,
                  first + METRIC_CHUNK_STEPS - 1);
    }
    for (size_t i = 0; rc == 1 && i < c.num; i++) {
        if (c.rows[i].step >= part.first && c.rows[i].step <= part.last) {
            w->v->row(w->v->arg, &c.rows[i]);
        }
    }
    return rc == -1 ? -1 : 0;
}

/* Chunks that need their rows read are put on the list: they are read after the query. */
static void take_blocks(const struct walk *w, sqlite3_stmt *q, struct steps part, bool blocks,
                        struct buf *rest)
{
    int64_t chunk = sqlite3_column_int64(q, 0), first = chunk * METRIC_CHUNK_STEPS + 1;
    int64_t last = first + METRIC_CHUNK_STEPS - 1;
    struct metric_extremes list[METRIC_CHUNK_BLOCKS];
    size_t num;
    blocks = blocks && sqlite3_column_int64(q, 1) >= part.first &&
             sqlite3_column_int64(q, 2) <= part.last;
    if (!blocks ||
        metric_unpack_extremes(sqlite3_column_blob(q, 3), (size_t)sqlite3_column_bytes(q, 3),
                               w->attempt, first, last, list, &num) != 0) {
        buf_append(rest, &chunk, sizeof chunk);
        return;
    }
    for (size_t i = 0; i < num; i++) {
        w->v->block(w->v->arg, &list[i]);
    }
}

static int walk_chunks(const struct walk *w, struct steps part, bool blocks, struct error *err)
{
    sqlite3_stmt *q = sql_query(
        w->s, err,
        "SELECT chunk, first_step, last_step, blocks FROM metric_chunks WHERE job = ? AND "
        "attempt = ? AND chunk BETWEEN ? AND ? ORDER BY chunk",
        "iwii", w->job, w->attempt, metric_chunk_of(part.first), metric_chunk_of(part.last));
    if (!q) {
        return -1;
    }
    struct buf rest = {0};
    int rc;
    while ((rc = sql_step(w->s, q, err)) == 1) {
        take_blocks(w, q, part, blocks, &rest);
    }
    const int64_t *chunks = (const int64_t *)(void *)rest.data;
    for (size_t i = 0; rc == 0 && i < rest.len / sizeof *chunks; i++) {
        rc = walk_rows(w, chunks[i], part, err);
    }
    buf_free(&rest);
    return rc;
}

/* ---- rollups ---- */

static int walk_level(const struct walk *w, int level, struct steps part, struct error *err);

/* Blocks first_block .. last_block of the level; steps of those that can't be had go to `rest`. */
static int take_rollups(const struct walk *w, int level, int64_t first_block, int64_t last_block,
                        struct buf *rest, struct error *err)
{
    sqlite3_stmt *q = sql_query(w->s, err,
                                "SELECT block, data FROM metric_rollups WHERE job = ? AND "
                                "attempt = ? AND level = ? AND block BETWEEN ? AND ? "
                                "ORDER BY block",
                                "iwwii", w->job, w->attempt, level, first_block, last_block);
    if (!q) {
        return -1;
    }
    int64_t size = metric_level_steps(level), want = first_block;
    int rc;
    while ((rc = sql_step(w->s, q, err)) == 1) {
        int64_t block = sqlite3_column_int64(q, 0);
        struct metric_extremes list[METRIC_CHUNK_BLOCKS];
        size_t num;
        if (metric_unpack_extremes(sqlite3_column_blob(q, 1), (size_t)sqlite3_column_bytes(q, 1),
                                   w->attempt, block * size + 1, (block + 1) * size, list,
                                   &num) != 0) {
            continue;
        }
        if (want < block) {
            struct steps gap = {want * size + 1, block * size};
            buf_append(rest, &gap, sizeof gap);
        }
        w->v->block(w->v->arg, &list[0]);
        want = block + 1;
    }
    if (want <= last_block) {
        struct steps gap = {want * size + 1, (last_block + 1) * size};
        buf_append(rest, &gap, sizeof gap);
    }
    return rc;
}

static int walk_rollups(const struct walk *w, int level, struct steps part, struct error *err)
{
    int64_t size = metric_level_steps(level);
    int64_t first = (part.first - 1 + size - 1) / size, last = part.last / size - 1;
    if (first > last) {
        return walk_level(w, level - 1, part, err);
    }
    struct buf rest = {0};
    int rc = take_rollups(w, level, first, last, &rest, err);
    const struct steps *parts = (const struct steps *)(void *)rest.data;
    for (size_t i = 0; rc == 0 && i < rest.len / sizeof *parts; i++) {
        rc = walk_level(w, level - 1, parts[i], err);
    }
    buf_free(&rest);
    if (rc == 0 && part.first <= first * size) {
        rc = walk_level(w, level - 1, (struct steps){part.first, first * size}, err);
    }
    if (rc == 0 && (last + 1) * size < part.last) {
        rc = walk_level(w, level - 1, (struct steps){(last + 1) * size + 1, part.last}, err);
    }
    return rc;
}

/* Level 0: blocks inside of chunks; -1: rows. */
static int walk_level(const struct walk *w, int level, struct steps part, struct error *err)
{
    return level >= 1 ? walk_rollups(w, level, part, err) : walk_chunks(w, part, level == 0, err);
}

/* ---- all of a range ---- */

static int walk_tails(struct store *s, int64_t job, const struct metric_visible *v,
                      const struct store_metric_visitor *to, struct error *err)
{
    sqlite3_stmt *q = sql_query(s, err,
                                "SELECT " METRIC_COLUMNS
                                " FROM metrics WHERE job = ?1 AND step >= ?2 AND step <= ?3 AND "
                                "(attempt = ?4 OR ?4 = 0) ORDER BY step, attempt",
                                "iiiw", job, v->from, v->to, v->only);
    if (!q) {
        return -1;
    }
    int rc;
    while ((rc = sql_step(s, q, err)) == 1) {
        struct metric_row r;
        metric_row_read(q, &r);
        if (r.step <= metric_visible_last(v, r.attempt)) {
            to->row(to->arg, &r);
        }
    }
    return rc;
}

int store_metric_blocks(struct store *s, const struct store_metric_range *range,
                        int64_t block_steps, const struct store_metric_visitor *v,
                        struct error *err)
{
    struct metric_visible visible;
    if (metric_visible_read(s, range, &visible, err) != 0) {
        return -1;
    }
    int level = block_steps >= METRIC_CHUNK_STEPS ? 1 : block_steps >= METRIC_BLOCK_STEPS ? 0 : -1;
    while (level >= 1 && metric_level_steps(level) < block_steps) {
        level++;
    }
    int rc = 0;
    for (int32_t i = 0; i < visible.num_with_chunks && rc == 0; i++) {
        struct walk w = {.s = s, .job = range->job, .attempt = visible.with_chunks[i], .v = v};
        struct steps part = {visible.from, metric_visible_last(&visible, w.attempt)};
        int64_t newest;
        rc = metric_chunks_newest(s, w.job, w.attempt, &newest, err);
        if (rc == 0 && part.last > (newest + 1) * METRIC_CHUNK_STEPS) {
            part.last = (newest + 1) * METRIC_CHUNK_STEPS;
        }
        if (rc == 0 && part.first <= part.last) {
            rc = walk_level(&w, level, part, err);
        }
    }
    rc = rc == 0 ? walk_tails(s, range->job, &visible, v, err) : rc;
    metric_visible_free(&visible);
    return rc;
}

/* ---- extents ---- */

static void count_row(void *arg, const struct metric_row *r)
{
    struct store_metric_extent *e = arg;
    e->first = e->rows == 0 || r->step < e->first ? r->step : e->first;
    e->last = e->rows == 0 || r->step > e->last ? r->step : e->last;
    e->rows++;
}

static void count_gap(void *arg, enum store_metric_loss what, int32_t attempt, int64_t first,
                      int64_t last)
{
    (void)arg, (void)what, (void)attempt, (void)first, (void)last;
}

/* The chunk that q stands at. 1: some of its rows are in part. */
static int count_chunk(const struct walk *w, int64_t chunk, int64_t rows, struct steps has,
                       struct steps part, struct store_metric_extent *e, struct error *err)
{
    int64_t before = e->rows;
    if (has.first < part.first || has.last > part.last) {
        return walk_rows(w, chunk, part, err) != 0 ? -1 : e->rows > before;
    }
    struct metric_row ends[2] = {{.step = has.first}, {.step = has.last}};
    count_row(e, &ends[0]);
    count_row(e, &ends[1]);
    e->rows += rows - 2;
    return 1;
}

#define EXTENT_COLUMNS "chunk, rows, first_step, last_step"

/* From the front until there are more than limit rows; or only the last chunk with a row in part.
 */
static int count_chunks(const struct walk *w, struct steps part, bool from_end, int64_t limit,
                        struct error *err)
{
    struct store_metric_extent *e = w->v->arg;
    int64_t first = metric_chunk_of(part.first), last = metric_chunk_of(part.last);
    for (;;) {
        sqlite3_stmt *q =
            from_end ? sql_query(w->s, err,
                                 "SELECT " EXTENT_COLUMNS " FROM metric_chunks WHERE job = ? AND "
                                 "attempt = ? AND chunk BETWEEN ? AND ? ORDER BY chunk DESC "
                                 "LIMIT 1",
                                 "iwii", w->job, w->attempt, first, last)
                     : sql_query(w->s, err,
                                 "SELECT " EXTENT_COLUMNS " FROM metric_chunks WHERE job = ? AND "
                                 "attempt = ? AND chunk BETWEEN ? AND ? ORDER BY chunk LIMIT 1",
                                 "iwii", w->job, w->attempt, first, last);
        int rc = q ? sql_step(w->s, q, err) : -1;
        if (rc != 1) {
            return rc;
        }
        int64_t chunk = sqlite3_column_int64(q, 0), rows = sqlite3_column_int64(q, 1);
        struct steps has = {sqlite3_column_int64(q, 2), sqlite3_column_int64(q, 3)};
        sql_done(q);
        rc = count_chunk(w, chunk, rows, has, part, e, err);
        if (rc < 0 || (rc == 1 && (from_end || e->rows > limit))) {
            return rc < 0 ? -1 : 0;
        }
        first = from_end ? first : chunk + 1;
        last = from_end ? chunk - 1 : last;
    }
}

int store_metric_extent(struct store *s, const struct store_metric_range *range, int64_t limit,
                        struct store_metric_extent *out, struct error *err)
{
    struct metric_visible visible;
    struct store_metric_extent ends = {0};
    const struct store_metric_visitor count = {.row = count_row, .gap = count_gap, .arg = out};
    const struct store_metric_visitor end = {.row = count_row, .gap = count_gap, .arg = &ends};
    *out = ends;
    if (metric_visible_read(s, range, &visible, err) != 0) {
        return -1;
    }
    int rc = walk_tails(s, range->job, &visible, &count, err);
    for (int32_t i = 0; i < visible.num_with_chunks && rc == 0; i++) {
        struct walk w = {.s = s, .job = range->job, .attempt = visible.with_chunks[i]};
        struct steps part = {visible.from, metric_visible_last(&visible, w.attempt)};
        if (part.first > part.last) {
            continue;
        }
        w.v = &count;
        rc = count_chunks(&w, part, false, limit, err);
        w.v = &end;
        rc = rc == 0 ? count_chunks(&w, part, true, 0, err) : rc;
    }
    out->last = ends.rows && ends.last > out->last ? ends.last : out->last;
    metric_visible_free(&visible);
    return rc;
}
