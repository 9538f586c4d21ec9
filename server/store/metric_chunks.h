/* Tables metric_chunks and metric_rollups: how rows get into chunks, and how chunks and rollups are
 * read one by one. Private to server/store. */
#ifndef TANDEM_SERVER_STORE_METRIC_CHUNKS_H
#define TANDEM_SERVER_STORE_METRIC_CHUNKS_H

#include "base/buf.h"
#include "server/store/metric_row.h"
#include "server/store/sql.h"

#define METRIC_LEVELS 12

/* Steps of a block of a level: 1024, 4096, ... */
static inline int64_t metric_level_steps(int level)
{
    return (int64_t)METRIC_CHUNK_STEPS << (2 * (level - 1));
}

struct metric_chunk {
    int64_t job;
    int64_t chunk;
    int32_t attempt;
    bool thinned;
    size_t num;
    struct metric_row rows[METRIC_CHUNK_STEPS];
};

/* 1 = read, 0 = there is none, -2 = it is damaged (said in the log), -1 = err. c: job, attempt and
 * chunk say which. */
int metric_chunk_read(struct store *s, struct metric_chunk *c, struct error *err);
/* The chunk, and the rollup of level 1; num >= 1. */
int metric_chunk_write(struct store *s, const struct metric_chunk *c, struct error *err);

/* Where a new row goes. Rows of the attempt's newest chunk and below are in chunks already: then
 * the row is put there, if it is new, and *taken is set. */
int metric_chunks_take_late(struct store *s, const struct metric_row *r, int64_t job, bool *taken,
                            struct error *err);
/* After a row came into table metrics: makes chunks of what is complete, a bounded piece of it. */
int metric_chunks_added(struct store *s, const struct metric_row *r, int64_t job,
                        struct error *err);
/* What is remembered of tails may not be so any more. */
void metric_chunks_forget(struct store *s);
/* Newest chunk of the attempt; -1: none. */
int metric_chunks_newest(struct store *s, int64_t job, int32_t attempt, int64_t *out,
                         struct error *err);

/* Reads columns of table metrics from `first` on: step, attempt, loss, ... */
#define METRIC_COLUMNS "step, attempt, loss, grad_norm, lr, tokens, step_ms, tokens_per_s, mfu"
void metric_row_read(sqlite3_stmt *q, struct metric_row *r);

#endif
