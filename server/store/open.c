/* Opening and closing a database, and its transactions. */
#include "server/store/store.h"

#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "server/store/metric_chunks.h"
#include "server/store/migrate.h"
#include "server/store/sql.h"

/* Between looks at the clock: some tenths of a millisecond. */
#define PROGRESS_OPS 10000
#define TRIM_WAIT_MS 200
#define FUSE_MAGIC 0x65735546

const char *store_network_name(uint32_t magic)
{
    static const struct {
        uint32_t magic;
        const char *name;
    } types[] = {
        {0x6969, "NFS"},
        {0x517B, "SMB"},
        {0xFF534D42, "CIFS"},
        {0xFE534D42, "SMB2"},
        {0x00C36400, "Ceph"},
        {0x0BD00BD0, "Lustre"},
        {0x5346414F, "AFS"},
        {0x6B414653, "AFS"},
        {0x01021997, "9P"},
        {0x47504653, "GPFS"},
        {0x19830326, "BeeGFS"},
        {0x7461636F, "OCFS2"},
        {0x01161970, "GFS2"},
        {0x73757245, "Coda"},
        {0x20030528, "OrangeFS"},
        {0xAAD7AAEA, "PanFS"},
        {0x564C, "NCP"},
        {0x786F4256, "VirtualBox folder"},
        {0xBACBACBC, "VMware folder"},
    };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (magic == types[i].magic) {
            return types[i].name;
        }
    }
    return NULL;
}

/* SQLite's locks and shared memory don't hold across hosts: two servers, or one after a failover,
 * would eat the database. */
static int refuse_network(const char *path, struct error *err)
{
    char copy[PATH_MAX];
    if (snprintf(copy, sizeof copy, "%s", path) >= (int)sizeof copy) {
        return error_set(err, ERR_INVALID_ARGUMENT, "%.200s...: the path is too long", path);
    }
    struct statfs fs;
    if (statfs(dirname(copy), &fs) != 0) {
        return 0; /* opening it will say what is wrong */
    }
    const char *name = store_network_name((uint32_t)fs.f_type);
    if (name) {
        return error_set(err, ERR_FAILED_PRECONDITION,
                         "%s lies on a network filesystem (%s), where the database would not be "
                         "safe; choose a --data-dir on a local disk",
                         path, name);
    }
    if ((uint32_t)fs.f_type == FUSE_MAGIC) {
        log_warn("%s lies on a FUSE filesystem: if another host can reach it, the database is not "
                 "safe there",
                 path);
    }
    return 0;
}

static int open_db(struct store **out, const char *path, int flags, const char *pragmas,
                   struct error *err)
{
    struct store *s = calloc(1, sizeof *s);
    if (!s) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "%s: out of memory", path);
    }
    int rc = sqlite3_open_v2(path, &s->db, flags | SQLITE_OPEN_NOMUTEX, NULL);
    if (rc != SQLITE_OK) {
        sql_error(s, rc, "open", err);
        error_wrap(err, "%s", path);
        store_close(s);
        return -1;
    }
    sqlite3_extended_result_codes(s->db, 1);
    sqlite3_busy_timeout(s->db, 10000);
    if (sql_script(s, pragmas, err) != 0) {
        error_wrap(err, "%s", path);
        store_close(s);
        return -1;
    }
    *out = s;
    return 0;
}

int store_open(struct store **out, const char *path, struct error *err)
{
    if (refuse_network(path, err) != 0) {
        return -1;
    }
    /* A new one is its owner's alone; the files beside it get the same mode from SQLite. */
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd >= 0) {
        close(fd);
    }
    struct store *s;
    if (open_db(&s, path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE,
                "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON;"
                "PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON;"
                "PRAGMA cache_size = -4096; PRAGMA journal_size_limit = 67108864;",
                err) != 0) {
        return -1;
    }
    if (migrate_run(s, migrations, err) != 0) {
        error_wrap(err, "%s", path);
        store_close(s);
        return -1;
    }
    *out = s;
    return 0;
}

static int is_too_late(void *arg)
{
    const struct store *s = arg;
    return s->read_end_ms && clock_mono_ms() > s->read_end_ms;
}

int store_open_reader(struct store **out, const char *path, struct error *err)
{
    int rc = open_db(out, path, SQLITE_OPEN_READONLY,
                     "PRAGMA query_only = ON; PRAGMA cache_size = -16384;", err);
    if (rc == 0) {
        sqlite3_progress_handler((*out)->db, PROGRESS_OPS, is_too_late, *out);
    }
    return rc;
}

int store_trim_wal(const char *path, int64_t max_bytes, int64_t *bytes, struct error *err)
{
    char wal[PATH_MAX];
    struct stat st;
    *bytes = 0;
    if (snprintf(wal, sizeof wal, "%s-wal", path) >= (int)sizeof wal || stat(wal, &st) != 0) {
        return 0;
    }
    *bytes = st.st_size;
    if (*bytes <= max_bytes) {
        return 0;
    }
    struct store *s;
    if (open_db(&s, path, SQLITE_OPEN_READWRITE, "PRAGMA synchronous = FULL;", err) != 0) {
        return -1;
    }
    sqlite3_busy_timeout(s->db, TRIM_WAIT_MS);
    int rc = sqlite3_wal_checkpoint_v2(s->db, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
    /* Busy: somebody reads an older state (a backup); next time, then. */
    rc = rc == SQLITE_OK || rc == SQLITE_BUSY ? 0 : sql_error(s, rc, "checkpoint", err);
    store_close(s);
    *bytes = stat(wal, &st) == 0 ? st.st_size : 0;
    return rc;
}

void store_close(struct store *s)
{
    if (!s) {
        return;
    }
    for (size_t i = 0; i < SQL_STATEMENTS_MAX; i++) {
        sqlite3_finalize(s->cache[i].stmt);
    }
    sqlite3_close(s->db);
    free(s->tails);
    free(s);
}

int store_schema_version(struct store *s, int32_t *out, struct error *err)
{
    sqlite3_stmt *q = sql_query(s, err, "SELECT coalesce(max(number), 0) FROM migrations", "");
    if (!q || sql_step(s, q, err) != 1) {
        return -1;
    }
    *out = sqlite3_column_int(q, 0);
    sql_done(q);
    return 0;
}

int store_begin(struct store *s, struct error *err)
{
    s->failed = false;
    return sql_exec(s, err, "BEGIN IMMEDIATE", "");
}

int store_commit(struct store *s, struct error *err)
{
    return sql_exec(s, err, "COMMIT", "");
}

void store_rollback(struct store *s)
{
    /* SQLite has rolled back by itself after some errors. */
    metric_chunks_forget(s);
    if (!sqlite3_get_autocommit(s->db)) {
        sql_exec(s, NULL, "ROLLBACK", "");
    }
}

bool store_has_failed(const struct store *s)
{
    return s->failed;
}

int store_savepoint(struct store *s, struct error *err)
{
    return sql_exec(s, err, "SAVEPOINT message", "");
}

int store_release(struct store *s, struct error *err)
{
    return sql_exec(s, err, "RELEASE message", "");
}

int store_undo(struct store *s, struct error *err)
{
    metric_chunks_forget(s);
    if (sql_exec(s, err, "ROLLBACK TO message", "") != 0) {
        return -1;
    }
    return sql_exec(s, err, "RELEASE message", "");
}

int store_begin_read(struct store *s, struct error *err)
{
    s->read_end_ms = clock_mono_ms() + STORE_READ_MS;
    return sql_exec(s, err, "BEGIN", "");
}

void store_end_read(struct store *s)
{
    s->read_end_ms = 0;
    store_rollback(s);
}
