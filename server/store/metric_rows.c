/* Rows of metrics, one by one: taken in, and handed out in their order whether they lie in chunks
 * or in an attempt's tail. */
#include "server/store/store.h"

#include <stdlib.h>

#include "base/buf.h"
#include "server/store/metric_chunks.h"
#include "server/store/metric_visible.h"

static double or_nan(protobuf_c_boolean has, double value)
{
    return has ? value : (double)NAN;
}

int store_metric_insert(struct store *s, const StepMetrics *m, struct error *err)
{
    struct metric_row r = {
        .step = m->step,
        .attempt = m->attempt,
        .tokens = m->has_tokens ? m->tokens : 0,
        .values = {or_nan(m->has_loss, m->loss), or_nan(m->has_grad_norm, m->grad_norm),
                   or_nan(m->has_lr, m->lr), (double)(m->has_tokens ? m->tokens : 0),
                   or_nan(m->has_step_ms, m->step_ms), or_nan(m->has_tokens_per_s, m->tokens_per_s),
                   or_nan(m->has_mfu, m->mfu)}};
    bool taken;
    ASSERT(r.step >= 1);
    if (metric_chunks_take_late(s, &r, m->job_id, &taken, err) != 0) {
        return -1;
    }
    if (taken) {
        return 0;
    }
    const double *v = r.values;
    if (sql_exec(s, err,
                 "INSERT INTO metrics (job, " METRIC_COLUMNS ") VALUES "
                 "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                 "iiwdddiddd", m->job_id, r.step, r.attempt, v[0], v[1], v[2], r.tokens, v[4], v[5],
                 v[6]) != 0) {
        return -1;
    }
    return metric_chunks_added(s, &r, m->job_id, err);
}

/* ---- in the order of a curve ---- */

struct key {
    int64_t chunk;
    int32_t attempt;
    int64_t last; /* visible step */
};

static int by_chunk(const void *a, const void *b)
{
    const struct key *x = a, *y = b;
    return x->chunk != y->chunk ? (x->chunk < y->chunk ? -1 : 1)
                                : (x->attempt > y->attempt) - (x->attempt < y->attempt);
}

static int by_step(const void *a, const void *b)
{
    return metric_before(b, a) - metric_before(a, b);
}

struct scan {
    struct store *s;
    int64_t job;
    struct metric_visible visible;
    struct key *keys; /* owned */
    size_t num_keys;
    sqlite3_stmt *tail; /* NULL = at its end */
    struct metric_row tail_row;
    struct buf window; /* rows of one chunk number */
    store_row_fn fn;
    store_metric_gap_fn gap;
    void *arg;
};

static int read_keys(struct scan *sc, struct error *err)
{
    struct buf list = {0};
    int rc = 0;
    for (int32_t i = 0; i < sc->visible.num_with_chunks && rc == 0; i++) {
        struct key k = {.attempt = sc->visible.with_chunks[i]};
        k.last = metric_visible_last(&sc->visible, k.attempt);
        if (k.last < sc->visible.from) {
            continue;
        }
        sqlite3_stmt *q = sql_query(sc->s, err,
                                    "SELECT chunk FROM metric_chunks WHERE job = ? AND "
                                    "attempt = ? AND chunk BETWEEN ? AND ? ORDER BY chunk",
                                    "iwii", sc->job, k.attempt, metric_chunk_of(sc->visible.from),
                                    metric_chunk_of(k.last));
        rc = q ? 0 : -1;
        while (q && (rc = sql_step(sc->s, q, err)) == 1) {
            k.chunk = sqlite3_column_int64(q, 0);
            buf_append(&list, &k, sizeof k);
        }
    }
    sc->num_keys = list.len / sizeof(struct key);
    sc->keys = (struct key *)(void *)buf_take(&list);
    if (sc->visible.num_with_chunks > 1) {
        qsort(sc->keys, sc->num_keys, sizeof(struct key), by_chunk);
    }
    return rc;
}

