/* What the files of this folder share: a pass and what it knows. Not for others. */
#ifndef TANDEM_SERVER_SCHED_SCHED_PRIVATE_H
#define TANDEM_SERVER_SCHED_SCHED_PRIVATE_H

#include "server/sched/room.h"
#include "server/sched/sched.h"
#include "server/sched/want.h"

/* Bounds of one pass. A reservation stands for devices that no earlier one looks after, so that
 * more than a few are rare. */
#define SCHED_MAX_RESERVATIONS 32
#define SCHED_MAX_PREEMPTORS 8
#define SCHED_MAX_MAPS 16
#define SCHED_MAX_LOOKS 64 /* for victims, at each device, or as if there were so many: */
#define SCHED_MIN_LOOKED_AT 4096
/* When there is more to do than one pass does. */
#define SCHED_SOON_MS 1000
#define SCHED_MAX_WANT_BYTES (16 << 20) /* remembered from pass to pass */

#define HOLDER_NONE (-1)
#define HOLDER_STARTED (-2) /* by this pass; less the number of the decision */
#define NO_JOB (-1)

enum outcome {
    OUTCOME_UNREADY,
    OUTCOME_STARTS,
    OUTCOME_LIMIT,  /* its tenant holds as much as it may */
    OUTCOME_CLAIMS, /* its victims aren't gone yet */
    OUTCOME_WAITS,
};

/* A job in the queue, as the pass sees it. */
struct seat {
    double priority;
    int64_t hard_end_ms; /* if it started now */
    int32_t want;
    int32_t place;       /* in the queue, from 0 */
    int32_t reservation; /* its own; -1 = none */
    int32_t claimed;     /* devices that count as its tenant's because they are kept for it */
    enum outcome outcome;
    bool claims; /* job.claim is good */
};

struct reservation {
    size_t job;
    int64_t shadow_ms; /* SCHED_NEVER = nobody knows */
    int32_t *devices;  /* what is kept; owned */
    int32_t num;
};

/* The free devices but those of the reservations in mask: for place_find, and a bit for each. */
struct open_map {
    struct free_map *map;
    uint64_t *bits;
    uint64_t mask;
};

struct victim {
    int rank;     /* of enum rank */
    int64_t lost; /* device-milliseconds */
    const struct sched_run *r;
    size_t run;
};

/* Devices that come free at the latest at end_ms, as far as is known. */
struct coming {
    int64_t end_ms;
    int64_t started_ms, id;       /* for the order */
    const struct device_set *set; /* borrowed */
    int32_t claimant;             /* of a claim: its job; NO_JOB */
};

struct sched {
    const struct fabric *f;
    struct want_table *wants;
    struct room room;
    struct free_map *all, *none; /* of all devices free, of none */
    bool has_passed;

    /* The pass. By device: */
    const struct sched_view *v;
    int32_t *holder;    /* index of a run, HOLDER_x */
    int32_t *claimant;  /* index of a job, NO_JOB */
    uint64_t *reserved; /* bits of reservations */
    uint64_t *covered;  /* bits: a reservation looks after it */
    uint64_t *claimed;  /* bits */
    uint64_t *possible; /* bits: it may come free */
    uint64_t *kept[2];  /* bits: reserved; reserved for a job within its quota */
    uint64_t *words;    /* bits, for a look */
    bool has_possible;
    int32_t *scratch;
    /* By job, by place, by run, by tenant: */
    struct seat *seats;
    size_t *order;
    bool *stops, *borrowed;
    struct victim *victims; /* a heap */
    size_t num_victims;
    int64_t *held;
    size_t job_cap, run_cap, tenant_cap;
    bool has_borrowed;
    struct coming *coming; /* sorted; valid for so many decisions */
    size_t num_coming, coming_cap, coming_decisions;
    bool has_coming;
    int64_t min_victim_priority;
    bool has_backfilled;

    struct reservation reservations[SCHED_MAX_RESERVATIONS];
    int32_t num_reservations;
    uint64_t owed_mask; /* of those for jobs within their quota */
    /* The first is of mask 0: not held, drained or claimed. It stays for the next pass. */
    struct open_map maps[SCHED_MAX_MAPS];
    int32_t num_maps; /* that are valid */
    struct free_map *whatif;
    int32_t num_preemptors;
    int64_t looks; /* at devices, for victims; bounded */
    /* Of a claim that was given up: nobody gets them in this pass, so nobody is stopped either. */
    bool has_leftovers;

