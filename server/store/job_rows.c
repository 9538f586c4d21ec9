/* Table jobs, and specs beside it. */
#include "server/store/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "server/store/attempt_row.h"
#include "server/store/sql.h"

#define JOB_COLUMNS                                                                                \
    "j.id, j.name, j.tenant, j.user, j.state, j.target, j.cause, j.message, j.priority, "          \
    "j.devices, j.total_steps, j.restarts, j.mark_step, j.step, j.loss, j.step_ms, "               \
    "j.tokens_per_s, j.mfu, j.not_before_us, j.created_us, j.started_us, j.ended_us, "             \
    "j.export_dir, j.quarantine, j.evictions, j.queued_us, j.waits_us, "                           \
    "j.wait_us, " ATTEMPT_COLUMNS
#define JOB_FROM " FROM jobs j LEFT JOIN attempts a ON a.job = j.id AND a.number = j.attempt "
#define FIRST_ATTEMPT_COLUMN 28

int store_job_insert(struct store *s, struct job_row *row, const void *spec, size_t spec_len,
                     const void *facts, size_t facts_len, struct error *err)
{
    if (sql_exec(s, err,
                 "INSERT INTO jobs (name, tenant, user, state, cause, message, priority, devices, "
                 "total_steps, created_us, queued_us, waits_us) VALUES "
                 "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                 "tttwttwwiiii", row->name, row->tenant, row->user, (int)row->state, row->cause,
                 row->message, row->priority, row->devices, row->total_steps, row->created_us,
                 row->queued_us, row->waits_us) != 0) {
        return -1;
    }
    row->id = sqlite3_last_insert_rowid(s->db);
    uint8_t spec_sum[32], facts_sum[32];
    sql_sha256(spec, spec_len, spec_sum);
    sql_sha256(facts, facts_len, facts_sum);
    return sql_exec(s, err,
                    "INSERT INTO specs (job, spec, sha256, facts, facts_sha256) VALUES "
                    "(?, ?, ?, ?, ?)",
                    "ibbbb", row->id, &(struct sql_blob){spec, spec_len},
                    &(struct sql_blob){spec_sum, sizeof spec_sum},
                    &(struct sql_blob){facts, facts_len},
                    &(struct sql_blob){facts_sum, sizeof facts_sum});
}

int store_job_update(struct store *s, const struct job_row *r, struct error *err)
{
    return sql_exec(s, err,
                    "UPDATE jobs SET state = ?2, target = ?3, cause = ?4, message = ?5, "
                    "priority = ?6, attempt = ?7, restarts = ?8, mark_step = ?9, step = ?10, "
                    "loss = ?11, step_ms = ?12, tokens_per_s = ?13, mfu = ?14, "
                    "not_before_us = ?15, started_us = ?16, ended_us = ?17, export_dir = ?18, "
                    "quarantine = ?19, evictions = ?20, queued_us = ?21, waits_us = ?22, "
                    "wait_us = ?23 WHERE id = ?1",
                    "iwwttwwwiiddddiiittwiii", r->id, (int)r->state, r->target, r->cause,
                    r->message, r->priority, r->attempt.number, r->restarts, r->mark_step, r->step,
                    r->loss, r->step_ms, r->tokens_per_s, r->mfu, r->not_before_us, r->started_us,
                    r->ended_us, r->export_dir, r->quarantine, r->evictions, r->queued_us,
                    r->waits_us, r->wait_us);
}

int store_job_claim(struct store *s, int64_t id, struct buf *out, struct error *err)
{
    return sql_text_of(s, sql_query(s, err, "SELECT claim FROM jobs WHERE id = ?", "i", id), out,
                       err);
}

int store_job_set_claim(struct store *s, int64_t id, const char *devices, struct error *err)
{
    return sql_exec(s, err, "UPDATE jobs SET claim = ?2 WHERE id = ?1", "it", id, devices);
}

static void read_job(sqlite3_stmt *q, struct job_row *r)
{
    memset(r, 0, sizeof *r);
    r->id = sqlite3_column_int64(q, 0);
    sql_text(q, 1, r->name, sizeof r->name);
    sql_text(q, 2, r->tenant, sizeof r->tenant);
    sql_text(q, 3, r->user, sizeof r->user);
    r->state = (JobState)sqlite3_column_int(q, 4);
    r->target = sqlite3_column_int(q, 5);
    sql_text(q, 6, r->cause, sizeof r->cause);
    sql_text(q, 7, r->message, sizeof r->message);
    r->priority = sqlite3_column_int(q, 8);
    r->devices = sqlite3_column_int(q, 9);
    r->total_steps = sqlite3_column_int64(q, 10);
    r->restarts = sqlite3_column_int(q, 11);
    r->mark_step = sqlite3_column_int64(q, 12);
    r->step = sqlite3_column_int64(q, 13);
    r->loss = sql_double(q, 14);
    r->step_ms = sql_double(q, 15);
    r->tokens_per_s = sql_double(q, 16);
    r->mfu = sql_double(q, 17);
    r->not_before_us = sqlite3_column_int64(q, 18);
    r->created_us = sqlite3_column_int64(q, 19);
    r->started_us = sqlite3_column_int64(q, 20);
    r->ended_us = sqlite3_column_int64(q, 21);
    sql_text(q, 22, r->export_dir, sizeof r->export_dir);
    sql_text(q, 23, r->quarantine, sizeof r->quarantine);
    r->evictions = sqlite3_column_int(q, 24);
    r->queued_us = sqlite3_column_int64(q, 25);
    r->waits_us = sqlite3_column_int64(q, 26);
    r->wait_us = sqlite3_column_int64(q, 27);
    attempt_row_read(q, FIRST_ATTEMPT_COLUMN, &r->attempt);
}

