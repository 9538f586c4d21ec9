#include "server/store/metric_visible.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "server/store/sql.h"

/* So that no sum of steps overflows. */
#define STEPS_MAX ((int64_t)1 << 60)

static int read_last(struct store *s, int64_t job, struct metric_visible *v, struct error *err)
{
    sqlite3_stmt *q = sql_query(
        s, err, "SELECT number, start_step FROM attempts WHERE job = ? ORDER BY number DESC", "i",
        job);
    if (!q) {
        return -1;
    }
    int64_t limit = INT64_MAX;
    int rc;
    while ((rc = sql_step(s, q, err)) == 1) {
        int32_t number = sqlite3_column_int(q, 0);
        if (!v->last) {
            v->num_last = number + 1;
            v->last = calloc((size_t)v->num_last, sizeof *v->last);
            if (!v->last) {
                sql_done(q);
                return error_set(err, ERR_RESOURCE_EXHAUSTED, "out of memory");
            }
        }
        v->last[number] = limit;
        int64_t start = sqlite3_column_int64(q, 1);
        limit = start < limit ? start : limit;
    }
    return rc;
}

static int read_attempts(struct store *s, int64_t job, struct metric_visible *v, struct error *err)
{
    struct buf list = {0};
    int32_t attempt = INT32_MIN;
    int rc;
    for (;;) {
        sqlite3_stmt *q = sql_query(s, err,
                                    "SELECT attempt FROM metric_chunks WHERE job = ? AND "
                                    "attempt > ? ORDER BY attempt LIMIT 1",
                                    "iw", job, attempt);
        rc = q ? sql_step(s, q, err) : -1;
        if (rc != 1) {
            break;
        }
        attempt = sqlite3_column_int(q, 0);
        sql_done(q);
        if (v->only == 0 || v->only == attempt) {
            buf_append(&list, &attempt, sizeof attempt);
        }
    }
    v->num_with_chunks = (int32_t)(list.len / sizeof attempt);
    v->with_chunks = (int32_t *)(void *)buf_take(&list);
    return rc;
}

int metric_visible_read(struct store *s, const struct store_metric_range *range,
                        struct metric_visible *out, struct error *err)
{
    struct metric_visible v = {.from = range->from > 1 ? range->from : 1,
                               .to = range->to > 0 && range->to < STEPS_MAX ? range->to : STEPS_MAX,
                               .only = range->attempt};
    if ((v.only == 0 && read_last(s, range->job, &v, err) != 0) ||
        read_attempts(s, range->job, &v, err) != 0) {
        metric_visible_free(&v);
        return -1;
    }
    *out = v;
    return 0;
}

void metric_visible_free(struct metric_visible *v)
{
    free(v->last);
    free(v->with_chunks);
    memset(v, 0, sizeof *v);
}

int64_t metric_visible_last(const struct metric_visible *v, int32_t attempt)
{
    if (v->only) {
        return v->only == attempt ? v->to : 0;
    }
    bool cut = attempt >= 0 && attempt < v->num_last && v->last[attempt] < v->to;
    return cut ? v->last[attempt] : v->to;
}
