/* Who may be asked to give way for a job, best first. */
#include <stdlib.h>

#include "server/sched/sched_private.h"

enum rank {
    RANK_BACKFILLED, /* started in front of the job, on what was reserved for it */
    RANK_BORROWED,
    RANK_OTHER,
    RANK_NONE,
};

/* Whatever the job. */
static bool may_go(const struct sched *s, size_t run)
{
    const struct sched_run *r = &s->v->runs[run];
    return r->can_stop && !r->stopping && r->yields_to == 0 && !r->is_stuck && !s->stops[run] &&
           r->evictions < s->v->options->max_evictions;
}

static int64_t settled_ms(const struct sched *s, const struct sched_run *r)
{
    int64_t min_run_ms = s->v->options->min_run_ms;
    return min_run_ms > 0 ? sched_add_ms(r->started_ms, min_run_ms) : r->started_ms;
}

void victim_build(struct sched *s)
{
    s->min_victim_priority = INT64_MAX;
    s->has_backfilled = false;
    for (size_t i = 0; i < s->v->num_runs; i++) {
        const struct sched_run *r = &s->v->runs[i];
        if (may_go(s, i) && settled_ms(s, r) <= s->v->now_ms) {
            s->min_victim_priority =
                r->priority < s->min_victim_priority ? r->priority : s->min_victim_priority;
            s->has_backfilled = s->has_backfilled || r->backfills != 0;
        }
    }
}

void victim_wake(struct sched *s)
{
    for (size_t i = 0; s->v->options->preemption && i < s->v->num_runs; i++) {
        int64_t at_ms = settled_ms(s, &s->v->runs[i]);
        if (may_go(s, i) && at_ms > s->v->now_ms) {
            sched_wake(s, at_ms);
        }
    }
}

bool victim_is_backfilled(const struct sched *s, size_t job)
{
    for (size_t i = 0; s->has_backfilled && i < s->v->num_runs; i++) {
        if (s->v->runs[i].backfills == s->v->jobs[job].id) {
            return true;
        }
    }
    return false;
}

bool victim_may_exist(const struct sched *s, size_t job)
{
    return s->min_victim_priority < s->v->jobs[job].priority ||
           (s->min_victim_priority != INT64_MAX && share_within_quota(s, job)) ||
           victim_is_backfilled(s, job);
}

static enum rank rank_of(const struct sched *s, size_t run, const struct sched_job *j,
                         bool reclaims)
{
    const struct sched_run *r = &s->v->runs[run];
    if (r->id == j->id || !may_go(s, run) || settled_ms(s, r) > s->v->now_ms) {
        return RANK_NONE;
    }
    if (r->backfills == j->id) {
        return RANK_BACKFILLED;
    }
    bool is_lower = r->priority < j->priority;
    if (r->tenant != j->tenant) {
        bool is_owed = s->v->tenants[r->tenant].quota >= 0 && !s->borrowed[run];
        is_lower = !is_owed && (is_lower || reclaims);
    }
    return !is_lower ? RANK_NONE : s->borrowed[run] ? RANK_BORROWED : RANK_OTHER;
}

bool victim_is_one(const struct sched *s, size_t run, size_t job, bool reclaims)
{
    return rank_of(s, run, &s->v->jobs[job], reclaims) != RANK_NONE;
}

/* Below 0: x goes before y. */
static int compare(const struct victim *x, const struct victim *y)
{
    if (x->rank != y->rank) {
        return x->rank < y->rank ? -1 : 1;
    }
    if (x->r->priority != y->r->priority) {
        return x->r->priority < y->r->priority ? -1 : 1;
    }
    if (x->lost != y->lost) {
        return x->lost < y->lost ? -1 : 1;
    }
    if (x->r->started_ms != y->r->started_ms) {
        return x->r->started_ms > y->r->started_ms ? -1 : 1;
    }
    return (x->r->id < y->r->id) - (x->r->id > y->r->id);
}

static int64_t lost_of(const struct sched_run *r)
{
    int64_t lost;
    if (r->lost_ms <= 0) {
        return 0;
    }
    return __builtin_mul_overflow(r->lost_ms, (int64_t)device_set_num(r->devices), &lost)
               ? INT64_MAX
               : lost;
}

static bool has_suitable(const struct want *w, const struct device_set *set)
{
    for (int32_t i = 0; i < device_set_num(set); i++) {
        if (want_suits(w, set->device[i])) {
            return true;
        }
    }
    return false;
}

/* A heap: of many candidates mostly a few are needed. */
static void sift(struct victim *heap, size_t num, size_t i)
{
    for (size_t k = 2 * i + 1; k < num; k = 2 * i + 1) {
        k += k + 1 < num && compare(&heap[k + 1], &heap[k]) < 0;
        if (compare(&heap[i], &heap[k]) <= 0) {
            return;
        }
        struct victim swap = heap[i];
        heap[i] = heap[k];
        heap[k] = swap;
        i = k;
    }
}

void victim_open(struct sched *s, size_t job)
{
    const struct sched_view *v = s->v;
    const struct want *w = want_table_get(s->wants, s->seats[job].want);
    bool reclaims = share_within_quota(s, job);
    share_borrowed(s);
    s->num_victims = 0;
    for (size_t i = 0; i < v->num_runs; i++) {
        const struct sched_run *r = &v->runs[i];
        enum rank rank = rank_of(s, i, &v->jobs[job], reclaims);
        if (rank != RANK_NONE && has_suitable(w, r->devices)) {
            s->victims[s->num_victims++] =
                (struct victim){.rank = (int)rank, .lost = lost_of(r), .r = r, .run = i};
        }
    }
    for (size_t i = s->num_victims / 2; i-- > 0;) {
        sift(s->victims, s->num_victims, i);
    }
}

bool victim_next(struct sched *s, size_t *run)
{
    if (s->num_victims == 0) {
        return false;
    }
    *run = s->victims[0].run;
    s->victims[0] = s->victims[--s->num_victims];
    sift(s->victims, s->num_victims, 0);
    return true;
}

size_t sched_victims(const struct sched_view *v, size_t job, size_t *runs)
{
    struct sched *s;
    ASSERT(sched_new(&s, v->fabric, NULL) == 0);
    begin_pass(s, v);
    victim_open(s, job);
    size_t num = 0;
    while (victim_next(s, &runs[num])) {
        num++;
    }
    sched_free(s);
    return num;
}
