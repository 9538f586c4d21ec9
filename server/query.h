/* The query thread: answers what only needs the database, over its read-only connection. */
#ifndef TANDEM_SERVER_QUERY_H
#define TANDEM_SERVER_QUERY_H

#include "server/mail.h"
#include "server/store/store.h"

struct query {
    struct store *reader; /* owned */
    char data_dir[4096];
    struct worker *worker;
    int64_t usage_rest_ms; /* sums of use are refused until then: the last one took long */
};

int query_new(struct query **out, struct store *reader, const char *data_dir, struct error *err);
void query_free(struct query *q);
/* Any thread; run gets the struct query. */
void query_post(struct query *q, struct mail *m);

/* Query thread: the job that a caller means by ref. */
int query_find(struct query *q, const char *ref, const struct caller *who, struct job_row *out,
               struct error *err);

#endif