static int next_tail(struct scan *sc, struct error *err)
{
    int rc;
    while ((rc = sql_step(sc->s, sc->tail, err)) == 1) {
        metric_row_read(sc->tail, &sc->tail_row);
        if (sc->tail_row.step <= metric_visible_last(&sc->visible, sc->tail_row.attempt)) {
            return 0;
        }
    }
    sc->tail = NULL;
    return rc;
}

/* Tail rows before r (NULL: all). 1 = stopped. */
static int hand_tail(struct scan *sc, const struct metric_row *r, struct error *err)
{
    while (sc->tail && (!r || metric_before(&sc->tail_row, r))) {
        if (!sc->fn(sc->arg, &sc->tail_row)) {
            return 1;
        }
        if (next_tail(sc, err) != 0) {
            return -1;
        }
    }
    return 0;
}

static int add_chunk(struct scan *sc, const struct key *k, struct error *err)
{
    struct metric_chunk c = {.job = sc->job, .attempt = k->attempt, .chunk = k->chunk};
    int rc = metric_chunk_read(sc->s, &c, err);
    int64_t first = k->chunk * METRIC_CHUNK_STEPS + 1, last = first + METRIC_CHUNK_STEPS - 1;
    if (sc->gap && (rc == -2 || (rc == 1 && c.thinned))) {
        sc->gap(sc->arg, rc == 1 ? METRIC_THINNED : METRIC_DAMAGED, k->attempt, first, last);
    }
    for (size_t i = 0; rc == 1 && i < c.num; i++) {
        if (c.rows[i].step >= sc->visible.from && c.rows[i].step <= k->last) {
            buf_append(&sc->window, &c.rows[i], sizeof *c.rows);
        }
    }
    return rc == -1 ? -1 : 0;
}

/* All attempts' chunks of the number that keys[i] has. 1 = stopped. */
static int hand_window(struct scan *sc, size_t *i, struct error *err)
{
    size_t begin = *i;
    buf_clear(&sc->window);
    for (; *i < sc->num_keys && sc->keys[*i].chunk == sc->keys[begin].chunk; ++*i) {
        if (add_chunk(sc, &sc->keys[*i], err) != 0) {
            return -1;
        }
    }
    struct metric_row *rows = (struct metric_row *)(void *)sc->window.data;
    size_t num = sc->window.len / sizeof *rows;
    if (*i - begin > 1 && num > 0) {
        qsort(rows, num, sizeof *rows, by_step);
    }
    for (size_t k = 0; k < num; k++) {
        int rc = hand_tail(sc, &rows[k], err);
        if (rc != 0 || !sc->fn(sc->arg, &rows[k])) {
            return rc != 0 ? rc : 1;
        }
    }
    return 0;
}

static int scan(struct scan *sc, struct error *err)
{
    if (read_keys(sc, err) != 0) {
        return -1;
    }
    sc->tail = sql_query(sc->s, err,
                         "SELECT " METRIC_COLUMNS " FROM metrics WHERE job = ?1 AND step >= ?2 AND "
                         "step <= ?3 AND (attempt = ?4 OR ?4 = 0) ORDER BY step, attempt",
                         "iiiw", sc->job, sc->visible.from, sc->visible.to, sc->visible.only);
    if (!sc->tail || next_tail(sc, err) != 0) {
        return -1;
    }
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < sc->num_keys;) {
        rc = hand_window(sc, &i, err);
    }
    return rc == 0 ? hand_tail(sc, NULL, err) : rc;
}

int store_metric_scan(struct store *s, const struct store_metric_range *range, store_row_fn fn,
                      store_metric_gap_fn gap, void *arg, struct error *err)
{
    struct scan sc = {.s = s, .job = range->job, .fn = fn, .gap = gap, .arg = arg};
    if (metric_visible_read(s, range, &sc.visible, err) != 0) {
        return -1;
    }
    int rc = scan(&sc, err);
    if (sc.tail) {
        sql_done(sc.tail);
    }
    metric_visible_free(&sc.visible);
    free(sc.keys);
    buf_free(&sc.window);
    return rc < 0 ? -1 : 0;
}

