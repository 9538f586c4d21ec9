/* Tables attempts and plans. */
#include "server/store/attempt_row.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "server/store/store.h"

void attempt_row_read(sqlite3_stmt *q, int at, struct attempt_row *r)
{
    memset(r, 0, sizeof *r);
    if (sqlite3_column_type(q, at) == SQLITE_NULL) {
        return;
    }
    r->number = sqlite3_column_int(q, at);
    r->condition = (enum attempt_condition)sqlite3_column_int(q, at + 1);
    if (sqlite3_column_bytes(q, at + 2) == HASH_BYTES) {
        memcpy(r->token_sha256, sqlite3_column_blob(q, at + 2), HASH_BYTES);
    }
    sql_text(q, at + 3, r->node, sizeof r->node);
    r->num_devices = sqlite3_column_int(q, at + 4);
    r->start_step = sqlite3_column_int64(q, at + 5);
    sql_text(q, at + 6, r->resume_dir, sizeof r->resume_dir);
    r->acked_seq = sqlite3_column_int64(q, at + 7);
    r->pid = sqlite3_column_int64(q, at + 8);
    r->start_time = sqlite3_column_int64(q, at + 9);
    sql_text(q, at + 10, r->boot_id, sizeof r->boot_id);
    r->created_us = sqlite3_column_int64(q, at + 11);
    r->ended_us = sqlite3_column_int64(q, at + 12);
    r->queued_us = sqlite3_column_int64(q, at + 13);
    r->wait_us = sqlite3_column_int64(q, at + 14);
    r->device_us = sqlite3_column_int64(q, at + 15);
    r->yields_to = sqlite3_column_int64(q, at + 16);
    r->backfills = sqlite3_column_int64(q, at + 17);
    r->borrowed = sqlite3_column_int(q, at + 18) != 0;
    r->evicted = sqlite3_column_int(q, at + 19) != 0;
    r->gone_us = sqlite3_column_int64(q, at + 20);
}

int store_attempt_insert(struct store *s, int64_t job, const struct attempt_row *r,
                         const char *devices, const void *plan, size_t plan_len, struct error *err)
{
    if (sql_exec(s, err,
                 "INSERT INTO attempts (job, number, condition, token_sha256, node, devices, "
                 "num_devices, start_step, resume_dir, created_us, ended_us, queued_us, wait_us, "
                 "backfills, borrowed, gone_us, tenant) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, "
                 "?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, (SELECT tenant FROM jobs WHERE id = ?1))",
                 "iwwbttwitiiiiiwi", job, r->number, (int)r->condition,
                 &(struct sql_blob){r->token_sha256, HASH_BYTES}, r->node, devices, r->num_devices,
                 r->start_step, r->resume_dir, r->created_us, r->ended_us, r->queued_us, r->wait_us,
                 r->backfills, (int)r->borrowed, r->gone_us) != 0) {
        return -1;
    }
    uint8_t sum[32];
    sql_sha256(plan, plan_len, sum);
    return sql_exec(s, err, "INSERT INTO plans (job, attempt, plan, sha256) VALUES (?, ?, ?, ?)",
                    "iwbb", job, r->number, &(struct sql_blob){plan, plan_len},
                    &(struct sql_blob){sum, sizeof sum});
}

int store_attempt_update(struct store *s, int64_t job, const struct attempt_row *r,
                         struct error *err)
{
    return sql_exec(
        s, err,
        "UPDATE attempts SET condition = ?3, acked_seq = ?4, pid = ?5, "
        "start_time = ?6, boot_id = ?7, ended_us = ?8, device_us = ?9, yields_to = ?10, "
        "evicted = ?11, gone_us = ?12 WHERE job = ?1 AND number = ?2",
        "iwwiiitiiiwi", job, r->number, (int)r->condition, r->acked_seq, r->pid, r->start_time,
        r->boot_id, r->ended_us, r->device_us, r->yields_to, (int)r->evicted, r->gone_us);
}

int store_attempt_devices(struct store *s, int64_t job, int32_t number, struct buf *out,
                          struct error *err)
{
    return sql_text_of(s,
                       sql_query(s, err,
                                 "SELECT devices FROM attempts WHERE job = ? AND number = ?", "iw",
                                 job, number),
                       out, err);
}

int store_attempt_plan(struct store *s, int64_t job, int32_t attempt, Plan **out, struct error *err)
{
    sqlite3_stmt *q = sql_query(
        s, err, "SELECT plan, sha256 FROM plans WHERE job = ? AND attempt = ?", "iw", job, attempt);
    if (!q) {
        return -1;
    }
    int rc = sql_step(s, q, err);
    if (rc < 0) {
        return -1;
    }
    Plan *plan = NULL;
    if (rc == 1) {
        if (sql_blob_is_whole(q, 0, 1)) {
            plan =
                plan__unpack(NULL, (size_t)sqlite3_column_bytes(q, 0), sqlite3_column_blob(q, 0));
        }
        sql_done(q);
    }
    if (!plan) {
        return error_set(err, ERR_DATA_LOSS, "the stored plan of job %lld, attempt %d is damaged",
                         (long long)job, attempt);
    }
    *out = plan;
    return 0;
}

int store_attempt_tokens(struct store *s, int32_t limit, struct store_token **tokens, size_t *num,
                         struct error *err)
{
    sqlite3_stmt *q = sql_query(s, err,
                                "SELECT job, number, token_sha256 FROM attempts "
                                "ORDER BY job DESC, number DESC LIMIT ?",
                                "w", limit);
    if (!q) {
        return -1;
    }
    struct buf list = {0};
    int rc;
    while ((rc = sql_step(s, q, err)) == 1) {
        struct store_token t = {.job = sqlite3_column_int64(q, 0),
                                .attempt = sqlite3_column_int(q, 1)};
        if (sqlite3_column_bytes(q, 2) == HASH_BYTES) {
            memcpy(t.sha256, sqlite3_column_blob(q, 2), HASH_BYTES);
            buf_append(&list, &t, sizeof t);
        }
    }
    if (rc < 0) {
        buf_free(&list);
        return -1;
    }
    *num = list.len / sizeof(struct store_token);
    *tokens = (struct store_token *)(void *)buf_take(&list);
    return 0;
}
