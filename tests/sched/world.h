/* A small world around sched_pass: a random cluster, tenants, jobs, and a clock that jumps from one
 * event to the next. It carries the decisions out as the controller does, has runs that end early,
 * fail, or don't stop, devices that are drained or stuck, and a controller that forgets all that
 * isn't stored. After each pass it is checked by rules that are written anew here (rules.c,
 * check*.c): a broken one ends the run, with the scenario's number in front.
 *
 * All of chance is drawn before the world begins, or follows from job and attempt: what the
 * scheduler decides doesn't shift the luck of what comes later. */
#ifndef TANDEM_TESTS_SCHED_WORLD_H
#define TANDEM_TESTS_SCHED_WORLD_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "server/sched/sched.h"
#include "tests/sim/sim_rng.h"

enum {
    WORLD_MAX_JOBS = 48,
    WORLD_MAX_TENANTS = 4,
    WORLD_MAX_EVENTS = 160,
    WORLD_MAX_NODES = 16,
    WORLD_MAX_DEVICES = 128
};

/* What may happen; chances are of 0..1. */
struct world_profile {
    const char *name;
    int32_t jobs_min, jobs_max;
    double preemption; /* chance that it is on in a seed */
    double quotas;     /* chance that a tenant has one */
    double priorities; /* chance that a job's isn't the usual one */
    double aging;      /* chance that it is on */
    double fair_share;
    double limits;        /* chance that a job has a time limit */
    double known_ends;    /* chance that a run's end is foreseen */
    double afters;        /* chance that a job waits for another one */
    double fails;         /* chance that an attempt fails, and is started again */
    double stubborn;      /* chance that a stop takes up to the grace */
    double shapes;        /* chance of a shape with more than a data axis */
    int32_t disturbances; /* cancels, holds, priorities, drains, quotas, crashes, stuck devices */
    const char *kinds;    /* letters of those: c h p d q x s */
    bool exact;           /* limits are the true ends; nothing disturbs */
};
extern const struct world_profile world_profiles[]; /* the last has no name */
const struct world_profile *world_profile(const char *name);

enum world_state { W_FUTURE, W_QUEUED, W_HELD, W_STARTING, W_RUNNING, W_STOPPING, W_ENDED };
enum world_target { TO_QUEUE, TO_END };

struct world_job {
    /* as submitted */
    int64_t id;
    int32_t tenant, priority, num_devices;
    struct place_request place;
    const char *nodes[WORLD_MAX_NODES];
    int64_t limit_ms;
    int64_t after; /* waits until that job has ended; 0 = none */
    /* its true course */
    int64_t work_ms, ckpt_every_ms;
    int32_t num_fails;
    bool known_end;
    /* stored */
    enum world_state state;
    enum world_target target;
    int64_t waits_since_ms, not_before_ms, done_ms;
    int32_t attempts, evictions, fails;
    struct device_set *claim;
    /* its run, stored as well */
    int32_t *devices;
    struct device_set *set;
    int64_t started_ms, begun_ms, ends_ms, gone_ms;
    int64_t yields_to, backfills;
    bool will_fail, will_save, succeeded, is_stuck;
    int64_t stop_ms; /* when it was asked to stop */
    /* for the checks */
    int64_t head_ms, promised_ms, first_start_ms;
    int64_t charged_ms; /* device-milliseconds of ended attempts */
};

enum world_kind {
    EV_SUBMIT,
    EV_CANCEL,
    EV_HOLD,
    EV_RELEASE,
    EV_PRIORITY,
    EV_DRAIN,
    EV_UNDRAIN,
    EV_QUOTA,
    EV_CRASH,
    EV_STICK,
};
struct world_event {
    int64_t at_ms;
    enum world_kind kind;
    int32_t what; /* job, device or tenant */
    int64_t value, more;
};

