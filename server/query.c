#include "server/query.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/rights.h"
#include "server/worker.h"

int query_find(struct query *q, const char *ref, const struct caller *who, struct job_row *out,
               struct error *err)
{
    int64_t id;
    if (store_job_find(q->reader, ref, rights_tenant(who), &id, err) != 1) {
        return -1;
    }
    int rc = store_job_get(q->reader, id, out, err);
    return rc == 1  ? 0
           : rc < 0 ? -1
                    : error_set(err, ERR_NOT_FOUND, "there is no job %lld", (long long)id);
}

int query_new(struct query **out, struct store *reader, const char *data_dir, struct error *err)
{
    struct query *q = calloc(1, sizeof *q);
    if (!q) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "out of memory");
    }
    q->reader = reader;
    snprintf(q->data_dir, sizeof q->data_dir, "%s", data_dir);
    if (worker_new(&q->worker, "query", q, NULL, err) != 0) {
        free(q);
        return -1;
    }
    *out = q;
    return 0;
}

void query_free(struct query *q)
{
    if (q) {
        worker_free(q->worker);
        store_close(q->reader);
        free(q);
    }
}

void query_post(struct query *q, struct mail *m)
{
    worker_post(q->worker, m);
}
