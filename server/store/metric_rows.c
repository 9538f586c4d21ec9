/* Table metrics, and which of its rows the shown curve has.
 *
 * An attempt covers the steps after its start_step, so it hides what earlier attempts have there:
 * row (step, attempt a) is visible up to the smallest start_step of the attempts after a. */
#include "server/store/store.h"

#include <math.h>
#include <stdlib.h>

#include "base/buf.h"
#include "server/store/sql.h"

#define METRIC_COLUMNS "step, attempt, loss, grad_norm, lr, tokens, step_ms, tokens_per_s, mfu"

static double or_nan(protobuf_c_boolean has, double value)
{
    return has ? value : (double)NAN;
}

int store_metric_insert(struct store *s, const StepMetrics *m, struct error *err)
{
    return sql_exec(s, err,
                    "INSERT INTO metrics (job, " METRIC_COLUMNS ") VALUES "
                    "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                    "iiwdddiddd", m->job_id, m->step, m->attempt, or_nan(m->has_loss, m->loss),
                    or_nan(m->has_grad_norm, m->grad_norm), or_nan(m->has_lr, m->lr),
                    m->has_tokens ? m->tokens : (int64_t)0, or_nan(m->has_step_ms, m->step_ms),
                    or_nan(m->has_tokens_per_s, m->tokens_per_s), or_nan(m->has_mfu, m->mfu));
}

/* Last visible step of each attempt, index = number. */
struct limits {
    int64_t *last; /* owned */
    int32_t num;
};

static int read_limits(struct store *s, int64_t job, struct limits *out, struct error *err)
{
    sqlite3_stmt *q = sql_query(
        s, err, "SELECT number, start_step FROM attempts WHERE job = ? ORDER BY number DESC", "i",
        job);
    if (!q) {
        return -1;
    }
    out->last = NULL;
    out->num = 0;
    int64_t limit = INT64_MAX;
    int rc;
    while ((rc = sql_step(s, q, err)) == 1) {
        int32_t number = sqlite3_column_int(q, 0);
        if (!out->last) {
            out->num = number + 1;
            out->last = calloc((size_t)out->num, sizeof *out->last);
            if (!out->last) {
                sql_done(q);
                return error_set(err, ERR_RESOURCE_EXHAUSTED, "out of memory");
            }
        }
        out->last[number] = limit;
        int64_t start = sqlite3_column_int64(q, 1);
        limit = start < limit ? start : limit;
    }
    if (rc < 0) {
        free(out->last);
        return -1;
    }
    return 0;
}

static bool visible(const struct limits *l, int32_t attempt, int64_t step)
{
    return attempt < 0 || attempt >= l->num || step <= l->last[attempt];
}

static void set(double value, protobuf_c_boolean *has, double *out)
{
    *has = !isnan(value);
    *out = value;
}

static void read_metric(sqlite3_stmt *q, int64_t job, StepMetrics *m)
{
    *m = (StepMetrics)STEP_METRICS__INIT;
    m->has_job_id = m->has_step = m->has_attempt = m->has_tokens = 1;
    m->job_id = job;
    m->step = sqlite3_column_int64(q, 0);
    m->attempt = sqlite3_column_int(q, 1);
    set(sql_double(q, 2), &m->has_loss, &m->loss);
    set(sql_double(q, 3), &m->has_grad_norm, &m->grad_norm);
    set(sql_double(q, 4), &m->has_lr, &m->lr);
    m->tokens = sqlite3_column_int64(q, 5);
    set(sql_double(q, 6), &m->has_step_ms, &m->step_ms);
    set(sql_double(q, 7), &m->has_tokens_per_s, &m->tokens_per_s);
    set(sql_double(q, 8), &m->has_mfu, &m->mfu);
}

/* Hands the visible rows (all, if limits is NULL) of q to fn, at most max. 1 = stopped early. */
static int hand_rows(struct store *s, sqlite3_stmt *q, int64_t job, const struct limits *limits,
                     int32_t *max, store_metric_fn fn, void *arg, struct error *err)
{
    int rc;
    while ((rc = sql_step(s, q, err)) == 1) {
        StepMetrics m;
        read_metric(q, job, &m);
        if (limits && !visible(limits, m.attempt, m.step)) {
            continue;
        }
        if (!fn(arg, &m) || --*max <= 0) {
            sql_done(q);
            return 1;
        }
    }
    return rc;
}

int store_metric_scan(struct store *s, const struct store_metric_range *range, store_metric_fn fn,
                      void *arg, struct error *err)
{
    struct limits limits;
    if (read_limits(s, range->job, &limits, err) != 0) {
        return -1;
    }
    sqlite3_stmt *q = sql_query(
        s, err,
        "SELECT " METRIC_COLUMNS " FROM metrics WHERE job = ?1 AND step >= ?2 AND "
        "step <= ?3 AND (attempt = ?4 OR ?4 = 0) ORDER BY step, attempt",
        "iiiw", range->job, range->from, range->to > 0 ? range->to : INT64_MAX, range->attempt);
    int32_t max = INT32_MAX;
    int rc =
        q ? hand_rows(s, q, range->job, range->attempt ? NULL : &limits, &max, fn, arg, err) : -1;
    free(limits.last);
    return rc < 0 ? -1 : 0;
}

int store_metric_after(struct store *s, int64_t job, int32_t attempt, int64_t step, int32_t limit,
                       store_metric_fn fn, void *arg, struct error *err)
{
    struct limits limits;
    if (read_limits(s, job, &limits, err) != 0) {
        return -1;
    }
    int rc = 0;
    for (int32_t a = attempt > 1 ? attempt : 1; rc == 0 && a < limits.num; a++) {
        sqlite3_stmt *q =
            sql_query(s, err,
                      "SELECT " METRIC_COLUMNS " FROM metrics WHERE job = ?1 AND "
                      "step > ?2 AND step <= ?3 AND attempt = ?4 ORDER BY step",
                      "iiiw", job, a == attempt ? step : (int64_t)0, limits.last[a], a);
        rc = q ? hand_rows(s, q, job, NULL, &limit, fn, arg, err) : -1;
    }
    free(limits.last);
    return rc < 0 ? -1 : 0;
}
