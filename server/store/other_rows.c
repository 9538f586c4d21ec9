/* The small tables: idempotency keys, peaks. */
#include "server/store/store.h"

#include "base/clock.h"
#include "server/store/sql.h"

int store_key_get(struct store *s, const char *tenant, const char *user, const char *key,
                  const uint8_t spec_sha256[HASH_BYTES], int64_t *job, bool *same,
                  struct error *err)
{
    sqlite3_stmt *q =
        sql_query(s, err,
                  "SELECT job, spec_sha256 IS NULL OR spec_sha256 = ?4 FROM "
                  "idempotency_keys WHERE tenant = ?1 AND user = ?2 AND key = ?3",
                  "tttb", tenant, user, key, &(struct sql_blob){spec_sha256, HASH_BYTES});
    if (!q) {
        return -1;
    }
    int rc = sql_step(s, q, err);
    if (rc == 1) {
        *job = sqlite3_column_int64(q, 0);
        *same = sqlite3_column_int(q, 1) != 0;
        sql_done(q);
    }
    return rc;
}

int store_key_insert(struct store *s, const char *tenant, const char *user, const char *key,
                     const uint8_t spec_sha256[HASH_BYTES], int64_t job, struct error *err)
{
    return sql_exec(s, err,
                    "INSERT INTO idempotency_keys (tenant, user, key, job, spec_sha256) VALUES "
                    "(?, ?, ?, ?, ?)",
                    "tttib", tenant, user, key, job, &(struct sql_blob){spec_sha256, HASH_BYTES});
}

int store_peak_get(struct store *s, const char *cpu_model, double *fp32, double *fp64,
                   struct error *err)
{
    sqlite3_stmt *q =
        sql_query(s, err, "SELECT fp32, fp64 FROM peaks WHERE cpu_model = ?", "t", cpu_model);
    if (!q) {
        return -1;
    }
    int rc = sql_step(s, q, err);
    if (rc == 1) {
        *fp32 = sql_double(q, 0);
        *fp64 = sql_double(q, 1);
        sql_done(q);
    }
    return rc;
}

int store_peak_set(struct store *s, const char *cpu_model, double fp32, double fp64,
                   struct error *err)
{
    return sql_exec(s, err,
                    "INSERT INTO peaks (cpu_model, fp32, fp64, measured_us) VALUES (?, ?, ?, ?) "
                    "ON CONFLICT DO UPDATE SET fp32 = excluded.fp32, fp64 = excluded.fp64, "
                    "measured_us = excluded.measured_us",
                    "tddi", cpu_model, fp32, fp64, clock_wall_us());
}
