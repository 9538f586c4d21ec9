/* Curves out of chunks and rollups, against the plainest model: a list of rows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "server/curve.h"
#include "server/msg.h"
#include "server/store/metric_codec.h"
#include "tests/effort.h"
#include "tests/unit/store_fixture.h"

#define ATTEMPTS_MAX 6

/* ---- random choices, by seed ---- */

struct dice {
    uint64_t seed, draws;
};

static int64_t draw(struct dice *d, int64_t below)
{
    return (int64_t)(rng_u64(d->seed, 77, d->draws++) % (uint64_t)below);
}

static double draw_value(struct dice *d)
{
    int64_t kind = draw(d, 40);
    double v = rng_normal(d->seed, 78, d->draws++);
    return kind == 0 ? (double)NAN : kind == 1 ? (double)INFINITY : kind < 6 ? 1.5 : v;
}

/* ---- the model ---- */

struct model {
    struct metric_row *rows; /* by (step, attempt) */
    size_t num, cap;
    int64_t start[ATTEMPTS_MAX + 1];
    int32_t num_attempts;
};

static bool model_add(struct model *m, const struct metric_row *r)
{
    size_t at = m->num;
    while (at > 0 && !metric_before(&m->rows[at - 1], r)) {
        at--;
    }
    if (at < m->num && !metric_before(r, &m->rows[at])) {
        return false;
    }
    if (m->num == m->cap) {
        m->cap = m->cap ? 2 * m->cap : 1024;
        m->rows = realloc(m->rows, m->cap * sizeof *m->rows);
        assert_non_null(m->rows);
    }
    memmove(&m->rows[at + 1], &m->rows[at], (m->num - at) * sizeof *m->rows);
    m->rows[at] = *r;
    m->num++;
    return true;
}

static bool model_shows(const struct model *m, const struct metric_row *r, int64_t from, int64_t to,
                        int32_t attempt)
{
    if (r->step < from || (to && r->step > to)) {
        return false;
    }
    if (attempt) {
        return r->attempt == attempt;
    }
    for (int32_t a = r->attempt + 1; a <= m->num_attempts; a++) {
        if (m->start[a] < r->step) {
            return false;
        }
    }
    return true;
}

/* a better than b, by value; NaN above all. */
static bool beats(double a, double b, bool low)
{
    if (isnan(a) || isnan(b)) {
        return low ? !isnan(a) && isnan(b) : isnan(a) && !isnan(b);
    }
    return low ? a < b : a > b;
}

struct thinned {
    struct metric_row rows[4096];
    size_t num;
};

static void keep(struct thinned *t, const struct metric_row *r, size_t since)
{
    size_t at = t->num;
    while (at > since && !metric_before(&t->rows[at - 1], r)) {
        at--;
    }
    if (at < t->num && !metric_before(r, &t->rows[at])) {
        return;
    }
    assert_true(t->num < 4096);
    memmove(&t->rows[at + 1], &t->rows[at], (t->num - at) * sizeof *r);
    t->rows[at] = *r;
    t->num++;
}

/* rows: those shown. The definition: spans are runs of blocks of steps; of each, the first smallest
 * and the first largest row of each series; and both ends of the curve. */
static void model_thin(const struct metric_row *rows, size_t num, int64_t points, const int *series,
                       int num_series, struct thinned *t)
{
    int64_t room = (points - 2) / 2, steps = rows[num - 1].step - rows[0].step + 1;
    int extremes = room < num_series ? (int)room : num_series;
    int64_t spans = room / extremes, block = store_metric_block(steps / spans);
    int64_t first = (rows[0].step - 1) / block;
    int64_t blocks = (rows[num - 1].step - 1) / block - first + 1;
    t->num = 0;
    for (size_t i = 0; i < num;) {
        size_t end = i, since = t->num;
        int64_t span = ((rows[i].step - 1) / block - first) * spans / blocks;
        while (end < num && ((rows[end].step - 1) / block - first) * spans / blocks == span) {
            end++;
        }
        for (int k = 0; k < extremes; k++) {
            for (int low = 0; low < 2; low++) {
                size_t best = i;
                for (size_t n = i + 1; n < end; n++) {
                    double a = rows[n].values[series[k]], b = rows[best].values[series[k]];
                    best = beats(a, b, low) ? n : best;
                }
                keep(t, &rows[best], since);
            }
        }
        if (i == 0) {
            keep(t, &rows[0], since);
        }
        if (end == num) {
            keep(t, &rows[num - 1], since);
        }
        i = end;
    }
}

