/* Table audit. */
#include "server/store/access_rows.h"
#include "server/store/sql.h"

int store_audit_insert(struct store *s, const struct audit_row *r, int64_t *id, struct error *err)
{
    if (sql_exec(s, err,
                 "INSERT INTO audit (time_us, tenant, user, token_id, method, object, result, "
                 "peer) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                 "ittitttt", r->time_us, r->tenant, r->user, r->token_id, r->method, r->object,
                 r->result, r->peer) != 0) {
        return -1;
    }
    if (id) {
        *id = sqlite3_last_insert_rowid(s->db);
    }
    return 0;
}

int store_audit_set_result(struct store *s, int64_t id, const char *result, struct error *err)
{
    return sql_exec(s, err, "UPDATE audit SET result = ?2 WHERE id = ?1", "it", id, result);
}

#define AUDIT_COLUMNS "id, time_us, tenant, user, token_id, method, object, result, peer"
#define AUDIT_REST                                                                                 \
    " id < ?2 AND id >= ?3 AND time_us >= ?4 AND (time_us <= ?5 OR ?5 = 0) AND "                   \
    "(user = ?6 OR ?6 = '') AND (method = ?7 COLLATE NOCASE OR ?7 = '') ORDER BY id DESC LIMIT ?8"

static const char *column(sqlite3_stmt *q, int i)
{
    const char *text = (const char *)sqlite3_column_text(q, i);
    return text ? text : "";
}

/* The lowest of the rows that are to be looked through, and whether there are more below it. */
static int find_window(struct store *s, const struct store_audit_filter *f, int64_t before_id,
                       int64_t *lowest, bool *more, struct error *err)
{
    sqlite3_stmt *q =
        f->tenant ? sql_query(s, err,
                              "SELECT coalesce(min(id), 0), count(*) FROM (SELECT id FROM audit "
                              "WHERE tenant = ? AND id < ? ORDER BY id DESC LIMIT ?)",
                              "tiw", f->tenant, before_id, f->window)
                  : sql_query(s, err,
                              "SELECT coalesce(min(id), 0), count(*) FROM (SELECT id FROM audit "
                              "WHERE id < ? ORDER BY id DESC LIMIT ?)",
                              "iw", before_id, f->window);
    if (!q || sql_step(s, q, err) != 1) {
        return -1;
    }
    *lowest = sqlite3_column_int64(q, 0);
    *more = sqlite3_column_int(q, 1) == f->window;
    sql_done(q);
    return 0;
}

int store_audit_list(struct store *s, const struct store_audit_filter *f, store_audit_fn fn,
                     void *arg, int64_t *next, struct error *err)
{
    const char *user = f->user ? f->user : "", *method = f->method ? f->method : "";
    int64_t before_id = f->before_id > 0 ? f->before_id : INT64_MAX, lowest;
    bool more;
    if (find_window(s, f, before_id, &lowest, &more, err) != 0) {
        return -1;
    }
    sqlite3_stmt *q =
        f->tenant
            ? sql_query(s, err,
                        "SELECT " AUDIT_COLUMNS " FROM audit WHERE tenant = ?1 AND" AUDIT_REST,
                        "tiiiittw", f->tenant, before_id, lowest, f->from_us, f->to_us, user,
                        method, f->limit)
            : sql_query(s, err, "SELECT " AUDIT_COLUMNS " FROM audit WHERE ?1 = '' AND" AUDIT_REST,
                        "tiiiittw", "", before_id, lowest, f->from_us, f->to_us, user, method,
                        f->limit);
    int32_t num = 0;
    int rc = q ? 1 : -1;
    *next = more ? lowest : 0;
    while (rc == 1 && (rc = sql_step(s, q, err)) == 1) {
        struct audit_row row = {.id = sqlite3_column_int64(q, 0),
                                .time_us = sqlite3_column_int64(q, 1),
                                .tenant = column(q, 2),
                                .user = column(q, 3),
                                .token_id = sqlite3_column_int64(q, 4),
                                .method = column(q, 5),
                                .object = column(q, 6),
                                .result = column(q, 7),
                                .peer = column(q, 8)};
        if (++num == f->limit) {
            *next = row.id;
        }
        if (!fn(arg, &row)) {
            sql_done(q);
            return 0;
        }
    }
    return rc;
}

int store_audit_prune(struct store *s, int64_t before_us, int32_t limit, struct error *err)
{
    if (sql_exec(s, err,
                 "DELETE FROM audit WHERE id IN "
                 "(SELECT id FROM audit WHERE time_us < ? ORDER BY time_us LIMIT ?)",
                 "iw", before_us, limit) != 0) {
        return -1;
    }
    int num = sqlite3_changes(s->db);
    if (sql_exec(s, err,
                 "DELETE FROM tokens WHERE (revoked_us > 0 AND revoked_us < ?1) OR "
                 "(expired AND expires_us < ?1)",
                 "i", before_us) != 0) {
        return -1;
    }
    return num;
}
