/* A month of a training cluster, event by event: a trace of jobs, and the policies that it is run
 * under. Times are milliseconds from the first submission. */
#ifndef TANDEM_TESTS_BENCH_MONTH_H
#define TANDEM_TESTS_BENCH_MONTH_H

#include "server/sched/sched.h"

enum { MONTH_TENANTS = 3, MONTH_DEVICES_PER_NODE = 8 };

enum month_state { M_FUTURE, M_QUEUED, M_RUNNING, M_STOPPING, M_ENDED };

struct month_job {
    struct place_request place;
    int32_t tenant, priority, num_devices;
    int64_t submit_ms, work_ms, limit_ms; /* limit 0 = none */
    double guess;                         /* expected end: work times that */
    /* its course */
    enum month_state state;
    int64_t queued_ms, waited_ms; /* since when; all in all */
    int64_t started_ms, ends_ms, done_ms, backfills;
    int64_t yields_to;
    int32_t evictions;
    uint32_t course; /* grows with each change: events of an older one are void */
    struct device_set *set, *claim;
};

struct month_event {
    int64_t at_ms;
    int64_t order;
    int32_t job;
    uint32_t course; /* 0 = submit */
};

struct month {
    struct fabric *fabric;
    struct month_job *jobs;
    int32_t num_jobs;
    int64_t days, start_ms; /* overhead of each start */
    struct sched_tenant tenants[MONTH_TENANTS];
    int64_t due[MONTH_TENANTS]; /* devices; a quota, whether the policy knows it or not */
    struct sched_options options;
    bool flat; /* all jobs are of one priority */
    /* the run */
    int64_t now_ms;
    struct month_event *heap;
    size_t num_events, event_cap;
    int64_t num_pushed;
    int32_t *queue, num_queue; /* by submission */
    int32_t *running, num_running;
    struct free_map *free;
    int64_t used[MONTH_TENANTS];
    struct sched *sched; /* ours only */
    int64_t next_ms;
    /* what came of it */
    int64_t num_passes, num_evictions, num_backfills;
    double busy_s, lost_s;        /* device-seconds up to the last submission */
    double owed_s[MONTH_TENANTS]; /* asked for within the quota and not given */
};

typedef void month_policy(struct month *m);

/* ---- month_trace.c */
struct month *month_new(int32_t nodes, int64_t days, int64_t jobs_a_day, double load);
void month_free(struct month *m);
/* As before the first submission. */
void month_rewind(struct month *m);

/* ---- month_run.c */
/* To the end of the last job. */
void month_run(struct month *m, month_policy *policy);
void month_start(struct month *m, int32_t job, const int32_t *devices);
void month_stop(struct month *m, int32_t job, int64_t yields_to);

/* ---- month_policies.c */
/* Strict order of submission: a gang that doesn't fit stops the queue. */
month_policy month_fifo;
/* EASY backfill that knows sizes, not places: the first that doesn't fit gets a time by the count
 * of devices; a job behind it starts if it ends before, or leaves as many as that one needs. */
month_policy month_easy;
/* server/sched. */
month_policy month_ours;

#endif
