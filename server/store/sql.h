/* What the files of this box share: the connection, its prepared statements, and binding by format.
 * Private to server/store. */
#ifndef TANDEM_SERVER_STORE_SQL_H
#define TANDEM_SERVER_STORE_SQL_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"

#define SQL_STATEMENTS_MAX 256
/* Attempts whose tails a writer remembers. */
#define SQL_TAILS_MAX 1024

struct sql_cached {
    const char *text; /* a literal: compared by address */
    sqlite3_stmt *stmt;
};

/* What a writer knows of an attempt's metrics: see metric_chunks.c. */
struct metric_tail {
    int64_t job; /* 0 = nothing is known */
    int32_t attempt;
    int32_t credit; /* rows that came since the last chunk was made */
    int64_t newest; /* chunk; -1 = there is none */
    int64_t lowest; /* chunk of the first row in metrics; INT64_MAX = there is none */
};

/* A damaged chunk that the log has heard of. */
struct metric_told {
    int64_t job, chunk;
    int32_t attempt;
};
#define SQL_TOLD_MAX 64

struct store {
    sqlite3 *db;         /* owned */
    bool failed;         /* since store_begin */
    int64_t read_end_ms; /* of a reader; 0 = no end */
    struct sql_cached cache[SQL_STATEMENTS_MAX];
    struct metric_told told[SQL_TOLD_MAX]; /* a ring */
    uint32_t num_told;
    struct metric_tail *tails; /* owned; SQL_TAILS_MAX, by job; NULL in a reader */
};

/* Fills err with SQLite's words and a code that fits; returns -1. */
int sql_error(struct store *s, int rc, const char *what, struct error *err);

#define SQL_TRY(s, err, call)                                                                      \
    do {                                                                                           \
        int sql_rc_ = (call);                                                                      \
        if (sql_rc_ != SQLITE_OK) {                                                                \
            return sql_error((s), sql_rc_, #call, (err));                                          \
        }                                                                                          \
    } while (0)

struct sql_blob {
    const void *data;
    size_t len;
};

/* A statement ready to be stepped, with its parameters bound from the left:
 * i int64_t, w int, d double (NaN = NULL), t const char *, b struct sql_blob *, n nothing = NULL.
 * NULL and err on failure. text must be a literal. */
sqlite3_stmt *sql_query(struct store *s, struct error *err, const char *text, const char *format,
                        ...);
/* 1 = a row, 0 = no more (the statement is reset), -1 = err (it is reset). */
int sql_step(struct store *s, sqlite3_stmt *stmt, struct error *err);
/* Ends a statement before its last row. */
void sql_done(sqlite3_stmt *stmt);
/* Runs a statement that gives one text, of any length, or no row; stmt NULL: it failed to be made.
 * out is cleared first. 1 found, 0 not. */
int sql_text_of(struct store *s, sqlite3_stmt *stmt, struct buf *out, struct error *err);
/* Runs a statement that gives no rows. */
int sql_exec(struct store *s, struct error *err, const char *text, const char *format, ...);
/* Several statements in one text, without parameters. */
int sql_script(struct store *s, const char *text, struct error *err);

/* The SHA-256 of a blob column, against that in column `sum`; NULL there: written before there was
 * one. */
bool sql_blob_is_whole(sqlite3_stmt *stmt, int blob, int sum);
void sql_sha256(const void *data, size_t len, uint8_t out[32]);

/* Column i as text, cut to size; as a double, NULL = NaN. */
void sql_text(sqlite3_stmt *stmt, int i, char *out, size_t size);
double sql_double(sqlite3_stmt *stmt, int i);

#endif
