/* What comes free, and when: devices of runs, of jobs that this pass starts, and of those that a
 * claim keeps, which their job will hold next. */
#include <stdlib.h>

#include "server/sched/sched_private.h"

static int64_t coming_end_ms(const struct sched *s, size_t run)
{
    const struct sched_run *r = &s->v->runs[run];
    int64_t end_ms = r->end_ms < r->hard_end_ms ? r->end_ms : r->hard_end_ms;
    if (coming_leaves(s, run)) {
        int64_t gone_ms = sched_add_ms(s->v->now_ms, s->v->options->grace_ms);
        end_ms = gone_ms < end_ms ? gone_ms : end_ms;
    }
    return end_ms > s->v->now_ms ? end_ms : s->v->now_ms;
}

bool coming_leaves(const struct sched *s, size_t run)
{
    const struct sched_run *r = &s->v->runs[run];
    return !r->is_stuck && (r->stopping || r->yields_to != 0 || s->stops[run]);
}

static int compare(const void *a, const void *b)
{
    const struct coming *x = a, *y = b;
    if (x->end_ms != y->end_ms) {
        return x->end_ms < y->end_ms ? -1 : 1;
    }
    if (x->started_ms != y->started_ms) {
        return x->started_ms < y->started_ms ? -1 : 1;
    }
    return x->id != y->id ? (x->id < y->id ? -1 : 1)
                          : (x->claimant > y->claimant) - (x->claimant < y->claimant);
}

static void add(struct sched *s, struct coming c)
{
    if (s->num_coming == s->coming_cap) {
        s->coming_cap = s->coming_cap ? s->coming_cap * 2 : 256;
        s->coming = sched_must(realloc(s->coming, s->coming_cap * sizeof *s->coming));
    }
    s->coming[s->num_coming++] = c;
}

static void add_claim(struct sched *s, size_t job, const struct device_set *set)
{
    const struct sched_job *j = &s->v->jobs[job];
    int64_t start_ms = sched_add_ms(s->v->now_ms, s->v->options->grace_ms);
    add(s, (struct coming){.end_ms =
                               j->limit_ms > 0 ? sched_add_ms(start_ms, j->limit_ms) : SCHED_NEVER,
                           .started_ms = start_ms,
                           .id = j->id,
                           .set = set,
                           .claimant = (int32_t)job});
}

static void coming_build(struct sched *s)
{
    const struct sched_view *v = s->v;
    if (s->has_coming && s->coming_decisions == s->num_decisions) {
        return;
    }
    s->num_coming = 0;
    for (size_t i = 0; i < v->num_runs; i++) {
        const struct sched_run *r = &v->runs[i];
        if (!r->is_stuck) {
            add(s, (struct coming){.end_ms = coming_end_ms(s, i),
                                   .started_ms = r->started_ms,
                                   .id = r->id,
                                   .set = r->devices,
                                   .claimant = NO_JOB});
        }
    }
    for (size_t i = 0; i < s->num_decisions; i++) {
        const struct sched_decision *d = &s->decisions[i];
        if (d->kind == SCHED_START) {
            add(s, (struct coming){.end_ms = s->seats[d->job].hard_end_ms,
                                   .started_ms = v->now_ms,
                                   .id = v->jobs[d->job].id,
                                   .set = d->set,
                                   .claimant = NO_JOB});
        } else if (d->kind == SCHED_CLAIM) {
            add_claim(s, d->job, d->set);
        }
    }
    for (size_t i = 0; i < v->num_jobs; i++) {
        if (s->seats[i].claims) {
            add_claim(s, i, v->jobs[i].claim);
        }
    }
    if (s->num_coming > 0) {
        qsort(s->coming, s->num_coming, sizeof *s->coming, compare);
    }
    s->has_coming = true;
    s->coming_decisions = s->num_decisions;
}

/* May the job have the k-th of it? */
static bool is_for(const struct sched *s, const struct coming *c, int32_t device, size_t job,
                   uint64_t mask)
{
    return c->claimant == NO_JOB ? sched_may_use(s, device, job, mask)
                                 : s->claimant[device] == c->claimant &&
                                       sched_may_use(s, device, (size_t)c->claimant, mask);
}

size_t coming_moment(struct sched *s, size_t job, uint64_t mask)
{
    struct room *room = &s->room;
    int32_t need = s->v->jobs[job].num_devices;
    coming_build(s);
    room_start(room, want_table_get(s->wants, s->seats[job].want), open_map_get(s, mask)->bits);
    size_t i = 0;
    for (; i < s->num_coming && room_size(room) < need; i++) {
        const struct device_set *set = s->coming[i].set;
        for (int32_t k = 0; k < device_set_num(set); k++) {
            if (is_for(s, &s->coming[i], set->device[k], job, mask)) {
                room_add(room, set->device[k]);
            }
        }
    }
    if (room_size(room) < need) {
        return SIZE_MAX;
    }
    /* All of that moment, unless it is that nobody knows. */
    while (i > 0 && i < s->num_coming && s->coming[i].end_ms == s->coming[i - 1].end_ms &&
           s->coming[i].end_ms != SCHED_NEVER) {
        i++;
    }
    return i;
}

void coming_give(struct sched *s, size_t num, size_t job, uint64_t mask, struct free_map *m)
{
    for (size_t i = 0; i < num; i++) {
        const struct device_set *set = s->coming[i].set;
        for (int32_t k = 0; k < device_set_num(set); k++) {
            if (is_for(s, &s->coming[i], set->device[k], job, mask)) {
                free_map_give(m, set->device[k]);
            }
        }
    }
}
