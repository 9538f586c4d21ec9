/* Who starts next, where, and who has to give way for it: a pure function of the queue, what runs,
 * tenants, devices and a clock that is given. It starts and stops nothing; the controller carries
 * its decisions out, and may carry none of them out: the next pass sees what came of them.
 *
 * Order of the queue: effective priority (the job's own, plus aging, less its tenant's use), then
 * the older job. The first job that doesn't fit gets a reservation: the devices, and the time at
 * which they are expected to be free. A job behind it starts only where that can't delay it: on
 * other devices, or on these with a time limit that ends before (backfill). A gang gets all its
 * devices or none.
 *
 * Reservations: not only the first job that doesn't fit has one, but each that could use a device
 * which no earlier one looks after: so the first on each type, and the first on the other nodes
 * where an earlier job is pinned. They are made anew in each pass. A job within its tenant's quota
 * isn't held up by the reservation of one that isn't within its own.
 *
 * Quotas: a tenant may hold its quota; beyond that it borrows what is free, up to its max. Which of
 * its running jobs are the borrowed ones follows from their order (highest priority first, then
 * the longest running, those that are stopping last): each that still fits into the quota is its
 * own, the others are borrowed, so nothing of it is stored. Tenants without a quota are one pool:
 * priority decides there. A job whose tenant stays within its quota with it takes devices back
 * from borrowers first, then from the pool, whatever their priority: nobody has a guarantee there.
 * What a claim keeps counts as held.
 *
 * Preemption: for a job that can't start otherwise, the fewest victims in the order backfilled in
 * front of it, borrowed, lowest priority, least device-time lost since its last checkpoint. Those
 * backfilled in front of it apart, a victim is never of the same or higher priority unless its
 * devices are taken back for a quota, and never another tenant's within its quota. Priorities are
 * the jobs' own here, aging and use aside, so that no two jobs take turns in stopping each other.
 * What it frees, and what was free of the place chosen, is a claim: nobody else gets that until
 * the job has started, or wants it no more. */
#ifndef TANDEM_SERVER_SCHED_SCHED_H
#define TANDEM_SERVER_SCHED_SCHED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "plan/place.h"

/* Times are milliseconds of one clock that never goes back. */
#define SCHED_NEVER INT64_MAX

struct sched_options {
    bool preemption, backfill;
    int32_t max_evictions;
    int64_t min_run_ms;
    int64_t grace_ms; /* a victim is gone after that at the latest */
    double aging_per_h;
    int32_t aging_max;
    int32_t fair_share;
};

struct sched_tenant {
    const char *name;
    int64_t quota; /* devices; -1 = none: of the common pool */
    int64_t max;   /* -1 = no limit */
    double weight; /* > 0 */
    double usage;  /* decayed device-seconds */
};

/* A job of the queue. */
struct sched_job {
    int64_t id;
    int32_t tenant; /* in tenants */
    int32_t priority;
    int32_t num_devices; /* = the product of place's axes */
    struct place_request place;
    int64_t waits_since_ms;
    int64_t limit_ms; /* of a run; its processes are gone then. 0 = none */
    int32_t evictions;
    bool ready;                     /* false: backoff, dependency, or its old attempt isn't gone */
    bool hidden;                    /* sched_why doesn't tell which it is */
    const struct device_set *claim; /* kept for it; NULL = none */
};

/* An attempt that holds devices. */
struct sched_run {
    int64_t id; /* of its job */
    int32_t tenant;
    int32_t priority;
    const struct device_set *devices;
    int64_t started_ms;
    int64_t end_ms;      /* expected; SCHED_NEVER = nobody knows */
    int64_t hard_end_ms; /* gone by then for sure; SCHED_NEVER = no limit */
    int64_t lost_ms;     /* since its last checkpoint: times devices = what a stop loses */
    int32_t evictions;
    bool can_stop;     /* RUNNING, and may be asked to */
    bool stopping;     /* asked already, or it ends */
    int64_t yields_to; /* the job that it was stopped for; 0 = none */
    int64_t backfills; /* the job on whose reserved devices it was started; 0 = none */
    bool is_stuck;     /* its devices won't come back soon */
    bool hidden;
};

struct sched_view {
    const struct fabric *fabric;
    const bool *drained; /* num_devices; NULL = none */
    const struct sched_options *options;
    const struct sched_tenant *tenants;
    int32_t num_tenants;
    const struct sched_job *jobs;
    size_t num_jobs;
    const struct sched_run *runs;
    size_t num_runs;
    int64_t now_ms;
};

enum sched_kind {
    SCHED_START,   /* job on devices */
    SCHED_STOP,    /* run gives way to job, at a step boundary after a checkpoint */
    SCHED_CLAIM,   /* job keeps set from now on (in place of what it had) */
    SCHED_UNCLAIM, /* job keeps nothing any more */
};

struct sched_decision {
    enum sched_kind kind;
    size_t job;             /* in jobs */
    size_t run;             /* STOP: in runs */
    int32_t *devices;       /* START: by rank, num_devices of the job; owned by the result */
    struct device_set *set; /* CLAIM; START: the same devices; owned; may be taken (set NULL) */
    int64_t backfills;      /* START: on devices that are reserved for that job; 0 = on others */
    bool borrowed;          /* START: beyond its tenant's quota */
};

/* What a pass decided; and what it found on the way, which sched_why and the next pass use. */
struct sched;

/* Keeps what one pass learns for the next: with it, a pass after little has changed costs little.
 * It never changes what is decided. */
int sched_new(struct sched **out, const struct fabric *f, struct error *err);
void sched_free(struct sched *s);
/* Everything may have changed: the next pass starts from nothing. */
void sched_reset(struct sched *s);

/* Decisions in the order in which they are to be carried out; they live until the next pass. How
 * much a pass does is bounded: after one whose decisions were carried out, the next may go on. */
size_t sched_pass(struct sched *s, const struct sched_view *v,
                  const struct sched_decision **decisions);

/* When the next pass may decide otherwise though nothing has happened (aging aside); SCHED_NEVER.
 */
int64_t sched_next_ms(const struct sched *s);

struct sched_reason {
    char words[512];      /* "fragmented: needs 1 x 8 in a fast domain, has 2 x 4" */
    int64_t may_start_ms; /* SCHED_NEVER = can't be said */
    int64_t holders[16];  /* job ids; -1 = hidden */
    int32_t num_holders;
    int32_t place; /* in the queue, from 1 */
};
/* Why jobs[job] doesn't start now. */
void sched_why(const struct sched_view *v, size_t job, struct sched_reason *out);

/* The same from the pass that s made last; v is as it was then, decisions not carried out: for many
 * jobs of one view. */
void sched_explain(struct sched *s, const struct sched_view *v, size_t job,
                   struct sched_reason *out);

/* Of each run of v: is it borrowed? borrowed[num_runs]. */
void sched_borrowed(const struct sched_view *v, bool *borrowed);

/* Candidates of preemption for job, best victim first; runs[num_runs] gets indexes; returns the
 * count. The table of tests/unit/sched_victims_test.c is about this. */
size_t sched_victims(const struct sched_view *v, size_t job, size_t *runs);

/* Effective priority of jobs[job]. */
double sched_priority(const struct sched_view *v, size_t job);

#endif
