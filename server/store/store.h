/* The database: all SQL of the controller and nothing but SQL. SQLite in WAL mode,
 * synchronous=FULL: what store_commit has returned for is on disk. One connection writes (the owner
 * thread's), others only read. A store belongs to one thread.
 *
 * Every function returns -1 and fills err when the database fails. */
#ifndef TANDEM_SERVER_STORE_STORE_H
#define TANDEM_SERVER_STORE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"
#include "proto/names.h"
#include "server/store/metric_row.h"
#include "server/store/rows.h"

struct store;

/* Opens path for writing, making it if need be, and migrates it forward. Refused in words: a
 * network filesystem, a database of a newer version, a migration that was changed after it ran. */
int store_open(struct store **out, const char *path, struct error *err);
/* The network filesystem that statfs gives this number for; NULL: not one of those refused. */
const char *store_network_name(uint32_t magic);
/* A read-only connection to a database that store_open has opened. */
int store_open_reader(struct store **out, const char *path, struct error *err);
void store_close(struct store *s);
/* Moves what the log beside the database (PATH-wal) holds into it and cuts it to nothing, if it has
 * more than max_bytes: commits do the first by themselves, but a log that was always being read
 * grows. On a connection of its own; holds up the writer for 200 ms at most. *bytes: its size. */
int store_trim_wal(const char *path, int64_t max_bytes, int64_t *bytes, struct error *err);
int store_schema_version(struct store *s, int32_t *out, struct error *err);

/* Transactions and, inside one, a save point for each message. */
int store_begin(struct store *s, struct error *err);
int store_commit(struct store *s, struct error *err);
void store_rollback(struct store *s);
/* Has anything gone wrong with the database itself since store_begin? A broken constraint doesn't
 * count: that is one statement. */
bool store_has_failed(const struct store *s);
int store_savepoint(struct store *s, struct error *err);
int store_release(struct store *s, struct error *err);
int store_undo(struct store *s, struct error *err);
/* Readers: what is read until store_end_read is one state of the database. A reader holds that
 * state for STORE_READ_MS at most: then its statements fail with ERR_DEADLINE_EXCEEDED. */
#define STORE_READ_MS 20000
int store_begin_read(struct store *s, struct error *err);
void store_end_read(struct store *s);

/* ---- jobs ---- */
/* Fills row->id. */
int store_job_insert(struct store *s, struct job_row *row, const void *spec, size_t spec_len,
                     const void *facts, size_t facts_len, struct error *err);
/* All columns that change; the attempt not. */
int store_job_update(struct store *s, const struct job_row *row, struct error *err);
/* Names of the devices that are kept for it: "alpha:0-3,beta:1", "" = none. 1 found, 0 no such job.
 */
int store_job_claim(struct store *s, int64_t id, struct buf *out, struct error *err);
int store_job_set_claim(struct store *s, int64_t id, const char *devices, struct error *err);
/* The highest number that was ever given to a job; 0 = none. */
int store_job_last(struct store *s, int64_t *id, struct error *err);
/* With its latest attempt. 1 found, 0 not. */
int store_job_get(struct store *s, int64_t id, struct job_row *out, struct error *err);
/* 1 found, 0 no such job (err says so), also for a name that fits several. */
int store_job_find(struct store *s, const char *ref, const char *tenant, int64_t *id,
                   struct error *err);
/* The unpacked spec; -1 with ERR_DATA_LOSS where the blob isn't what was written. */
int store_job_spec(struct store *s, int64_t id, JobSpec **out, struct error *err);
int store_job_facts(struct store *s, int64_t id, ProbeReply **out, struct error *err);
/* Ids, ascending, of all that have not ended or whose attempt may still run; *ids is freed by the
 * caller. */
int store_job_live(struct store *s, int64_t **ids, size_t *num, struct error *err);
struct store_job_filter {
    uint32_t states;    /* bit n = JobState n; 0 = all */
    const char *tenant; /* NULL = all */
    const char *name;   /* NULL = all */
    int64_t before_id;  /* 0 = from the newest */
    int32_t limit;
    bool by_turn; /* those that wait, by priority and then id; states and before_id don't count */
};
/* Newest first, but for by_turn. *rows is freed by the caller. */
int store_job_list(struct store *s, const struct store_job_filter *filter, struct job_row **rows,
                   size_t *num, struct error *err);

/* ---- attempts ---- */
/* devices: their names, "alpha:0-3,beta:1". */
int store_attempt_insert(struct store *s, int64_t job, const struct attempt_row *row,
                         const char *devices, const void *plan, size_t plan_len, struct error *err);
/* What changes after that. */
int store_attempt_update(struct store *s, int64_t job, const struct attempt_row *row,
                         struct error *err);
/* 1 found, 0 no such attempt. */
int store_attempt_devices(struct store *s, int64_t job, int32_t number, struct buf *out,
                          struct error *err);
int store_attempt_plan(struct store *s, int64_t job, int32_t attempt, Plan **out,
                       struct error *err);
struct store_token {
    int64_t job;
    int32_t attempt;
    uint8_t sha256[HASH_BYTES];
};
/* The newest `limit` of all attempts' tokens. *tokens is freed by the caller. */
int store_attempt_tokens(struct store *s, int32_t limit, struct store_token **tokens, size_t *num,
                         struct error *err);

