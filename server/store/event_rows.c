/* Table events. */
#include "server/store/store.h"

#include "server/store/sql.h"

int store_event_insert(struct store *s, Event *e, struct error *err)
{
    if (sql_exec(s, err,
                 "INSERT INTO events (job, attempt, time_us, kind, from_state, to_state, cause, "
                 "actor, message, step, tenant) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, "
                 "?10, (SELECT tenant FROM jobs WHERE id = ?1))",
                 "iwitwwttti", e->job_id, e->has_attempt ? e->attempt : 0, e->time_us, e->kind,
                 e->has_from ? (int)e->from : 0, e->has_to ? (int)e->to : 0, e->cause, e->actor,
                 e->message, e->has_step ? e->step : (int64_t)0) != 0) {
        return -1;
    }
    e->has_id = 1;
    e->id = sqlite3_last_insert_rowid(s->db);
    return 0;
}

/* A borrowed view: strings live as long as the row does. */
static void read_event(sqlite3_stmt *q, Event *e)
{
    *e = (Event)EVENT__INIT;
    e->has_id = e->has_job_id = e->has_time_us = 1;
    e->id = sqlite3_column_int64(q, 0);
    e->job_id = sqlite3_column_int64(q, 1);
    e->attempt = sqlite3_column_int(q, 2);
    e->has_attempt = e->attempt != 0;
    e->time_us = sqlite3_column_int64(q, 3);
    e->kind = (char *)(uintptr_t)sqlite3_column_text(q, 4);
    e->has_from = sqlite3_column_int(q, 5) != 0;
    e->from = (JobState)(e->has_from ? sqlite3_column_int(q, 5) : JOB_QUEUED);
    e->has_to = sqlite3_column_int(q, 6) != 0;
    e->to = (JobState)(e->has_to ? sqlite3_column_int(q, 6) : JOB_QUEUED);
    char **texts[] = {&e->cause, &e->actor, &e->message};
    for (int i = 0; i < 3; i++) {
        const unsigned char *text = sqlite3_column_text(q, 7 + i);
        *texts[i] = text && *text ? (char *)(uintptr_t)text : NULL;
    }
    e->step = sqlite3_column_int64(q, 10);
    e->has_step = e->step != 0;
}

#define EVENT_COLUMNS                                                                              \
    "id, job, attempt, time_us, kind, from_state, to_state, cause, actor, message, step"

static int give_events(struct store *s, sqlite3_stmt *q, store_event_fn fn, void *arg,
                       struct error *err)
{
    int rc;
    while ((rc = sql_step(s, q, err)) == 1) {
        Event e;
        read_event(q, &e);
        if (!fn(arg, &e)) {
            sql_done(q);
            return 0;
        }
    }
    return rc;
}

int store_event_list(struct store *s, int64_t job, const char *tenant, int64_t after_id,
                     int32_t limit, store_event_fn fn, void *arg, struct error *err)
{
    sqlite3_stmt *q =
        job ? sql_query(s, err,
                        "SELECT " EVENT_COLUMNS
                        " FROM events WHERE job = ? AND id > ? ORDER BY id LIMIT ?",
                        "iiw", job, after_id, limit)
        : tenant
            ? sql_query(s, err,
                        "SELECT " EVENT_COLUMNS
                        " FROM events WHERE tenant = ? AND id > ? ORDER BY id LIMIT ?",
                        "tiw", tenant, after_id, limit)
            : sql_query(s, err,
                        "SELECT " EVENT_COLUMNS " FROM events WHERE id > ? ORDER BY id LIMIT ?",
                        "iw", after_id, limit);
    return q ? give_events(s, q, fn, arg, err) : -1;
}

int store_event_newest(struct store *s, int64_t job, int32_t most, store_event_fn fn, void *arg,
                       struct error *err)
{
    sqlite3_stmt *q = sql_query(s, err,
                                "SELECT * FROM (SELECT " EVENT_COLUMNS
                                " FROM events WHERE job = ? ORDER BY id DESC LIMIT ?) ORDER BY id",
                                "iw", job, most);
    return q ? give_events(s, q, fn, arg, err) : -1;
}

int store_event_last(struct store *s, int64_t *id, struct error *err)
{
    sqlite3_stmt *q = sql_query(s, err, "SELECT coalesce(max(id), 0) FROM events", "");
    if (!q || sql_step(s, q, err) != 1) {
        return -1;
    }
    *id = sqlite3_column_int64(q, 0);
    sql_done(q);
    return 0;
}
