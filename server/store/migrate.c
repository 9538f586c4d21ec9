#include "server/store/migrate.h"

#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "server/store/sql.h"
#include "server/store/store.h"

static void checksum(const char *text, char out[65])
{
    unsigned char hash[SHA256_DIGEST_LENGTH];
    SHA256((const unsigned char *)text, strlen(text), hash);
    for (int i = 0; i < SHA256_DIGEST_LENGTH; i++) {
        snprintf(out + 2 * i, 3, "%02x", hash[i]);
    }
}

static int run_one(struct store *s, int64_t number, const struct migration *m, const char *sum,
                   struct error *err)
{
    if (store_begin(s, err) != 0) {
        return -1;
    }
    if (sql_script(s, m->sql, err) != 0 ||
        sql_exec(s, err,
                 "INSERT INTO migrations (number, name, sha256, applied_us) VALUES (?, ?, ?, ?)",
                 "itti", number, m->name, sum, clock_wall_us()) != 0 ||
        store_commit(s, err) != 0) {
        store_rollback(s);
        return error_wrap(err, "migration %s", m->name);
    }
    return 0;
}

static int recorded(struct store *s, int64_t number, char out[65], struct error *err)
{
    sqlite3_stmt *q =
        sql_query(s, err, "SELECT sha256 FROM migrations WHERE number = ?", "i", number);
    if (!q) {
        return -1;
    }
    int rc = sql_step(s, q, err);
    if (rc == 1) {
        sql_text(q, 0, out, 65);
        sql_done(q);
    }
    return rc;
}

int migrate_check(struct store *s, const struct migration *list, struct error *err)
{
    int64_t newest = 0;
    for (const struct migration *m = list; m->name; m++) {
        int64_t number = strtol(m->name, NULL, 10);
        ASSERT(number > newest);
        newest = number;
    }
    int32_t version;
    if (store_schema_version(s, &version, err) != 0) {
        return -1;
    }
    if (version > newest) {
        return error_set(err, ERR_FAILED_PRECONDITION,
                         "the database is of a newer tandemd (schema %d; this one knows %lld): "
                         "start the newer tandemd, or restore a backup from before the upgrade",
                         version, (long long)newest);
    }
    for (const struct migration *m = list; m->name; m++) {
        char sum[65], have[65];
        checksum(m->sql, sum);
        int rc = recorded(s, strtol(m->name, NULL, 10), have, err);
        if (rc < 0) {
            return -1;
        }
        if (rc == 1 && strcmp(sum, have) != 0) {
            return error_set(err, ERR_FAILED_PRECONDITION,
                             "migration %s was changed after it had run here (%.12s, on record "
                             "%.12s): this tandemd was not built from what made the database",
                             m->name, sum, have);
        }
    }
    return 0;
}

int migrate_run(struct store *s, const struct migration *list, struct error *err)
{
    if (sql_script(s,
                   "CREATE TABLE IF NOT EXISTS migrations (number INTEGER PRIMARY KEY, name TEXT "
                   "NOT NULL, sha256 TEXT NOT NULL, applied_us INTEGER NOT NULL) STRICT",
                   err) != 0 ||
        migrate_check(s, list, err) != 0) {
        return -1;
    }
    for (const struct migration *m = list; m->name; m++) {
        int64_t number = strtol(m->name, NULL, 10);
        char sum[65], have[65];
        checksum(m->sql, sum);
        int rc = recorded(s, number, have, err);
        if (rc < 0 || (rc == 0 && run_one(s, number, m, sum, err) != 0)) {
            return -1;
        }
    }
    return 0;
}