/* Few points are made up to as many as were asked for, from the middle of the widest gap. */
static void model_fill(const struct metric_row *rows, size_t num, int64_t points, struct thinned *t)
{
    bool closed[256] = {false};
    while ((int64_t)t->num < points) {
        size_t best = t->num, found = num;
        int64_t width = 1;
        for (size_t i = 0; i + 1 < t->num; i++) {
            int64_t w = t->rows[i + 1].step - t->rows[i].step;
            if (w > width && !closed[i]) {
                best = i;
                width = w;
            }
        }
        if (best == t->num) {
            return;
        }
        int64_t first = t->rows[best].step + 1, last = t->rows[best + 1].step - 1;
        int64_t middle = first + (last - first) / 2;
        for (size_t i = num; i-- > 0;) {
            if (rows[i].step >= middle && rows[i].step <= last) {
                found = i;
            }
        }
        for (size_t i = num; i-- > 0 && !(found < num && rows[found].step >= middle);) {
            if (rows[i].step >= first && rows[i].step < middle) {
                found = i;
            }
        }
        if (found == num) {
            closed[best] = true;
            continue;
        }
        memmove(&t->rows[best + 2], &t->rows[best + 1], (t->num - best - 1) * sizeof t->rows[0]);
        memmove(&closed[best + 2], &closed[best + 1], (t->num - best - 1) * sizeof closed[0]);
        closed[best + 1] = false;
        t->rows[best + 1] = rows[found];
        t->num++;
    }
}

/* ---- one comparison ---- */

static bool same(double a, double b)
{
    return isnan(a) ? isnan(b) : memcmp(&a, &b, sizeof a) == 0;
}

static const char *const names[METRIC_SERIES] = {"loss",    "grad_norm",    "lr", "tokens",
                                                 "step_ms", "tokens_per_s", "mfu"};

static void compare(struct store *s, int64_t job, const struct model *m, struct dice *d)
{
    static struct thinned t;
    GetMetricsRequest q = GET_METRICS_REQUEST__INIT;
    int64_t top = m->num ? m->rows[m->num - 1].step + 2 : 10;
    q.from = draw(d, 3) ? 0 : draw(d, top);
    q.to = draw(d, 3) ? 0 : q.from + draw(d, top);
    q.attempt = draw(d, 4) ? 0 : (int32_t)(1 + draw(d, m->num_attempts));
    q.points = draw(d, 5) ? 4 + draw(d, draw(d, 2) ? 60 : 1000) : 0;
    int series[METRIC_SERIES];
    char *list[METRIC_SERIES];
    int num_series = draw(d, 2) ? 1 : METRIC_SERIES;
    for (int i = 0; i < num_series; i++) {
        series[i] = num_series == 1 ? (int)draw(d, METRIC_SERIES) : i;
        list[i] = (char *)(uintptr_t)names[series[i]];
    }
    q.series = list;
    q.n_series = (size_t)num_series;

    struct metric_row *rows = calloc(m->num + 1, sizeof *rows);
    size_t num = 0;
    for (size_t i = 0; i < m->num; i++) {
        if (model_shows(m, &m->rows[i], q.from, q.to, q.attempt)) {
            rows[num++] = m->rows[i];
        }
    }
    const struct metric_row *want = rows;
    size_t num_want = num;
    if (q.points && (int64_t)num > q.points) {
        model_thin(rows, num, q.points, series, num_series, &t);
        if (q.points <= 128) {
            model_fill(rows, num, q.points, &t);
        }
        want = t.rows;
        num_want = t.num;
    }
    Metrics *got;
    struct error err = {0};
    if (curve_read(s, &q, job, &got, &err) != 0) {
        fail_msg("%s", err.text);
    }
    assert_true(q.points == 0 || (int64_t)num_want <= q.points);
    bool equal = got->n_steps == num_want && got->n_gaps == 0 && !got->has_thinned;
    for (size_t i = 0; equal && i < num_want; i++) {
        equal = got->steps[i] == want[i].step && got->attempts[i] == want[i].attempt;
        for (int k = 0; equal && k < num_series; k++) {
            equal = same(got->columns[k]->values[i], want[i].values[series[k]]);
        }
    }
    if (!equal) {
        fail_msg("TANDEM_SEED=%llu: from %lld to %lld attempt %d points %lld series %d: %zu rows, "
                 "wanted %zu",
                 (unsigned long long)d->seed, (long long)q.from, (long long)q.to, q.attempt,
                 (long long)q.points, num_series, got->n_steps, num_want);
    }
    msg_free(got);
    free(rows);
}

