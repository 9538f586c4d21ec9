/* What tenants hold, and which of their runs are beyond their quota. */
#include <stdlib.h>
#include <string.h>

#include "server/sched/sched_private.h"

/* A claim counts as held by its tenant, but for devices that the tenant's own runs hold still. */
static void count_claims(struct sched *s)
{
    const struct sched_view *v = s->v;
    for (size_t i = 0; i < v->num_jobs; i++) {
        struct seat *seat = &s->seats[i];
        const struct device_set *claim = v->jobs[i].claim;
        for (int32_t k = 0; seat->claims && k < device_set_num(claim); k++) {
            int32_t holder = s->holder[claim->device[k]];
            seat->claimed += holder < 0 || v->runs[holder].tenant != v->jobs[i].tenant;
        }
        s->held[v->jobs[i].tenant] += seat->claimed;
    }
}

void share_build(struct sched *s)
{
    const struct sched_view *v = s->v;
    memset(s->held, 0, (size_t)v->num_tenants * sizeof *s->held);
    for (size_t i = 0; i < v->num_runs; i++) {
        ASSERT(v->runs[i].tenant >= 0 && v->runs[i].tenant < v->num_tenants);
        s->held[v->runs[i].tenant] += device_set_num(v->runs[i].devices);
    }
    count_claims(s);
}

int64_t share_with(const struct sched *s, size_t job)
{
    const struct sched_job *j = &s->v->jobs[job];
    return s->held[j->tenant] - s->seats[job].claimed + j->num_devices;
}

bool share_within_max(const struct sched *s, size_t job)
{
    int64_t max = s->v->tenants[s->v->jobs[job].tenant].max;
    return max < 0 || share_with(s, job) <= max;
}

bool share_within_quota(const struct sched *s, size_t job)
{
    int64_t quota = s->v->tenants[s->v->jobs[job].tenant].quota;
    return quota >= 0 && share_with(s, job) <= quota;
}

/* What is kept of it for another job of the tenant goes on counting. */
int64_t share_without(const struct sched *s, size_t run, size_t job)
{
    const struct sched_view *v = s->v;
    const struct sched_run *r = &v->runs[run];
    int64_t num = 0;
    for (int32_t k = 0; r->tenant == v->jobs[job].tenant && k < device_set_num(r->devices); k++) {
        int32_t other = s->claimant[r->devices->device[k]];
        num += other == NO_JOB || (size_t)other == job || v->jobs[other].tenant != r->tenant;
    }
    return num;
}

struct rank {
    const struct sched_run *run;
    size_t idx;
};

/* The order in which a tenant's runs get its quota: those that leave come last. */
static int compare(const void *a, const void *b)
{
    const struct sched_run *x = ((const struct rank *)a)->run, *y = ((const struct rank *)b)->run;
    if (x->tenant != y->tenant) {
        return x->tenant < y->tenant ? -1 : 1;
    }
    if (x->stopping != y->stopping) {
        return x->stopping ? 1 : -1;
    }
    if (x->priority != y->priority) {
        return x->priority > y->priority ? -1 : 1;
    }
    if (x->started_ms != y->started_ms) {
        return x->started_ms < y->started_ms ? -1 : 1;
    }
    return (x->id > y->id) - (x->id < y->id);
}

void sched_borrowed(const struct sched_view *v, bool *borrowed)
{
    struct rank *ranks = sched_must(malloc((v->num_runs + 1) * sizeof *ranks));
    for (size_t i = 0; i < v->num_runs; i++) {
        ranks[i] = (struct rank){.run = &v->runs[i], .idx = i};
    }
    qsort(ranks, v->num_runs, sizeof *ranks, compare);
    int64_t own = 0;
    for (size_t i = 0; i < v->num_runs; i++) {
        const struct sched_run *r = ranks[i].run;
        own = i > 0 && ranks[i - 1].run->tenant == r->tenant ? own : 0;
        int64_t quota = v->tenants[r->tenant].quota, with = own + device_set_num(r->devices);
        borrowed[ranks[i].idx] = quota >= 0 && with > quota;
        own = quota >= 0 && with > quota ? own : with;
    }
    free(ranks);
}

const bool *share_borrowed(struct sched *s)
{
    if (!s->has_borrowed) {
        sched_borrowed(s->v, s->borrowed);
        s->has_borrowed = true;
    }
    return s->borrowed;
}
