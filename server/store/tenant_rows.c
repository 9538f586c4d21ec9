/* Tables tenants and users. */
#include <string.h>

#include "server/store/access_rows.h"
#include "server/store/sql.h"

static int count(struct store *s, sqlite3_stmt *q, int64_t *out, struct error *err)
{
    if (!q || sql_step(s, q, err) != 1) {
        return -1;
    }
    *out = sqlite3_column_int64(q, 0);
    sql_done(q);
    return 0;
}

#define TENANT_COLUMNS "name, created_us, disabled, quota_devices, max_devices, weight"

static void read_tenant(sqlite3_stmt *q, struct tenant_row *r)
{
    memset(r, 0, sizeof *r);
    sql_text(q, 0, r->name, sizeof r->name);
    r->created_us = sqlite3_column_int64(q, 1);
    r->disabled = sqlite3_column_int(q, 2) != 0;
    r->quota_devices = sqlite3_column_int64(q, 3);
    r->max_devices = sqlite3_column_int64(q, 4);
    r->weight = sql_double(q, 5);
    r->num_users = sqlite3_column_int(q, 6);
    r->num_jobs = sqlite3_column_int(q, 7);
    r->devices_in_use = sqlite3_column_int64(q, 8);
}

int store_tenant_get(struct store *s, const char *name, struct tenant_row *out, struct error *err)
{
    sqlite3_stmt *q = sql_query(
        s, err, "SELECT " TENANT_COLUMNS ", 0, 0, 0 FROM tenants WHERE name = ?", "t", name);
    int rc = q ? sql_step(s, q, err) : -1;
    if (rc == 1) {
        read_tenant(q, out);
        sql_done(q);
    }
    return rc;
}

int store_tenant_put(struct store *s, const struct tenant_row *r, struct error *err)
{
    return sql_exec(s, err,
                    "INSERT INTO tenants (name, created_us, disabled) VALUES (?, ?, ?) "
                    "ON CONFLICT DO UPDATE SET disabled = excluded.disabled",
                    "tiw", r->name, r->created_us, (int)r->disabled);
}

int store_tenant_set_quota(struct store *s, const struct tenant_row *r, struct error *err)
{
    return sql_exec(s, err,
                    "UPDATE tenants SET quota_devices = ?2, max_devices = ?3, weight = ?4 "
                    "WHERE name = ?1",
                    "tiid", r->name, r->quota_devices, r->max_devices, r->weight);
}

int store_tenant_count(struct store *s, int64_t *out, struct error *err)
{
    return count(s, sql_query(s, err, "SELECT count(*) FROM tenants", ""), out, err);
}

int store_tenant_list(struct store *s, const char *only, bool counted, store_tenant_fn fn,
                      void *arg, struct error *err)
{
    sqlite3_stmt *q =
        sql_query(s, err,
                  "SELECT " TENANT_COLUMNS ", "
                  "CASE ?2 WHEN 0 THEN 0 ELSE (SELECT count(*) FROM users u WHERE u.tenant = "
                  "t.name) END, "
                  "CASE ?2 WHEN 0 THEN 0 ELSE (SELECT count(*) FROM jobs j WHERE j.tenant = "
                  "t.name) END, "
                  "CASE ?2 WHEN 0 THEN 0 ELSE (SELECT coalesce(sum(a.num_devices), 0) FROM "
                  "attempts a WHERE a.condition < 5 AND a.tenant = t.name) END "
                  "FROM tenants t "
                  "WHERE (t.name = ?1 OR ?1 = '') ORDER BY t.name",
                  "tw", only ? only : "", (int)counted);
    int rc = q ? 1 : -1;
    while (rc == 1 && (rc = sql_step(s, q, err)) == 1) {
        struct tenant_row row;
        read_tenant(q, &row);
        if (!fn(arg, &row)) {
            sql_done(q);
            return 0;
        }
    }
    return rc;
}

#define USER_COLUMNS "tenant, name, role, disabled, created_us"

static void read_user(sqlite3_stmt *q, struct user_row *r)
{
    memset(r, 0, sizeof *r);
    sql_text(q, 0, r->tenant, sizeof r->tenant);
    sql_text(q, 1, r->name, sizeof r->name);
    sql_text(q, 2, r->role, sizeof r->role);
    r->disabled = sqlite3_column_int(q, 3) != 0;
    r->created_us = sqlite3_column_int64(q, 4);
}

int store_user_get(struct store *s, const char *tenant, const char *name, struct user_row *out,
                   struct error *err)
{
    sqlite3_stmt *q =
        sql_query(s, err, "SELECT " USER_COLUMNS " FROM users WHERE tenant = ? AND name = ?", "tt",
                  tenant, name);
    int rc = q ? sql_step(s, q, err) : -1;
    if (rc == 1) {
        read_user(q, out);
        sql_done(q);
    }
    return rc;
}

int store_user_put(struct store *s, const struct user_row *r, struct error *err)
{
    return sql_exec(s, err,
                    "INSERT INTO users (" USER_COLUMNS ") VALUES (?, ?, ?, ?, ?) "
                    "ON CONFLICT DO UPDATE SET role = excluded.role, disabled = excluded.disabled",
                    "tttwi", r->tenant, r->name, r->role, (int)r->disabled, r->created_us);
}

int store_user_count(struct store *s, const char *tenant, int64_t *out, struct error *err)
{
    return count(s, sql_query(s, err, "SELECT count(*) FROM users WHERE tenant = ?", "t", tenant),
                 out, err);
}

int store_user_list(struct store *s, const char *tenant, const char *after, int32_t limit,
                    store_user_fn fn, void *arg, struct error *err)
{
    sqlite3_stmt *q =
        tenant
            ? sql_query(s, err,
                        "SELECT " USER_COLUMNS
                        " FROM users WHERE tenant = ? AND name > ? ORDER BY name LIMIT ?",
                        "ttw", tenant, after, limit)
            : sql_query(s, err, "SELECT " USER_COLUMNS " FROM users ORDER BY tenant, name LIMIT ?",
                        "w", limit);
    int rc = q ? 1 : -1;
    while (rc == 1 && (rc = sql_step(s, q, err)) == 1) {
        struct user_row row;
        read_user(q, &row);
        if (!fn(arg, &row)) {
            sql_done(q);
            return 0;
        }
    }
    return rc;
}