struct world {
    const struct world_profile *profile;
    uint64_t seed;
    FILE *trace; /* NULL = none */
    struct fabric *fabric;
    struct sched *sched;
    struct sched_options options;
    struct sched_tenant tenants[WORLD_MAX_TENANTS], born[WORLD_MAX_TENANTS];
    char tenant_names[WORLD_MAX_TENANTS][16];
    int32_t num_tenants;
    struct world_job jobs[WORLD_MAX_JOBS];
    int32_t num_jobs;
    struct world_event events[WORLD_MAX_EVENTS];
    int32_t num_events, next_event;
    bool *drained, *let_finish;
    int64_t now_ms, down_until_ms, calm_ms;
    int64_t no_backfill_from_ms; /* a twin of the same history; SCHED_NEVER = as it is */
    int64_t charged_ms, held_ms; /* device-ms: by attempts that ended; by the clock */
    int64_t num_passes, num_starts, num_stops, num_backfills, num_claims;
    /* the present view */
    struct sched_view view;
    struct sched_job queue[WORLD_MAX_JOBS];
    struct sched_run runs[WORLD_MAX_JOBS];
    int32_t queue_job[WORLD_MAX_JOBS], run_job[WORLD_MAX_JOBS]; /* in jobs */
    char why[512];                                              /* what is broken; "" = nothing */
};

/* ---- world_make.c */
struct world *world_new(uint64_t seed, const struct world_profile *p);
void world_free(struct world *w);
struct fabric *world_fabric(struct sim_rng *rng);

/* ---- world.c */
/* To the end. False: a rule is broken, w->why says which. */
bool world_run(struct world *w);
void world_say(struct world *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Notes the first rule that is broken; returns false. */
bool world_broken(struct world *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
bool world_holds(const struct world_job *j);
bool world_ready(const struct world *w, const struct world_job *j);
struct world_job *world_job(struct world *w, int64_t id);

/* ---- world_run.c: the course of one job */
void world_start(struct world *w, struct world_job *j, const struct sched_decision *d);
/* Asked to stop: for job yields_to (0 = none). */
void world_stop(struct world *w, struct world_job *j, enum world_target target, int64_t yields_to);
void world_end(struct world *w, struct world_job *j, bool succeeded);
/* When something happens to j by itself; SCHED_NEVER. */
int64_t world_next_of(const struct world *w, const struct world_job *j);
/* What happens to it at w->now_ms. */
void world_advance(struct world *w, struct world_job *j);

/* ---- world_pass.c */
void world_view(struct world *w);
bool world_pass(struct world *w);
/* Nothing happens before at_ms, and no pass is due: one then would decide nothing. */
bool world_nothing_due(struct world *w, int64_t at_ms);

/* ---- check.c: decisions of one pass, before they are carried out */
bool check_decisions(struct world *w, const struct sched_decision *d, size_t num);
/* ---- check_rest.c: when the pass decides nothing more */
bool check_rest(struct world *w);
/* ---- check_end.c: when nothing happens any more */
bool check_end(struct world *w);

/* ---- rules.c: written without plan/place.c and server/sched */
bool rules_suits(const struct fabric *f, const struct place_request *r, int32_t device);
/* Devices for which free[] is true. */
bool rules_fits(const struct fabric *f, const struct place_request *r, const bool *free);
/* Most suitable ones of a type; of types that it could ever be placed on. */
int32_t rules_count(const struct fabric *f, const struct place_request *r, const bool *free);
bool rules_placed(const struct fabric *f, const struct place_request *r, const int32_t *devices);
/* Devices that nobody holds and that aren't drained, and aren't kept for another job than id. */
void rules_free(const struct world *w, int64_t id, bool *free);
/* Is the run one that may have to give way for j at all? */
bool rules_weaker(const struct world *w, size_t run, const struct world_job *j,
                  const bool *borrowed);
int64_t rules_in_use(const struct world *w, int32_t tenant);
/* The same of j's tenant, with what is kept for its other jobs. */
int64_t rules_counted(const struct world *w, const struct world_job *j);

#endif