struct follower {
    const struct model *m;
    int32_t attempt;
    int64_t step;
    size_t num;
};

static bool follow(void *arg, const StepMetrics *got)
{
    struct follower *f = arg;
    assert_true(got->attempt > f->attempt || (got->attempt == f->attempt && got->step > f->step));
    f->attempt = got->attempt;
    f->step = got->step;
    f->num++;
    return true;
}

/* In pieces, as a watcher reads: all visible rows, each once, in the order of attempts. */
static void compare_after(struct store *s, int64_t job, const struct model *m, struct dice *d)
{
    struct follower f = {.m = m};
    size_t before, want = 0;
    do {
        before = f.num;
        int32_t limit = 1 + (int32_t)draw(d, 3000);
        assert_int_equal(store_metric_after(s, job, f.attempt, f.step, limit, follow, &f, NULL), 0);
        assert_true(f.num - before <= (size_t)limit);
    } while (f.num > before);
    for (size_t i = 0; i < m->num; i++) {
        want += model_shows(m, &m->rows[i], 0, 0, 0);
    }
    assert_int_equal(f.num, want);
}

/* ---- random ingest ---- */

static void insert(struct store *s, int64_t job, const struct metric_row *r)
{
    StepMetrics m = STEP_METRICS__INIT;
    m.job_id = job;
    m.step = r->step;
    m.attempt = r->attempt;
    m.has_tokens = 1;
    m.tokens = r->tokens;
    m.has_loss = m.has_grad_norm = m.has_lr = m.has_step_ms = m.has_tokens_per_s = m.has_mfu = 1;
    m.loss = r->values[0];
    m.grad_norm = r->values[1];
    m.lr = r->values[2];
    m.step_ms = r->values[4];
    m.tokens_per_s = r->values[5];
    m.mfu = r->values[6];
    struct error err = {0};
    if (store_metric_insert(s, &m, &err) != 0) {
        fail_msg("%s", err.text);
    }
}

static struct metric_row random_row(struct dice *d, int32_t attempt, int64_t step)
{
    struct metric_row r = {.step = step, .attempt = attempt, .tokens = step * 7 + draw(d, 5)};
    for (int i = 0; i < METRIC_SERIES; i++) {
        r.values[i] = i == 6 ? (double)NAN : i == 2 ? 1e-3 : draw_value(d);
    }
    r.values[METRIC_TOKENS] = (double)r.tokens;
    return r;
}

struct world {
    struct store_fixture *f;
    struct model m;
    struct dice d;
    int64_t job, newest;
};