int store_job_last(struct store *s, int64_t *id, struct error *err)
{
    sqlite3_stmt *q = sql_query(
        s, err, "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'jobs'", "");
    if (!q || sql_step(s, q, err) != 1) {
        return -1;
    }
    *id = sqlite3_column_int64(q, 0);
    sql_done(q);
    return 0;
}

int store_job_get(struct store *s, int64_t id, struct job_row *out, struct error *err)
{
    sqlite3_stmt *q = sql_query(s, err, "SELECT " JOB_COLUMNS JOB_FROM "WHERE j.id = ?", "i", id);
    if (!q) {
        return -1;
    }
    int rc = sql_step(s, q, err);
    if (rc == 1) {
        read_job(q, out);
        sql_done(q);
    }
    return rc;
}

static int find_by_name(struct store *s, const char *name, const char *tenant, int64_t *id,
                        struct error *err)
{
    sqlite3_stmt *q = sql_query(s, err,
                                "SELECT id FROM jobs WHERE name = ? AND (tenant = ?2 OR ?2 = '') "
                                "ORDER BY id DESC LIMIT 6",
                                "tt", name, tenant);
    if (!q) {
        return -1;
    }
    struct buf ids = {0};
    int num = 0, rc;
    while ((rc = sql_step(s, q, err)) == 1) {
        *id = sqlite3_column_int64(q, 0);
        buf_printf(&ids, "%s%lld", num++ ? ", " : "", (long long)*id);
    }
    if (rc == 0 && num == 0) {
        error_set(err, ERR_NOT_FOUND, "no job is named \"%s\"", name);
    } else if (rc == 0 && num > 1) {
        error_set(err, ERR_FAILED_PRECONDITION,
                  "several jobs are named \"%s\" (%s%s): say which by its number", name, ids.data,
                  num > 5 ? ", ..." : "");
    }
    buf_free(&ids);
    return rc < 0 ? -1 : num == 1;
}

int store_job_find(struct store *s, const char *ref, const char *tenant, int64_t *id,
                   struct error *err)
{
    if (!ref || !*ref) {
        error_set(err, ERR_INVALID_ARGUMENT, "job: say which, by number or name");
        return 0;
    }
    if (strspn(ref, "0123456789") != strlen(ref) || strlen(ref) > 18) {
        return find_by_name(s, ref, tenant ? tenant : "", id, err);
    }
    int64_t number = strtoll(ref, NULL, 10);
    /* In the index of tenants a job of another tenant is no nearer than one that never was. */
    sqlite3_stmt *q = tenant ? sql_query(s, err,
                                         "SELECT id FROM jobs INDEXED BY jobs_of_tenant "
                                         "WHERE tenant = ? AND id = ?",
                                         "ti", tenant, number)
                             : sql_query(s, err, "SELECT id FROM jobs WHERE id = ?", "i", number);
    if (!q) {
        return -1;
    }
    int rc = sql_step(s, q, err);
    if (rc == 1) {
        *id = sqlite3_column_int64(q, 0);
        sql_done(q);
    } else if (rc == 0) {
        /* A job may be named 2024. */
        rc = find_by_name(s, ref, tenant ? tenant : "", id, err);
        if (rc == 0 && err && err->code == ERR_NOT_FOUND) {
            error_set(err, ERR_NOT_FOUND, "there is no job %s", ref);
        }
    }
    return rc;
}

int store_job_spec(struct store *s, int64_t id, JobSpec **out, struct error *err)
{
    sqlite3_stmt *q = sql_query(s, err, "SELECT spec, sha256 FROM specs WHERE job = ?", "i", id);
    if (!q) {
        return -1;
    }
    int rc = sql_step(s, q, err);
    if (rc < 0) {
        return -1;
    }
    JobSpec *spec = NULL;
    if (rc == 1) {
        if (sql_blob_is_whole(q, 0, 1)) {
            spec = job_spec__unpack(NULL, (size_t)sqlite3_column_bytes(q, 0),
                                    sqlite3_column_blob(q, 0));
        }
        sql_done(q);
    }
    if (!spec) {
        return error_set(err, ERR_DATA_LOSS, "the stored spec of job %lld is damaged",
                         (long long)id);
    }
    *out = spec;
    return 0;
}

