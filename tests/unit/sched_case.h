/* A queue, runs and tenants for tests of the scheduler, put together line by line; and a small
 * controller that carries decisions out, so that a test can let time pass. */
#ifndef TANDEM_TESTS_UNIT_SCHED_CASE_H
#define TANDEM_TESTS_UNIT_SCHED_CASE_H

#include "server/sched/sched.h"

#define CASE_MAX 64

struct sched_case {
    struct fabric *f;
    struct sched *s;
    struct sched_options options;
    struct sched_tenant tenants[8];
    int32_t num_tenants;
    struct sched_job jobs[CASE_MAX];
    size_t num_jobs;
    struct sched_run runs[CASE_MAX];
    size_t num_runs;
    bool drained[512];
    int64_t now_ms;
    const struct sched_decision *decisions; /* of the last pass */
    size_t num_decisions;
};

/* num_nodes nodes of 8 devices of type h100, two under a leaf. One tenant, "pool", without quota;
 * preemption and backfill on, no aging, no fair share. The time is 1,000,000. */
struct sched_case *case_new(int num_nodes);
/* Of the text of a cluster file. */
struct sched_case *case_new_of(const char *text);
void case_free(struct sched_case *c);

/* Returns its number. */
int32_t case_tenant(struct sched_case *c, const char *name, int64_t quota, int64_t max);
/* Of data ranks times tensor ranks; tenant 0, ready. */
struct sched_job *case_job(struct sched_case *c, int64_t id, int32_t priority, int32_t data,
                           int32_t tensor);
/* On devices first to first + num - 1; tenant 0, RUNNING for a long time, no end known. */
struct sched_run *case_run(struct sched_case *c, int64_t id, int32_t priority, int32_t first,
                           int32_t num);
struct device_set *case_range(int32_t first, int32_t num);

struct sched_view case_view(const struct sched_case *c);
/* A pass; returns how many decisions. */
size_t case_pass(struct sched_case *c);
/* What the last pass decided about the job or run of that id; NULL = nothing of that kind. */
const struct sched_decision *case_start(const struct sched_case *c, int64_t id);
const struct sched_decision *case_claim(const struct sched_case *c, int64_t id);
const struct sched_decision *case_unclaim(const struct sched_case *c, int64_t id);
const struct sched_decision *case_stop(const struct sched_case *c, int64_t id);
size_t case_count(const struct sched_case *c, enum sched_kind kind);
/* Carries the decisions of the last pass out: jobs become runs, runs begin to stop. */
void case_apply(struct sched_case *c);
/* The run is gone; as a job of that id again if requeue. */
void case_gone(struct sched_case *c, int64_t id, bool requeue);
struct sched_job *case_find_job(struct sched_case *c, int64_t id);
struct sched_run *case_find_run(struct sched_case *c, int64_t id);
/* Why the job of that id waits. */
const char *case_why(struct sched_case *c, int64_t id, struct sched_reason *out);

#endif
