/* What is made smaller, or removed, of jobs that ended long ago; in pieces, each inside the
 * caller's transaction and short, so that a sweep can stop anywhere and go on later. */
#ifndef TANDEM_SERVER_STORE_SWEEP_ROWS_H
#define TANDEM_SERVER_STORE_SWEEP_ROWS_H

#include "server/store/store.h"

/* Where a sweep over ended jobs stands, by the time of their end; zero = at the start. */
struct sweep_cursor {
    int64_t ended_us, job;
};
struct sweep_job {
    int64_t job, ended_us;
    int32_t attempt; /* the latest */
};
/* The next jobs after the cursor that ended before before_us, whose attempts are gone; moves the
 * cursor. */
int sweep_ended(struct store *s, int64_t before_us, struct sweep_cursor *at, struct sweep_job *jobs,
                size_t max, size_t *num, struct error *err);

/* Of an ended job. Curves: of its chunks only the extremes of each block are kept. *num: how many
 * chunks were thinned; fewer than max: no more. */
int sweep_metrics(struct store *s, int64_t job, int max, int *num, struct error *err);
/* *num: how many went; fewer than max: no more. */
int sweep_events(struct store *s, int64_t job, int max, int *num, struct error *err);
int sweep_keys(struct store *s, int64_t job, struct error *err);

/* Logs: mark; then the files (of attempts up to the latest); then done. going: those marked, also
 * by an earlier process, with higher numbers than after. */
int sweep_logs_mark(struct store *s, int64_t job, struct error *err);
int sweep_logs_going(struct store *s, int64_t after, struct sweep_job *jobs, size_t max,
                     size_t *num, struct error *err);
int sweep_logs_done(struct store *s, const struct sweep_job *job, struct error *err);

#endif
