/* Table attempts, for accounting. */
#include "server/store/usage_rows.h"

#include <string.h>

#include "server/store/sql.h"

#define USAGE_COLUMNS "job, num_devices, created_us, gone_us, device_us, wait_us, borrowed, evicted"

static void read_row(sqlite3_stmt *q, struct usage_row *r)
{
    *r = (struct usage_row){.job = sqlite3_column_int64(q, 0),
                            .devices = sqlite3_column_int64(q, 1),
                            .created_us = sqlite3_column_int64(q, 2),
                            .gone_us = sqlite3_column_int64(q, 3),
                            .device_us = sqlite3_column_int64(q, 4),
                            .wait_us = sqlite3_column_int64(q, 5),
                            .borrowed = sqlite3_column_int(q, 6) != 0,
                            .evicted = sqlite3_column_int(q, 7) != 0};
}

/* All rows of q go to fn. */
static int give(struct store *s, sqlite3_stmt *q, bool of_job, store_usage_fn fn, void *arg,
                struct error *err)
{
    int rc = q ? 1 : -1;
    while (rc == 1 && (rc = sql_step(s, q, err)) == 1) {
        struct usage_row row;
        read_row(q, &row);
        if (of_job) {
            row.number = sqlite3_column_int(q, 8);
            row.start_step = sqlite3_column_int64(q, 9);
        }
        if (!fn(arg, &row)) {
            sql_done(q);
            return 0;
        }
    }
    return rc;
}

int store_usage_of_job(struct store *s, int64_t job, store_usage_fn fn, void *arg,
                       struct error *err)
{
    return give(s,
                sql_query(s, err,
                          "SELECT " USAGE_COLUMNS
                          ", number, start_step FROM attempts WHERE job = ? ORDER BY number",
                          "i", job),
                true, fn, arg, err);
}

int store_usage_between(struct store *s, const char *tenant, int64_t from_us, int64_t to_us,
                        store_usage_fn fn, void *arg, struct error *err)
{
    if (give(s,
             sql_query(s, err,
                       "SELECT " USAGE_COLUMNS
                       " FROM attempts INDEXED BY attempts_over WHERE condition = 5 AND "
                       "tenant = ? AND gone_us >= ? AND created_us < ?",
                       "tii", tenant, from_us, to_us),
             false, fn, arg, err) != 0) {
        return -1;
    }
    return give(s,
                sql_query(s, err,
                          "SELECT " USAGE_COLUMNS
                          " FROM attempts INDEXED BY attempts_now WHERE condition < 5 AND "
                          "tenant = ? AND created_us < ?",
                          "ti", tenant, to_us),
                false, fn, arg, err);
}

static int number(struct store *s, sqlite3_stmt *q, int64_t *out, struct error *err)
{
    if (!q || sql_step(s, q, err) != 1) {
        return -1;
    }
    *out = sqlite3_column_int64(q, 0);
    sql_done(q);
    return 0;
}

int store_usage_now(struct store *s, const char *tenant, int64_t *held, int64_t *queued,
                    struct error *err)
{
    return number(s,
                  sql_query(s, err,
                            "SELECT coalesce(sum(num_devices), 0) FROM attempts INDEXED BY "
                            "attempts_now WHERE condition < 5 AND tenant = ?",
                            "t", tenant),
                  held, err) != 0 ||
                   number(s,
                          sql_query(s, err,
                                    "SELECT count(*) FROM jobs INDEXED BY jobs_queued WHERE "
                                    "state = 1 AND tenant = ?",
                                    "t", tenant),
                          queued, err) != 0
               ? -1
               : 0;
}