/* ---- events ---- */
/* Fills e->id. */
int store_event_insert(struct store *s, Event *e, struct error *err);
/* Calls fn for events with id > after_id, oldest first, at most limit; job 0 = of all jobs, or with
 * a tenant of all of that tenant's. *e is borrowed for the call. fn returns false to stop. */
typedef bool (*store_event_fn)(void *arg, const Event *e);
int store_event_list(struct store *s, int64_t job, const char *tenant, int64_t after_id,
                     int32_t limit, store_event_fn fn, void *arg, struct error *err);
/* The same for the newest of a job, oldest first. */
int store_event_newest(struct store *s, int64_t job, int32_t most, store_event_fn fn, void *arg,
                       struct error *err);
int store_event_last(struct store *s, int64_t *id, struct error *err);

/* ---- metrics ---- */
/* A row that is there already stays as it is. step >= 1. */
int store_metric_insert(struct store *s, const StepMetrics *m, struct error *err);
/* The curve. Row (step, attempt a) is visible if no later attempt a' > a has start_step < step. */
struct store_metric_range {
    int64_t job;
    int64_t from, to; /* to 0 = to the end */
    int32_t attempt;  /* 0 = the visible rows; else all rows of that attempt */
};
/* fn gets the rows by (step, attempt) and returns false to stop. gap
 * (may be NULL) hears of steps that are damaged in the database, or thinned out for their age. */
typedef bool (*store_row_fn)(void *arg, const struct metric_row *r);
enum store_metric_loss { METRIC_DAMAGED, METRIC_THINNED };
typedef void (*store_metric_gap_fn)(void *arg, enum store_metric_loss what, int32_t attempt,
                                    int64_t first, int64_t last);
int store_metric_scan(struct store *s, const struct store_metric_range *range, store_row_fn fn,
                      store_metric_gap_fn gap, void *arg, struct error *err);
/* Visible rows after (attempt, step), in that order, at most limit. */
typedef bool (*store_metric_fn)(void *arg, const StepMetrics *m);
int store_metric_after(struct store *s, int64_t job, int32_t attempt, int64_t step, int32_t limit,
                       store_metric_fn fn, void *arg, struct error *err);

/* How many rows scan would give (counted up to limit), and the first and last step. */
struct store_metric_extent {
    int64_t rows, first, last;
};
int store_metric_extent(struct store *s, const struct store_metric_range *range, int64_t limit,
                        struct store_metric_extent *out, struct error *err);
/* The same rows in no order, and blocks of them by their extremes alone. A block holds rows of one
 * attempt whose (step - 1) / block_steps is the same; block_steps: as store_metric_block says. */
struct store_metric_visitor {
    void (*row)(void *arg, const struct metric_row *r);
    void (*block)(void *arg, const struct metric_extremes *e);
    store_metric_gap_fn gap;
    void *arg;
};
int store_metric_blocks(struct store *s, const struct store_metric_range *range,
                        int64_t block_steps, const struct store_metric_visitor *v,
                        struct error *err);
/* The largest block of at most so many steps; 1: rows. */
int64_t store_metric_block(int64_t max_steps);

/* Makes chunks of rows that still lie one by one: complete ones, or all with `whole` (the job has
 * ended); about max_rows a call. *rows: how many; fewer than max_rows: there are no more. */
int store_metric_fold(struct store *s, int64_t job, bool whole, int64_t max_rows, int64_t *rows,
                      struct error *err);
/* The next job that has such rows. 1 found, 0 not. */
int store_metric_next_job(struct store *s, int64_t after, int64_t *job, struct error *err);

/* ---- checkpoints ---- */
/* A row that is there already stays. c: job_id, attempt, step, path (below the job's folder),
 * size_bytes, loss, created_us. */
int store_checkpoint_insert(struct store *s, const Checkpoint *c, struct error *err);
int store_checkpoint_set_state(struct store *s, int64_t id, CheckpointState state,
                               struct error *err);
typedef bool (*store_checkpoint_fn)(void *arg, const Checkpoint *c);
/* Newest first (step, then attempt); before_id 0 = all; step -1 = any. */
int store_checkpoint_list(struct store *s, int64_t job, int64_t step, int64_t before_id,
                          int32_t limit, store_checkpoint_fn fn, void *arg, struct error *err);

/* ---- drains ---- */
/* By node and device. *rows is freed by the caller. */
int store_drain_list(struct store *s, struct drain_row **rows, size_t *num, struct error *err);
/* A drain of the same node and device is replaced. */
int store_drain_put(struct store *s, const struct drain_row *row, struct error *err);
/* Of the node itself: device -1. */
int store_drain_remove(struct store *s, const char *node, int32_t device, struct error *err);

/* ---- the rest ---- */
/* 1 found, 0 not. spec_sha256: of the spec as it came; 1 with *same false: it was another one. */
int store_key_get(struct store *s, const char *tenant, const char *user, const char *key,
                  const uint8_t spec_sha256[HASH_BYTES], int64_t *job, bool *same,
                  struct error *err);
int store_key_insert(struct store *s, const char *tenant, const char *user, const char *key,
                     const uint8_t spec_sha256[HASH_BYTES], int64_t job, struct error *err);
int store_peak_get(struct store *s, const char *cpu_model, double *fp32, double *fp64,
                   struct error *err);
int store_peak_set(struct store *s, const char *cpu_model, double fp32, double fp64,
                   struct error *err);

#endif
