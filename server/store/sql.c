#include "server/store/sql.h"

#include <limits.h>
#include <math.h>
#include <openssl/sha.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "server/store/store.h"

/* Has a write come to the limit of file sizes? SQLite knows that it failed, but rarely why. */
static bool has_hit_limit(const struct store *s)
{
    enum { NEAR_BYTES = 8192 }; /* more than SQLite writes at once */
    const char *db = s->db ? sqlite3_db_filename(s->db, "main") : NULL;
    struct rlimit limit;
    char wal[PATH_MAX];
    struct stat st;
    if (!db || getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
        return false;
    }
    snprintf(wal, sizeof wal, "%s-wal", db);
    return limit.rlim_cur < 65536 ||
           (stat(wal, &st) == 0 && (rlim_t)st.st_size + NEAR_BYTES > limit.rlim_cur) ||
           (stat(db, &st) == 0 && (rlim_t)st.st_size + NEAR_BYTES > limit.rlim_cur);
}

int sql_error(struct store *s, int rc, const char *what, struct error *err)
{
    enum error_code code = ERR_INTERNAL;
    s->failed = s->failed || (rc & 0xff) != SQLITE_CONSTRAINT;
    switch (rc & 0xff) {
    case SQLITE_FULL:
        return error_set(err, ERR_RESOURCE_EXHAUSTED,
                         "database: the disk is full; free some space and try again");
    case SQLITE_INTERRUPT:
        return error_set(err, ERR_DEADLINE_EXCEEDED,
                         "database: the read took longer than %d s; ask for less at a time",
                         STORE_READ_MS / 1000);
    case SQLITE_IOERR:
    case SQLITE_READONLY:
    case SQLITE_CANTOPEN:
    case SQLITE_BUSY:
        if ((rc & 0xff) == SQLITE_IOERR && has_hit_limit(s)) {
            return error_set(
                err, ERR_RESOURCE_EXHAUSTED,
                "database: files are limited to less here: raise that limit (ulimit -f, "
                "LimitFSIZE=)");
        }
        code = ERR_UNAVAILABLE;
        break;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        code = ERR_DATA_LOSS;
        break;
    case SQLITE_NOMEM:
        code = ERR_RESOURCE_EXHAUSTED;
        break;
    default:
        break;
    }
    return error_set(err, code, "database: %s (%d, %.60s)",
                     s->db ? sqlite3_errmsg(s->db) : sqlite3_errstr(rc), rc, what);
}

static sqlite3_stmt *cached(struct store *s, const char *text, struct error *err)
{
    size_t slot = ((uintptr_t)text >> 3) * 31 % SQL_STATEMENTS_MAX;
    for (size_t i = 0; i < SQL_STATEMENTS_MAX; i++) {
        struct sql_cached *c = &s->cache[(slot + i) % SQL_STATEMENTS_MAX];
        if (c->text == text) {
            return c->stmt;
        }
        if (!c->text) {
            int rc = sqlite3_prepare_v3(s->db, text, -1, SQLITE_PREPARE_PERSISTENT, &c->stmt, NULL);
            if (rc != SQLITE_OK) {
                sql_error(s, rc, text, err);
                return NULL;
            }
            c->text = text;
            return c->stmt;
        }
    }
    ASSERT(false && "more statements than the cache holds");
}

static int bind_one(sqlite3_stmt *stmt, int at, char kind, va_list *ap)
{
    switch (kind) {
    case 'i':
        return sqlite3_bind_int64(stmt, at, va_arg(*ap, int64_t));
    case 'w':
        return sqlite3_bind_int(stmt, at, va_arg(*ap, int));
    case 'd': {
        double d = va_arg(*ap, double);
        return isnan(d) ? sqlite3_bind_null(stmt, at) : sqlite3_bind_double(stmt, at, d);
    }
    case 't': {
        const char *text = va_arg(*ap, const char *);
        return sqlite3_bind_text(stmt, at, text ? text : "", -1, SQLITE_TRANSIENT);
    }
    case 'b': {
        const struct sql_blob *b = va_arg(*ap, const struct sql_blob *);
        /* A NULL pointer would bind NULL; an empty message is an empty blob. */
        return sqlite3_bind_blob64(stmt, at, b->len ? b->data : "", b->len, SQLITE_TRANSIENT);
    }
    case 'n':
        return sqlite3_bind_null(stmt, at);
    default:
        ASSERT(false && "unknown letter in a format");
    }
}