/* Rows of one transaction: mostly the next steps; some come again, some come late. */
static void batch(struct world *w)
{
    struct store *s = w->f->s;
    int64_t num = 1 + draw(&w->d, 700), stride = draw(&w->d, 3) ? 1 : 1 + draw(&w->d, 400);
    bool lost = draw(&w->d, 8) == 0;
    int64_t newest = w->newest;
    assert_int_equal(store_begin(s, NULL), 0);
    for (int64_t i = 0; i < num; i++) {
        int64_t kind = draw(&w->d, 100), step = newest + 1 + draw(&w->d, stride);
        if (kind < 4 && newest > 0) {
            step = 1 + draw(&w->d, newest);
        }
        newest = step > newest ? step : newest;
        struct metric_row r = random_row(&w->d, w->m.num_attempts, step);
        bool undone = draw(&w->d, 200) == 0;
        assert_int_equal(store_savepoint(s, NULL), 0);
        insert(s, w->job, &r);
        assert_int_equal(undone ? store_undo(s, NULL) : store_release(s, NULL), 0);
        if (!lost && !undone) {
            model_add(&w->m, &r);
        }
    }
    if (lost) {
        store_rollback(s);
    } else {
        assert_int_equal(store_commit(s, NULL), 0);
        w->newest = newest;
    }
}

static void next_attempt(struct world *w)
{
    int64_t start = w->newest ? draw(&w->d, w->newest + 1) : 0;
    start = w->m.num_attempts == 0 || draw(&w->d, 6) == 0 ? 0 : start;
    w->m.num_attempts++;
    w->m.start[w->m.num_attempts] = start;
    w->newest = start;
    store_fixture_attempt(w->f->s, w->job, w->m.num_attempts, start);
}

static void random_case(struct store_fixture *f, uint64_t seed)
{
    struct world w = {.f = f, .d = {.seed = seed}};
    w.job = store_fixture_job(f->s, "one");
    next_attempt(&w);
    int64_t num = 4 + draw(&w.d, 16);
    for (int64_t i = 0; i < num; i++) {
        batch(&w);
        int64_t what = draw(&w.d, 12);
        if (what < 2 && w.m.num_attempts < ATTEMPTS_MAX) {
            next_attempt(&w);
        } else if (what == 2) {
            store_close(f->s);
            assert_int_equal(store_open(&f->s, f->path, NULL), 0);
        } else if (what == 3) {
            int64_t rows;
            assert_int_equal(store_metric_fold(f->s, w.job, draw(&w.d, 3) == 0, 2000, &rows, NULL),
                             0);
        }
        compare(f->s, w.job, &w.m, &w.d);
    }
    for (int i = 0; i < 40; i++) {
        compare(f->s, w.job, &w.m, &w.d);
    }
    compare_after(f->s, w.job, &w.m, &w.d);
    free(w.m.rows);
}

/* Scenario 31, and: no metric twice or missing, whatever came in whatever order. Every query gives
 * what it gives on a plain list of rows. TANDEM_SEED=N runs one case, TANDEM_FULL=1 many. */
static void every_query_equals_the_plain_model(void **state)
{
    const char *one = getenv("TANDEM_SEED");
    uint64_t first = one ? strtoull(one, NULL, 10) : 1;
    uint64_t num = one ? 1 : (uint64_t)effort(400, 24, 4);
    for (uint64_t seed = first; seed < first + num; seed++) {
        random_case(*state, seed);
    }
}

/* ---- bytes ---- */

static void packed_rows_come_back_and_damage_is_found(void **state)
{
    (void)state;
    struct dice d = {.seed = 5};
    static struct metric_row rows[METRIC_CHUNK_STEPS], back[METRIC_CHUNK_STEPS];
    for (int i = 0; i < 60; i++) {
        size_t num = i == 0 ? METRIC_CHUNK_STEPS : 1 + (size_t)draw(&d, METRIC_CHUNK_STEPS), got;
        for (size_t k = 0; k < num; k++) {
            rows[k] = random_row(&d, 3, 5000 + (int64_t)k);
            rows[k].tokens = draw(&d, 2) ? INT64_MIN + (int64_t)k : INT64_MAX;
        }
        struct buf b = {0};
        metric_pack_rows(rows, num, &b);
        assert_int_equal(metric_unpack_rows(b.data, b.len, 3, 5000, 9000, back, &got), 0);
        assert_int_equal(got, num);
        for (size_t k = 0; k < num; k++) {
            assert_int_equal(back[k].step, rows[k].step);
            assert_int_equal(back[k].tokens, rows[k].tokens);
            for (int n = 0; n < METRIC_SERIES; n++) {
                assert_true(n == METRIC_TOKENS || same(back[k].values[n], rows[k].values[n]));
            }
        }
        assert_int_equal(metric_unpack_rows(b.data, b.len, 3, 5001, 9000, back, &got), -1);
        for (int k = 0; k < 50; k++) {
            size_t at = (size_t)draw(&d, (int64_t)b.len);
            b.data[at] = (char)(b.data[at] ^ (1 << draw(&d, 8)));
            assert_int_equal(metric_unpack_rows(b.data, b.len, 3, 1, 9000, back, &got), -1);
            assert_int_equal(metric_unpack_rows(b.data, at, 3, 1, 9000, back, &got), -1);
            b.data[at] = 77;
        }
        buf_free(&b);
    }
}

