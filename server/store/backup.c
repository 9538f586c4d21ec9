#include "server/store/backup.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/fs.h"
#include "server/store/migrate.h"
#include "server/store/sql.h"
#include "server/store/store.h"

#define PAGES_A_TIME 64
#define PIECE_BYTES (1 << 16)

/* ---- files ---- */

static int hash_file(const char *path, struct store_copy *out, struct error *err)
{
    static const char digits[] = "0123456789abcdef";
    unsigned char hash[EVP_MAX_MD_SIZE];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    char *piece = malloc(PIECE_BYTES);
    EVP_MD_CTX *md = EVP_MD_CTX_new();
    ASSERT(piece && md);
    EVP_DigestInit_ex(md, EVP_sha256(), NULL);
    ssize_t n = -1;
    out->size_bytes = 0;
    while (fd >= 0 && (n = read(fd, piece, PIECE_BYTES)) > 0) {
        EVP_DigestUpdate(md, piece, (size_t)n);
        out->size_bytes += n;
    }
    int e = errno;
    EVP_DigestFinal_ex(md, hash, NULL);
    EVP_MD_CTX_free(md);
    free(piece);
    if (fd >= 0) {
        close(fd);
    }
    for (int i = 0; i < 32; i++) {
        out->sha256[2 * i] = digits[hash[i] >> 4];
        out->sha256[2 * i + 1] = digits[hash[i] & 15];
    }
    out->sha256[64] = 0;
    return n < 0 ? error_errno(err, e, "%s", path) : 0;
}

static int sync_file(const char *path, struct error *err)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0 || fsync(fd) != 0) {
        int e = errno;
        if (fd >= 0) {
            close(fd);
        }
        return error_errno(err, e, "%s", path);
    }
    close(fd);
    return 0;
}

static int sync_folder_of(const char *path, struct error *err)
{
    char dir[PATH_MAX];
    snprintf(dir, sizeof dir, "%s", path);
    char *slash = strrchr(dir, '/');
    if (slash) {
        slash[slash == dir] = 0;
    }
    return fs_fsync_dir(slash ? dir : ".", err);
}

static int make_file(const char *path, struct error *err)
{
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    return fd < 0 ? error_errno(err, errno, "%s", path) : fd;
}

int store_copy_file(const char *from, const char *to, struct error *err)
{
    int in = open(from, O_RDONLY | O_CLOEXEC);
    if (in < 0) {
        return error_errno(err, errno, "%s", from);
    }
    int out = make_file(to, err);
    char *piece = malloc(PIECE_BYTES);
    ASSERT(piece);
    ssize_t n = 0;
    int rc = out < 0 ? -1 : 0;
    while (rc == 0 && (n = read(in, piece, PIECE_BYTES)) > 0) {
        rc = fs_write_all(out, piece, (size_t)n) == 0 ? 0 : error_errno(err, errno, "%s", to);
    }
    if (rc == 0 && n < 0) {
        rc = error_errno(err, errno, "%s", from);
    }
    if (rc == 0 && fsync(out) != 0) {
        rc = error_errno(err, errno, "%s", to);
    }
    free(piece);
    close(in);
    if (out >= 0) {
        close(out);
    }
    return rc == 0 ? sync_folder_of(to, err) : -1;
}

/* ---- checking ---- */

static int open_plain(struct store *s, const char *path, int flags, struct error *err)
{
    memset(s, 0, sizeof *s);
    int rc = sqlite3_open_v2(path, &s->db, flags | SQLITE_OPEN_NOMUTEX, NULL);
    if (rc != SQLITE_OK) {
        sql_error(s, rc, "open", err);
        sqlite3_close(s->db);
        s->db = NULL;
        return error_wrap(err, "%s", path);
    }
    sqlite3_extended_result_codes(s->db, 1);
    sqlite3_busy_timeout(s->db, 10000);
    return 0;
}

static void close_plain(struct store *s)
{
    for (size_t i = 0; i < SQL_STATEMENTS_MAX; i++) {
        sqlite3_finalize(s->cache[i].stmt);
    }
    sqlite3_close(s->db);
    memset(s, 0, sizeof *s);
}

/* The text of the first row of a statement; "" if there is none. */
static int first_text(struct store *s, const char *sql, char *out, size_t size, struct error *err)
{
    sqlite3_stmt *q;
    SQL_TRY(s, err, sqlite3_prepare_v2(s->db, sql, -1, &q, NULL));
    int rc = sqlite3_step(q);
    *out = 0;
    if (rc == SQLITE_ROW) {
        sql_text(q, 0, out, size);
    }
    sqlite3_finalize(q);
    return rc == SQLITE_ROW || rc == SQLITE_DONE ? 0 : sql_error(s, rc, sql, err);
}

static int first_number(struct store *s, const char *sql, int64_t *out, struct error *err)
{
    char text[32];
    int rc = first_text(s, sql, text, sizeof text, err);
    *out = strtoll(text, NULL, 10);
    return rc;
}

static int check_db(struct store *s, struct store_copy *out, struct error *err)
{
    char said[200];
    int64_t num;
    if (first_text(s, "PRAGMA integrity_check(1)", said, sizeof said, err) != 0) {
        return -1;
    }
    if (strcmp(said, "ok") != 0) {
        return error_set(err, ERR_DATA_LOSS, "the database is damaged: %s", said);
    }
    if (first_text(s, "PRAGMA foreign_key_check", said, sizeof said, err) != 0) {
        return -1;
    }
    if (*said) {
        return error_set(err, ERR_DATA_LOSS, "rows of table %s refer to rows that are not there",
                         said);
    }
    if (first_number(s, "SELECT count(*) FROM sqlite_schema WHERE name IN ('migrations', 'jobs')",
                     &num, err) != 0) {
        return -1;
    }
    if (num != 2) {
        return error_set(err, ERR_INVALID_ARGUMENT, "this is no database of tandemd");
    }
    if (migrate_check(s, migrations, err) != 0 ||
        store_schema_version(s, &out->schema_version, err) != 0) {
        return -1;
    }
    return first_number(s, "SELECT count(*) FROM jobs", &out->num_jobs, err);
}