static sqlite3_stmt *query_va(struct store *s, struct error *err, const char *text,
                              const char *format, va_list *ap)
{
    sqlite3_stmt *stmt = cached(s, text, err);
    if (!stmt) {
        return NULL;
    }
    sqlite3_reset(stmt);
    int at = 1;
    for (const char *f = format; *f; f++) {
        int rc = bind_one(stmt, at++, *f, ap);
        if (rc != SQLITE_OK) {
            sql_error(s, rc, text, err);
            return NULL;
        }
    }
    ASSERT(at - 1 == sqlite3_bind_parameter_count(stmt));
    return stmt;
}

sqlite3_stmt *sql_query(struct store *s, struct error *err, const char *text, const char *format,
                        ...)
{
    va_list ap;
    va_start(ap, format);
    sqlite3_stmt *stmt = query_va(s, err, text, format, &ap);
    va_end(ap);
    return stmt;
}

int sql_step(struct store *s, sqlite3_stmt *stmt, struct error *err)
{
    int rc = sqlite3_step(stmt);
    if (rc == SQLITE_ROW) {
        return 1;
    }
    if (rc == SQLITE_DONE) {
        sqlite3_reset(stmt);
        return 0;
    }
    sql_error(s, rc, sqlite3_sql(stmt), err);
    sqlite3_reset(stmt);
    return -1;
}

void sql_done(sqlite3_stmt *stmt)
{
    sqlite3_reset(stmt);
}

int sql_exec(struct store *s, struct error *err, const char *text, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    sqlite3_stmt *stmt = query_va(s, err, text, format, &ap);
    va_end(ap);
    if (!stmt) {
        return -1;
    }
    int rc = sql_step(s, stmt, err);
    if (rc == 1) {
        sql_done(stmt);
        return 0;
    }
    return rc;
}

int sql_text_of(struct store *s, sqlite3_stmt *stmt, struct buf *out, struct error *err)
{
    buf_clear(out);
    buf_puts(out, "");
    int rc = stmt ? sql_step(s, stmt, err) : -1;
    if (rc == 1) {
        const char *text = (const char *)sqlite3_column_text(stmt, 0);
        buf_puts(out, text ? text : "");
        sql_done(stmt);
    }
    return rc;
}

int sql_script(struct store *s, const char *text, struct error *err)
{
    SQL_TRY(s, err, sqlite3_exec(s->db, text, NULL, NULL, NULL));
    return 0;
}

void sql_sha256(const void *data, size_t len, uint8_t out[32])
{
    SHA256(data ? data : (const void *)"", len, out);
}

bool sql_blob_is_whole(sqlite3_stmt *stmt, int blob, int sum)
{
    uint8_t hash[SHA256_DIGEST_LENGTH];
    if (sqlite3_column_type(stmt, sum) == SQLITE_NULL) {
        return true;
    }
    const void *data = sqlite3_column_blob(stmt, blob);
    sql_sha256(data, (size_t)sqlite3_column_bytes(stmt, blob), hash);
    return sqlite3_column_bytes(stmt, sum) == sizeof hash &&
           memcmp(sqlite3_column_blob(stmt, sum), hash, sizeof hash) == 0;
}

void sql_text(sqlite3_stmt *stmt, int i, char *out, size_t size)
{
    const char *text = (const char *)sqlite3_column_text(stmt, i);
    snprintf(out, size, "%s", text ? text : "");
}

double sql_double(sqlite3_stmt *stmt, int i)
{
    return sqlite3_column_type(stmt, i) == SQLITE_NULL ? NAN : sqlite3_column_double(stmt, i);
}