    struct sched_decision *decisions;
    size_t num_decisions, decision_cap;
    int64_t next_ms;
};

/* ---- the pass (sched.c) ---- */
/* Decisions, reservations and all else that a pass made. */
void sched_forget_pass(struct sched *s);
struct sched_decision *sched_decide(struct sched *s, enum sched_kind kind, size_t job);
/* The job may use the device, once it is free; mask as in sched_mask. */
bool sched_may_use(const struct sched *s, int32_t device, size_t job, uint64_t mask);
void sched_set_claimant(struct sched *s, int32_t device, int32_t job);
/* Its size is one that place_find may be asked for. */
bool sched_is_sane(const struct fabric *f, const struct sched_job *j);
void sched_start(struct sched *s, size_t job, const int32_t *devices);
/* Its devices aren't free for others in this pass, but in the next. */
void sched_forget_claim(struct sched *s, size_t job);
/* a + b, SCHED_NEVER where that is more; b >= 0. */
int64_t sched_add_ms(int64_t a, int64_t b);
void sched_wake(struct sched *s, int64_t at_ms);
void *sched_must(void *memory);

/* ---- begin.c ---- */
/* Takes v in: who holds what, which claims are good, the order. Decides UNCLAIMs only. */
void begin_pass(struct sched *s, const struct sched_view *v);

/* ---- open_map.c ---- */
/* Makes the first map what is free now; true: some device is free that wasn't. */
bool open_map_update(struct sched *s);
/* Free for a job that must keep off the reservations in mask; until the next one is asked for. */
const struct open_map *open_map_get(struct sched *s, uint64_t mask);
/* Nobody else gets it in this pass. */
void open_map_take(struct sched *s, int32_t device);

/* ---- order.c ---- */
void order_build(struct sched *s);

/* ---- share.c ---- */
void share_build(struct sched *s);
/* What its tenant would hold with it. */
int64_t share_with(const struct sched *s, size_t job);
bool share_within_max(const struct sched *s, size_t job);
bool share_within_quota(const struct sched *s, size_t job);
/* What job's tenant holds less once the run is gone. */
int64_t share_without(const struct sched *s, size_t run, size_t job);
const bool *share_borrowed(struct sched *s);

/* ---- claim.c ---- */
void claim_build(struct sched *s);
/* START or wait. */
void claim_walk(struct sched *s, size_t job);

/* ---- coming.c ---- */
/* The run leaves anyway. */
bool coming_leaves(const struct sched *s, size_t run);
/* How many of coming it takes until there is room for the job; SIZE_MAX = all aren't enough. */
size_t coming_moment(struct sched *s, size_t job, uint64_t mask);
/* Frees the first num of them in m, as far as the job may have them. */
void coming_give(struct sched *s, size_t num, size_t job, uint64_t mask, struct free_map *m);

/* ---- reserve.c ---- */
/* The reservations that a job must keep off which starts now. */
uint64_t reserve_mask(const struct sched *s, size_t job);
/* One that starts later: whom it could pass now says nothing. */
uint64_t reserve_later(const struct sched *s, size_t job);
void reserve_try(struct sched *s, size_t job);
/* Into words: what may come free some day, and isn't reserved for others. */
void reserve_possible(struct sched *s, bool reclaims);

/* ---- victim.c ---- */
void victim_build(struct sched *s);
/* Before all: is there any sense in a look? */
bool victim_may_exist(const struct sched *s, size_t job);
bool victim_is_one(const struct sched *s, size_t run, size_t job, bool reclaims);
bool victim_is_backfilled(const struct sched *s, size_t job);
/* Candidates one after the other, best first. */
void victim_open(struct sched *s, size_t job);
bool victim_next(struct sched *s, size_t *run);
/* Wakes when a run has run long enough to be one. */
void victim_wake(struct sched *s);

/* ---- preempt.c ---- */
/* True: CLAIM and STOPs were decided. */
bool preempt_try(struct sched *s, size_t job);

#endif