/* ---- damage ---- */

static void meddle(const struct store_fixture *f, const char *sql)
{
    sqlite3 *db;
    assert_int_equal(sqlite3_open(f->path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    assert_true(sqlite3_changes(db) > 0);
    sqlite3_close(db);
}

static void fill(struct store_fixture *f, struct world *w, int64_t steps)
{
    *w = (struct world){.f = f, .d = {.seed = 9}};
    w->job = store_fixture_job(f->s, "one");
    next_attempt(w);
    assert_int_equal(store_begin(f->s, NULL), 0);
    for (int64_t s = 1; s <= steps; s++) {
        struct metric_row r = random_row(&w->d, 1, s);
        insert(f->s, w->job, &r);
        model_add(&w->m, &r);
    }
    assert_int_equal(store_commit(f->s, NULL), 0);
}

/* Scenario 3: a chunk that is damaged is a gap that the reply names, not the end of the curve. */
static void a_damaged_chunk_is_a_gap_that_the_reply_names(void **state)
{
    struct store_fixture *f = *state;
    struct world w;
    fill(f, &w, 6000);
    meddle(f, "UPDATE metric_chunks SET data = substr(data, 1, length(data) - 1) WHERE chunk = 2");
    GetMetricsRequest q = GET_METRICS_REQUEST__INIT;
    Metrics *m;
    assert_int_equal(curve_read(f->s, &q, w.job, &m, NULL), 0);
    assert_int_equal(m->n_steps, 6000 - 1024);
    assert_int_equal(m->n_gaps, 1);
    assert_int_equal(m->gaps[0]->from, 2049);
    assert_int_equal(m->gaps[0]->to, 3072);
    assert_int_equal(m->gaps[0]->attempt, 1);
    msg_free(m);
    /* A row for it changes nothing, and one for another chunk is still known. */
    struct metric_row r = w.m.rows[2500];
    insert(f->s, w.job, &r);
    r = w.m.rows[10];
    insert(f->s, w.job, &r);
    assert_int_equal(curve_read(f->s, &q, w.job, &m, NULL), 0);
    assert_int_equal(m->n_steps, 6000 - 1024);
    msg_free(m);
    free(w.m.rows);
}

/* A rollup is only a short cut. */
static void curves_are_the_same_without_the_rollups(void **state)
{
    struct store_fixture *f = *state;
    struct world w;
    fill(f, &w, 20000);
    meddle(f, "UPDATE metric_rollups SET data = substr(data, 1, 20) WHERE level = 2 AND block = 1");
    meddle(f, "DELETE FROM metric_rollups WHERE level = 1 AND block IN (3, 5)");
    meddle(f, "UPDATE metric_chunks SET blocks = x'00' WHERE chunk = 5");
    for (int i = 0; i < 60; i++) {
        compare(f->s, w.job, &w.m, &w.d);
    }
    free(w.m.rows);
}

int main(void)
{
#define WITH_STORE(test)                                                                           \
    cmocka_unit_test_setup_teardown(test, store_fixture_setup, store_fixture_teardown)
    const struct CMUnitTest tests[] = {
        WITH_STORE(every_query_equals_the_plain_model),
        cmocka_unit_test(packed_rows_come_back_and_damage_is_found),
        WITH_STORE(a_damaged_chunk_is_a_gap_that_the_reply_names),
        WITH_STORE(curves_are_the_same_without_the_rollups),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
