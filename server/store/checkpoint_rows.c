/* Table checkpoints. */
#include "server/store/store.h"

#include <math.h>

#include "server/store/sql.h"

int store_checkpoint_insert(struct store *s, const Checkpoint *c, struct error *err)
{
    return sql_exec(s, err,
                    "INSERT INTO checkpoints (job, attempt, step, state, dir, size_bytes, loss, "
                    "created_us) VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                    "iwiwtidi", c->job_id, c->attempt, c->step, (int)CHECKPOINT_COMPLETE, c->path,
                    c->size_bytes, c->has_loss ? c->loss : (double)NAN, c->created_us);
}

int store_checkpoint_set_state(struct store *s, int64_t id, CheckpointState state,
                               struct error *err)
{
    return sql_exec(s, err, "UPDATE checkpoints SET state = ?2 WHERE id = ?1", "iw", id,
                    (int)state);
}

int store_checkpoint_list(struct store *s, int64_t job, int64_t step, int64_t before_id,
                          int32_t limit, store_checkpoint_fn fn, void *arg, struct error *err)
{
    sqlite3_stmt *q = sql_query(
        s, err,
        "SELECT id, job, attempt, step, state, dir, size_bytes, loss, created_us, pinned "
        "FROM checkpoints WHERE job = ?1 AND (step = ?2 OR ?2 < 0) AND (id < ?3 OR ?3 = 0) "
        "ORDER BY id DESC LIMIT ?4",
        "iiiw", job, step, before_id, limit);
    if (!q) {
        return -1;
    }
    int rc;
    while ((rc = sql_step(s, q, err)) == 1) {
        Checkpoint c = CHECKPOINT__INIT;
        c.has_id = c.has_job_id = c.has_attempt = c.has_step = c.has_state = 1;
        c.has_size_bytes = c.has_created_us = c.has_pinned = 1;
        c.id = sqlite3_column_int64(q, 0);
        c.job_id = sqlite3_column_int64(q, 1);
        c.attempt = sqlite3_column_int(q, 2);
        c.step = sqlite3_column_int64(q, 3);
        c.state = (CheckpointState)sqlite3_column_int(q, 4);
        c.path = (char *)(uintptr_t)sqlite3_column_text(q, 5);
        c.size_bytes = sqlite3_column_int64(q, 6);
        c.loss = sql_double(q, 7);
        c.has_loss = !isnan(c.loss);
        c.created_us = sqlite3_column_int64(q, 8);
        c.pinned = sqlite3_column_int(q, 9) != 0;
        if (!fn(arg, &c)) {
            sql_done(q);
            return 0;
        }
    }
    return rc;
}
