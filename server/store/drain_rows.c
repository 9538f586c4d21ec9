/* Table drains. */
#include "server/store/store.h"

#include <string.h>

#include "server/store/sql.h"

int store_drain_list(struct store *s, struct drain_row **rows, size_t *num, struct error *err)
{
    sqlite3_stmt *q = sql_query(s, err,
                                "SELECT node, device, reason, user, time_us, let_finish "
                                "FROM drains ORDER BY node, device",
                                "");
    if (!q) {
        return -1;
    }
    struct buf list = {0};
    int rc;
    while ((rc = sql_step(s, q, err)) == 1) {
        struct drain_row r;
        memset(&r, 0, sizeof r);
        sql_text(q, 0, r.node, sizeof r.node);
        r.device = sqlite3_column_int(q, 1);
        sql_text(q, 2, r.reason, sizeof r.reason);
        sql_text(q, 3, r.user, sizeof r.user);
        r.time_us = sqlite3_column_int64(q, 4);
        r.let_finish = sqlite3_column_int(q, 5) != 0;
        buf_append(&list, &r, sizeof r);
    }
    if (rc < 0) {
        buf_free(&list);
        return -1;
    }
    *num = list.len / sizeof(struct drain_row);
    *rows = (struct drain_row *)(void *)buf_take(&list);
    return 0;
}

int store_drain_put(struct store *s, const struct drain_row *r, struct error *err)
{
    return sql_exec(s, err,
                    "INSERT INTO drains (node, device, reason, user, time_us, let_finish) VALUES "
                    "(?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET reason = excluded.reason, "
                    "user = excluded.user, time_us = excluded.time_us, "
                    "let_finish = excluded.let_finish",
                    "twttiw", r->node, r->device, r->reason, r->user, r->time_us,
                    (int)r->let_finish);
}

int store_drain_remove(struct store *s, const char *node, int32_t device, struct error *err)
{
    return sql_exec(s, err, "DELETE FROM drains WHERE node = ? AND device = ?", "tw", node, device);
}