int store_copy_check(const char *path, struct store_copy *out, struct error *err)
{
    struct store s;
    if (open_plain(&s, path, SQLITE_OPEN_READWRITE, err) != 0) {
        return -1;
    }
    int rc = check_db(&s, out, err);
    close_plain(&s);
    return rc == 0 ? hash_file(path, out, err) : error_wrap(err, "%s", path);
}

static int compare_counts(struct store *from, struct store *to, struct error *err)
{
    struct buf names = {0};
    sqlite3_stmt *q = sql_query(from, err,
                                "SELECT name FROM sqlite_schema WHERE type = 'table' AND "
                                "name NOT LIKE 'sqlite_%'",
                                "");
    int rc = q ? 0 : -1;
    while (q && (rc = sql_step(from, q, err)) == 1) {
        buf_puts(&names, (const char *)sqlite3_column_text(q, 0));
        buf_putc(&names, 0);
    }
    for (size_t at = 0; rc == 0 && at < names.len; at += strlen(names.data + at) + 1) {
        char sql[200];
        int64_t have = -1, want = -2;
        snprintf(sql, sizeof sql, "SELECT count(*) FROM \"%.100s\"", names.data + at);
        if (first_number(from, sql, &want, err) != 0 || first_number(to, sql, &have, err) != 0) {
            rc = -1;
        } else if (have != want) {
            rc = error_set(err, ERR_DATA_LOSS, "the copy has %lld rows of %s, the original %lld",
                           (long long)have, names.data + at, (long long)want);
        }
    }
    buf_free(&names);
    return rc;
}

/* ---- copying ---- */

static int copy_pages(struct store *from, struct store *to, bool (*go_on)(void *), void *arg,
                      struct error *err)
{
    sqlite3_backup *b = sqlite3_backup_init(to->db, "main", from->db, "main");
    if (!b) {
        return sql_error(to, sqlite3_errcode(to->db), "backup", err);
    }
    int rc;
    bool going;
    while ((going = go_on(arg)) && (rc = sqlite3_backup_step(b, PAGES_A_TIME)) != SQLITE_DONE) {
        if (rc == SQLITE_BUSY || rc == SQLITE_LOCKED) {
            clock_sleep_ms(10);
        } else if (rc != SQLITE_OK) {
            break;
        }
    }
    int end = sqlite3_backup_finish(b);
    if (!going) {
        return error_set(err, ERR_CANCELLED, "the backup was given up: the server stops");
    }
    return end == SQLITE_OK ? 0 : sql_error(to, end, "backup", err);
}

/* One read transaction holds the moment, so the copy never starts anew, however much is written. */
static int copy_db(struct store *from, struct store *to, bool (*go_on)(void *), void *arg,
                   struct store_copy *out, struct error *err)
{
    int64_t any;
    if (sql_script(from, "BEGIN", err) != 0 ||
        first_number(from, "SELECT count(*) FROM migrations", &any, err) != 0 ||
        sql_script(to, "PRAGMA synchronous = OFF", err) != 0 ||
        copy_pages(from, to, go_on, arg, err) != 0 ||
        /* One file, that needs no other beside it. */
        sql_script(to, "PRAGMA journal_mode = DELETE", err) != 0 || check_db(to, out, err) != 0) {
        return -1;
    }
    return compare_counts(from, to, err);
}

static int copy_to(const char *from, const char *partial, bool (*go_on)(void *), void *arg,
                   struct store_copy *out, struct error *err)
{
    struct store source, copy;
    if (open_plain(&source, from, SQLITE_OPEN_READONLY, err) != 0) {
        return -1;
    }
    int rc = open_plain(&copy, partial, SQLITE_OPEN_READWRITE, err);
    if (rc == 0) {
        rc = copy_db(&source, &copy, go_on, arg, out, err);
        close_plain(&copy);
    }
    close_plain(&source);
    return rc;
}

static void remove_partial(const char *partial)
{
    static const char *const also[] = {"", "-journal", "-wal", "-shm"};
    char path[PATH_MAX + 16];
    for (size_t i = 0; i < sizeof also / sizeof *also; i++) {
        snprintf(path, sizeof path, "%s%s", partial, also[i]);
        unlink(path);
    }
}

int store_backup(const char *from, const char *to, bool (*go_on)(void *arg), void *arg,
                 struct store_copy *out, struct error *err)
{
    char partial[PATH_MAX];
    if (snprintf(partial, sizeof partial, "%s.partial", to) >= (int)sizeof partial) {
        return error_set(err, ERR_INVALID_ARGUMENT, "%.100s...: the path is too long", to);
    }
    if (fs_exists(to)) {
        return error_set(err, ERR_ALREADY_EXISTS, "%s exists", to);
    }
    remove_partial(partial); /* of a backup that a kill ended */
    int fd = make_file(partial, err);
    if (fd < 0) {
        return -1;
    }
    close(fd);
    int rc = copy_to(from, partial, go_on, arg, out, err);
    if (rc == 0) {
        rc = sync_file(partial, err);
    }
    if (rc == 0) {
        rc = hash_file(partial, out, err);
    }
    if (rc == 0 && link(partial, to) != 0) { /* unlike rename, it replaces nothing */
        rc = error_errno(err, errno, "%s", to);
    }
    remove_partial(partial);
    return rc == 0 ? sync_folder_of(to, err) : -1;
}