/* ---- in the order of attempts, for watchers ---- */

static void set(double value, protobuf_c_boolean *has, double *out)
{
    *has = !isnan(value);
    *out = value;
}

static bool hand_message(int64_t job, const struct metric_row *r, int32_t *limit,
                         store_metric_fn fn, void *arg)
{
    StepMetrics m = STEP_METRICS__INIT;
    m.has_job_id = m.has_step = m.has_attempt = m.has_tokens = 1;
    m.job_id = job;
    m.step = r->step;
    m.attempt = r->attempt;
    m.tokens = r->tokens;
    set(r->values[0], &m.has_loss, &m.loss);
    set(r->values[1], &m.has_grad_norm, &m.grad_norm);
    set(r->values[2], &m.has_lr, &m.lr);
    set(r->values[4], &m.has_step_ms, &m.step_ms);
    set(r->values[5], &m.has_tokens_per_s, &m.tokens_per_s);
    set(r->values[6], &m.has_mfu, &m.mfu);
    return fn(arg, &m) && --*limit > 0;
}

/* 1 = stopped. */
static int after_in_chunks(struct store *s, int64_t job, int32_t attempt, int64_t step,
                           int64_t last, int32_t *limit, store_metric_fn fn, void *arg,
                           struct error *err)
{
    struct metric_chunk c = {.job = job, .attempt = attempt, .chunk = metric_chunk_of(step + 1)};
    for (;; c.chunk++) {
        sqlite3_stmt *q = sql_query(s, err,
                                    "SELECT chunk FROM metric_chunks WHERE job = ? AND "
                                    "attempt = ? AND chunk >= ? AND chunk <= ? ORDER BY chunk "
                                    "LIMIT 1",
                                    "iwii", job, attempt, c.chunk, metric_chunk_of(last));
        int rc = q ? sql_step(s, q, err) : -1;
        if (rc != 1) {
            return rc;
        }
        c.chunk = sqlite3_column_int64(q, 0);
        sql_done(q);
        rc = metric_chunk_read(s, &c, err);
        if (rc == -1) {
            return -1;
        }
        for (size_t i = 0; rc == 1 && i < c.num; i++) {
            if (c.rows[i].step > step && c.rows[i].step <= last &&
                !hand_message(job, &c.rows[i], limit, fn, arg)) {
                return 1;
            }
        }
    }
}

static int after_in_tail(struct store *s, int64_t job, int32_t attempt, int64_t step, int64_t last,
                         int32_t *limit, store_metric_fn fn, void *arg, struct error *err)
{
    sqlite3_stmt *q = sql_query(s, err,
                                "SELECT " METRIC_COLUMNS " FROM metrics WHERE job = ?1 AND "
                                "step > ?2 AND step <= ?3 AND attempt = ?4 ORDER BY step",
                                "iiiw", job, step, last, attempt);
    if (!q) {
        return -1;
    }
    int rc;
    while ((rc = sql_step(s, q, err)) == 1) {
        struct metric_row r;
        metric_row_read(q, &r);
        if (!hand_message(job, &r, limit, fn, arg)) {
            sql_done(q);
            return 1;
        }
    }
    return rc;
}

int store_metric_after(struct store *s, int64_t job, int32_t attempt, int64_t step, int32_t limit,
                       store_metric_fn fn, void *arg, struct error *err)
{
    struct metric_visible v;
    struct store_metric_range range = {.job = job};
    if (metric_visible_read(s, &range, &v, err) != 0) {
        return -1;
    }
    int rc = 0;
    for (int32_t a = attempt > 1 ? attempt : 1; rc == 0 && a < v.num_last; a++) {
        int64_t from = a == attempt && step > 0 ? step : 0, last = metric_visible_last(&v, a);
        if (last > from) {
            rc = after_in_chunks(s, job, a, from, last, &limit, fn, arg, err);
            rc = rc == 0 ? after_in_tail(s, job, a, from, last, &limit, fn, arg, err) : rc;
        }
    }
    metric_visible_free(&v);
    return rc < 0 ? -1 : 0;
}
