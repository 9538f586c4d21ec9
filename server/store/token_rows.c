/* Table tokens: hashes, never the tokens themselves. */
#include <string.h>

#include "server/store/access_rows.h"
#include "server/store/sql.h"

#define TOKEN_COLUMNS                                                                              \
    "id, tenant, user, label, sha256, prefix, created_us, expires_us, expired, revoked_us, "       \
    "last_used_us"

static void read_token(sqlite3_stmt *q, struct token_row *r)
{
    memset(r, 0, sizeof *r);
    r->id = sqlite3_column_int64(q, 0);
    sql_text(q, 1, r->tenant, sizeof r->tenant);
    sql_text(q, 2, r->user, sizeof r->user);
    sql_text(q, 3, r->label, sizeof r->label);
    if (sqlite3_column_bytes(q, 4) == HASH_BYTES) {
        memcpy(r->sha256, sqlite3_column_blob(q, 4), HASH_BYTES);
    }
    sql_text(q, 5, r->prefix, sizeof r->prefix);
    r->created_us = sqlite3_column_int64(q, 6);
    r->expires_us = sqlite3_column_int64(q, 7);
    r->expired = sqlite3_column_int(q, 8) != 0;
    r->revoked_us = sqlite3_column_int64(q, 9);
    r->last_used_us = sqlite3_column_int64(q, 10);
}

int store_token_insert(struct store *s, struct token_row *r, struct error *err)
{
    if (sql_exec(s, err,
                 "INSERT INTO tokens (tenant, user, label, sha256, prefix, created_us, expires_us) "
                 "VALUES (?, ?, ?, ?, ?, ?, ?)",
                 "tttbtii", r->tenant, r->user, r->label, &(struct sql_blob){r->sha256, HASH_BYTES},
                 r->prefix, r->created_us, r->expires_us) != 0) {
        return -1;
    }
    r->id = sqlite3_last_insert_rowid(s->db);
    return 0;
}

int store_token_get(struct store *s, int64_t id, struct token_row *out, struct error *err)
{
    sqlite3_stmt *q =
        sql_query(s, err, "SELECT " TOKEN_COLUMNS " FROM tokens WHERE id = ?", "i", id);
    int rc = q ? sql_step(s, q, err) : -1;
    if (rc == 1) {
        read_token(q, out);
        sql_done(q);
    }
    return rc;
}

int store_token_update(struct store *s, const struct token_row *r, struct error *err)
{
    return sql_exec(
        s, err, "UPDATE tokens SET expires_us = ?2, expired = ?3, revoked_us = ?4 WHERE id = ?1",
        "iiwi", r->id, r->expires_us, (int)r->expired, r->revoked_us);
}

int store_token_used(struct store *s, int64_t id, int64_t last_used_us, struct error *err)
{
    return sql_exec(s, err, "UPDATE tokens SET last_used_us = max(last_used_us, ?2) WHERE id = ?1",
                    "ii", id, last_used_us);
}

int store_token_count_live(struct store *s, const char *tenant, const char *user, int64_t *out,
                           struct error *err)
{
    sqlite3_stmt *q = sql_query(s, err,
                                "SELECT count(*) FROM tokens WHERE tenant = ? AND user = ? "
                                "AND revoked_us = 0 AND expired = 0",
                                "tt", tenant, user);
    if (!q || sql_step(s, q, err) != 1) {
        return -1;
    }
    *out = sqlite3_column_int64(q, 0);
    sql_done(q);
    return 0;
}

/* A text for each, so that it finds its index. A user without a tenant has none: only an admin asks
 * that, and rarely. */
static sqlite3_stmt *list_query(struct store *s, const struct store_token_filter *f,
                                struct error *err)
{
    if (f->tenant && f->user) {
        return sql_query(s, err,
                         "SELECT " TOKEN_COLUMNS " FROM tokens WHERE tenant = ? AND user = ? AND "
                         "id > ? AND (?4 OR (revoked_us = 0 AND expired = 0)) ORDER BY id LIMIT ?5",
                         "ttiww", f->tenant, f->user, f->after_id, (int)f->ended, f->limit);
    }
    if (f->tenant) {
        return sql_query(s, err,
                         "SELECT " TOKEN_COLUMNS " FROM tokens WHERE tenant = ? AND "
                         "id > ? AND (?3 OR (revoked_us = 0 AND expired = 0)) ORDER BY id LIMIT ?4",
                         "tiww", f->tenant, f->after_id, (int)f->ended, f->limit);
    }
    if (f->user) {
        return sql_query(s, err,
                         "SELECT " TOKEN_COLUMNS " FROM tokens WHERE user = ? AND "
                         "id > ? AND (?3 OR (revoked_us = 0 AND expired = 0)) ORDER BY id LIMIT ?4",
                         "tiww", f->user, f->after_id, (int)f->ended, f->limit);
    }
    return f->ended
               ? sql_query(s, err,
                           "SELECT " TOKEN_COLUMNS " FROM tokens WHERE id > ? ORDER BY id LIMIT ?",
                           "iw", f->after_id, f->limit)
               : sql_query(s, err,
                           "SELECT " TOKEN_COLUMNS " FROM tokens WHERE id > ? AND revoked_us = 0 "
                           "AND expired = 0 ORDER BY id LIMIT ?",
                           "iw", f->after_id, f->limit);
}

int store_token_list(struct store *s, const struct store_token_filter *f, store_token_fn fn,
                     void *arg, struct error *err)
{
    sqlite3_stmt *q = list_query(s, f, err);
    int rc = q ? 1 : -1;
    while (rc == 1 && (rc = sql_step(s, q, err)) == 1) {
        struct token_row row;
        read_token(q, &row);
        if (!fn(arg, &row)) {
            sql_done(q);
            return 0;
        }
    }
    return rc;
}
