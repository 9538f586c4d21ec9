/* Claims: devices kept for a job since its victims were asked to go. A claim is good as long as
 * each of its devices is free or on the way; one that isn't is given up before anything else. */
#include <stdlib.h>

#include "server/sched/sched_private.h"

static bool comes(const struct sched *s, int32_t device)
{
    int32_t holder = s->holder[device];
    return holder == HOLDER_NONE || coming_leaves(s, (size_t)holder);
}

static bool is_good(const struct sched *s, size_t job)
{
    const struct sched_job *j = &s->v->jobs[job];
    const struct want *w = want_table_get(s->wants, s->seats[job].want);
    if (!j->ready || device_set_num(j->claim) != j->num_devices) {
        return false;
    }
    for (int32_t i = 0; i < j->claim->num; i++) {
        int32_t d = j->claim->device[i];
        if (d < 0 || d >= s->f->num_devices || (s->v->drained && s->v->drained[d]) ||
            !want_suits(w, d) || s->claimant[d] != NO_JOB || !comes(s, d)) {
            return false;
        }
    }
    return true;
}

void claim_build(struct sched *s)
{
    for (size_t i = 0; i < s->v->num_jobs; i++) {
        size_t job = s->order[i];
        const struct device_set *claim = s->v->jobs[job].claim;
        if (!claim) {
            continue;
        }
        s->seats[job].claims = is_good(s, job);
        if (!s->seats[job].claims) {
            sched_decide(s, SCHED_UNCLAIM, job);
            continue;
        }
        for (int32_t k = 0; k < claim->num; k++) {
            sched_set_claimant(s, claim->device[k], (int32_t)job);
        }
    }
}

static void give_up(struct sched *s, size_t job, enum outcome outcome)
{
    struct seat *seat = &s->seats[job];
    sched_decide(s, SCHED_UNCLAIM, job);
    s->held[s->v->jobs[job].tenant] -= seat->claimed;
    seat->outcome = outcome;
    sched_forget_claim(s, job);
}

/* On what is kept for it alone, or with what else is free now: a better place came first. */
static bool start(struct sched *s, size_t job, const struct free_map *from)
{
    const struct device_set *claim = s->v->jobs[job].claim;
    free_map_set(s->whatif, from);
    for (int32_t i = 0; i < claim->num; i++) {
        if (s->holder[claim->device[i]] == HOLDER_NONE) {
            free_map_give(s->whatif, claim->device[i]);
        }
    }
    if (free_map_num(s->whatif) < s->v->jobs[job].num_devices ||
        place_find(s->whatif, &s->v->jobs[job].place, s->scratch, NULL, NULL) != PLACE_OK) {
        return false;
    }
    sched_start(s, job, s->scratch);
    return true;
}

/* Over its tenant's max only as long as runs of that tenant take to leave. */
static bool will_be_within(const struct sched *s, size_t job)
{
    const struct sched_job *j = &s->v->jobs[job];
    int64_t with = share_with(s, job), max = s->v->tenants[j->tenant].max;
    for (size_t i = 0; i < s->v->num_runs; i++) {
        with -= coming_leaves(s, i) ? share_without(s, i, job) : 0;
    }
    return max < 0 || with <= max;
}

void claim_walk(struct sched *s, size_t job)
{
    const struct device_set *claim = s->v->jobs[job].claim;
    bool is_free = true, within = share_within_max(s, job);
    for (int32_t i = 0; i < claim->num; i++) {
        is_free = is_free && s->holder[claim->device[i]] == HOLDER_NONE;
    }
    if (is_free && !within) {
        if (will_be_within(s, job)) {
            s->seats[job].outcome = OUTCOME_CLAIMS;
        } else {
            give_up(s, job, OUTCOME_LIMIT);
        }
        return;
    }
    if (is_free && start(s, job, s->none)) {
        return;
    }
    if (within && start(s, job, open_map_get(s, reserve_mask(s, job))->map)) {
        return;
    }
    if (is_free) {
        give_up(s, job, OUTCOME_WAITS);
        return;
    }
    s->seats[job].outcome = OUTCOME_CLAIMS;
}