int store_job_facts(struct store *s, int64_t id, ProbeReply **out, struct error *err)
{
    sqlite3_stmt *q =
        sql_query(s, err, "SELECT facts, facts_sha256 FROM specs WHERE job = ?", "i", id);
    if (!q) {
        return -1;
    }
    int rc = sql_step(s, q, err);
    if (rc < 0) {
        return -1;
    }
    ProbeReply *facts = NULL;
    if (rc == 1) {
        if (sql_blob_is_whole(q, 0, 1)) {
            facts = probe_reply__unpack(NULL, (size_t)sqlite3_column_bytes(q, 0),
                                        sqlite3_column_blob(q, 0));
        }
        sql_done(q);
    }
    if (!facts) {
        return error_set(err, ERR_DATA_LOSS, "the stored facts of job %lld are damaged",
                         (long long)id);
    }
    *out = facts;
    return 0;
}

int store_job_live(struct store *s, int64_t **ids, size_t *num, struct error *err)
{
    sqlite3_stmt *q = sql_query(s, err,
                                "SELECT id FROM jobs WHERE state < 7 UNION "
                                "SELECT job FROM attempts WHERE condition < 5 ORDER BY 1",
                                "");
    if (!q) {
        return -1;
    }
    struct buf list = {0};
    int rc;
    while ((rc = sql_step(s, q, err)) == 1) {
        int64_t id = sqlite3_column_int64(q, 0);
        buf_append(&list, &id, sizeof id);
    }
    if (rc < 0) {
        buf_free(&list);
        return -1;
    }
    *num = list.len / sizeof(int64_t);
    *ids = (int64_t *)(void *)buf_take(&list);
    return 0;
}

#define JOB_LIST(index, what, order)                                                               \
    "SELECT " JOB_COLUMNS " FROM jobs j " index                                                    \
    " LEFT JOIN attempts a ON a.job = j.id AND a.number = j.attempt WHERE " what                   \
    " ORDER BY " order " LIMIT "

/* Each by the index that has little but what is asked for: those that have ended may be many. */
static sqlite3_stmt *list_query(struct store *s, const struct store_job_filter *f,
                                struct error *err)
{
    int64_t before_id = f->before_id > 0 ? f->before_id : INT64_MAX, states = f->states;
    const char *tenant = f->tenant ? f->tenant : "";
    if (f->name && *f->name) {
        return sql_query(s, err,
                         JOB_LIST("INDEXED BY jobs_by_name",
                                  "j.name = ?5 AND (j.tenant = ?1 OR ?1 = '') AND j.id < ?2 AND "
                                  "((?3 >> j.state) & 1 OR ?3 = 0)",
                                  "j.id DESC") "?4",
                         "tiiwt", tenant, before_id, states, f->limit, f->name);
    }
    if (f->by_turn) {
        return sql_query(s, err,
                         JOB_LIST("INDEXED BY jobs_queued",
                                  "j.state = 1 AND (j.tenant = ?1 OR ?1 = '')",
                                  "j.priority DESC, j.id") "?2",
                         "tw", tenant, f->limit);
    }
    if (states && states < (1 << JOB_SUCCEEDED)) {
        return sql_query(s, err,
                         JOB_LIST("INDEXED BY jobs_live",
                                  "j.state < 7 AND j.id < ?2 AND (?3 >> j.state) & 1 AND "
                                  "(j.tenant = ?1 OR ?1 = '')",
                                  "j.id DESC") "?4",
                         "tiiw", tenant, before_id, states, f->limit);
    }
    if (*tenant) {
        return sql_query(s, err,
                         JOB_LIST("",
                                  "j.tenant = ?1 AND j.id < ?2 AND ((?3 >> j.state) & 1 OR ?3 = 0)",
                                  "j.id DESC") "?4",
                         "tiiw", tenant, before_id, states, f->limit);
    }
    return sql_query(
        s, err, JOB_LIST("", "j.id < ?1 AND ((?2 >> j.state) & 1 OR ?2 = 0)", "j.id DESC") "?3",
        "iiw", before_id, states, f->limit);
}

int store_job_list(struct store *s, const struct store_job_filter *f, struct job_row **rows,
                   size_t *num, struct error *err)
{
    sqlite3_stmt *q = list_query(s, f, err);
    if (!q) {
        return -1;
    }
    struct buf list = {0};
    int rc;
    while ((rc = sql_step(s, q, err)) == 1) {
        struct job_row row;
        read_job(q, &row);
        buf_append(&list, &row, sizeof row);
    }
    if (rc < 0) {
        buf_free(&list);
        return -1;
    }
    *num = list.len / sizeof(struct job_row);
    *rows = (struct job_row *)(void *)buf_take(&list);
    return 0;
}
