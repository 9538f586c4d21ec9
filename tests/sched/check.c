/* Decisions of one pass, looked at one by one in the order in which they are to be carried out. */
#include <stdlib.h>
#include <string.h>

#include "tests/sched/world.h"

/* Who has what while the decisions are gone through. */
struct ledger {
    int32_t num_devices;
    int64_t *run;   /* [device] job that holds it; 0 = none */
    int64_t *claim; /* [device] job that it is kept for; 0 = none */
    bool stopped[WORLD_MAX_JOBS], started[WORLD_MAX_JOBS]; /* runs; jobs of the queue */
    int64_t used[WORLD_MAX_TENANTS];
    bool claims_changed;
};

static void note_claim(struct ledger *l, int64_t id, const struct device_set *s)
{
    l->claims_changed = true;
    for (int32_t d = 0; d < l->num_devices; d++) {
        l->claim[d] = l->claim[d] == id ? 0 : l->claim[d];
    }
    for (int32_t n = 0; n < device_set_num(s); n++) {
        l->claim[s->device[n]] = id;
    }
}

static void ledger_open(struct ledger *l, const struct world *w)
{
    *l = (struct ledger){.num_devices = w->fabric->num_devices};
    l->run = calloc((size_t)l->num_devices, sizeof *l->run);
    l->claim = calloc((size_t)l->num_devices, sizeof *l->claim);
    ASSERT(l->run && l->claim);
    for (int32_t i = 0; i < w->num_jobs; i++) {
        const struct world_job *j = &w->jobs[i];
        for (int32_t n = 0; world_holds(j) && n < device_set_num(j->set); n++) {
            l->run[j->set->device[n]] = j->id;
        }
        note_claim(l, j->id, j->claim);
    }
    l->claims_changed = false;
    for (int32_t t = 0; t < w->num_tenants; t++) {
        l->used[t] = rules_in_use(w, t);
    }
}

/* ---- starts ---- */

static bool check_devices(struct world *w, const struct ledger *l, const struct world_job *j,
                          const struct sched_decision *d)
{
    for (int32_t i = 0; i < j->num_devices; i++) {
        int32_t x = d->devices[i];
        if (x < 0 || x >= l->num_devices || !device_set_has(d->set, x)) {
            return world_broken(w, "job %d starts on device %d, which its set has not", (int)j->id,
                                x);
        }
        if (l->run[x]) {
            return world_broken(w, "[21] job %d starts on device %d, which job %d still holds",
                                (int)j->id, x, (int)l->run[x]);
        }
        if (w->drained[x]) {
            return world_broken(w, "[18] job %d starts on device %d, which is drained", (int)j->id,
                                x);
        }
        if (l->claim[x] && l->claim[x] != j->id) {
            return world_broken(w, "[17] job %d starts on device %d, which is kept for job %d",
                                (int)j->id, x, (int)l->claim[x]);
        }
    }
    return true;
}

/* Devices that job id could have now. */
static void free_now(const struct world *w, const struct ledger *l, int64_t id, bool *free)
{
    for (int32_t x = 0; x < l->num_devices; x++) {
        free[x] = !l->run[x] && !w->drained[x] && (!l->claim[x] || l->claim[x] == id);
    }
}

/* Devices that are kept for a tenant's jobs other than id, and that it doesn't hold itself: they
 * count as its own. */
static int64_t kept(struct world *w, const struct ledger *l, int32_t tenant, int64_t id)
{
    int64_t n = 0;
    for (int32_t x = 0; x < l->num_devices; x++) {
        const struct world_job *j = world_job(w, l->claim[x]), *r = world_job(w, l->run[x]);
        n += j && j->id != id && j->tenant == tenant && !(r && r->tenant == tenant);
    }
    return n;
}

/* The first of the queue that may start; num_jobs = none. */
static size_t first_in_queue(struct world *w, const struct ledger *l)
{
    size_t first = w->view.num_jobs;
    bool all[WORLD_MAX_DEVICES];
    memset(all, true, sizeof all);
    for (size_t i = 0; i < w->view.num_jobs; i++) {
        const struct world_job *k = &w->jobs[w->queue_job[i]];
        const struct sched_tenant *t = &w->tenants[k->tenant];
        if (l->started[i] || !world_ready(w, k) || k->claim ||
            (t->max >= 0 && rules_counted(w, k) + k->num_devices > t->max) ||
            !rules_fits(w->fabric, &k->place, all)) {
            continue;
        }
        if (first == w->view.num_jobs ||
            sched_priority(&w->view, i) > sched_priority(&w->view, first)) {
            first = i;
        }
    }
    return first;
}

/* Nobody starts while the first of the queue fits. Claims of this pass may have changed what its
 * tenant may take: such a pass says nothing here. */
static bool check_turn(struct world *w, const struct ledger *l, const struct sched_decision *d)
{
    size_t first = first_in_queue(w, l);
    bool free[WORLD_MAX_DEVICES];
    if (first == w->view.num_jobs || first == d->job || w->jobs[w->queue_job[d->job]].claim ||
        l->claims_changed) {
        return true;
    }
    const struct world_job *k = &w->jobs[w->queue_job[first]];
    int64_t max = w->tenants[k->tenant].max, used = l->used[k->tenant] + k->num_devices;
    free_now(w, l, k->id, free);
    if (rules_fits(w->fabric, &k->place, free) &&
        (max < 0 || used + kept(w, l, k->tenant, k->id) <= max)) {
        return world_broken(w,
                            "[19] job %d starts, though job %d is in front of it and fits (%.2f "
                            "against %.2f)",
                            (int)w->queue[d->job].id, (int)k->id, sched_priority(&w->view, d->job),
                            sched_priority(&w->view, first));
    }
    return true;
}

static bool check_start(struct world *w, struct ledger *l, const struct sched_decision *d)
{
    const struct world_job *j = &w->jobs[w->queue_job[d->job]];
    const struct sched_tenant *t = &w->tenants[j->tenant];
    if (l->started[d->job] || !world_ready(w, j)) {
        return world_broken(w, "[24] job %d starts twice, or before it may", (int)j->id);
    }
    if (device_set_num(d->set) != j->num_devices) {
        return world_broken(w, "[15] job %d gets %d of %d devices", (int)j->id,
                            device_set_num(d->set), j->num_devices);
    }
    if (!check_devices(w, l, j, d) || !check_turn(w, l, d)) {
        return false;
    }
    if (!rules_placed(w->fabric, &j->place, d->devices)) {
        return world_broken(w, "[22] job %d is placed against a hard rule", (int)j->id);
    }
    l->used[j->tenant] += j->num_devices;
    if (t->max >= 0 && l->used[j->tenant] > t->max) {
        return world_broken(w, "[13] job %d takes %s to %d devices, over its maximum of %d",
                            (int)j->id, t->name, (int)l->used[j->tenant], (int)t->max);
    }
    bool over = t->quota >= 0 && l->used[j->tenant] > t->quota;
    if (d->borrowed != over && (over || kept(w, l, j->tenant, j->id) == 0)) {
        return world_broken(w, "job %d is told to be%s borrowed: %s uses %d, quota %d", (int)j->id,
                            d->borrowed ? "" : " not", t->name, (int)l->used[j->tenant],
                            (int)t->quota);
    }
    l->started[d->job] = true;
    if (j->claim) {
        note_claim(l, j->id, NULL);
    }
    for (int32_t i = 0; i < j->num_devices; i++) {
        l->run[d->devices[i]] = j->id;
    }
    return true;
}

/* ---- stops ---- */

static bool check_stop(struct world *w, struct ledger *l, const struct sched_decision *d,
                       const bool *borrowed)
{
    const struct world_job *j = &w->jobs[w->queue_job[d->job]];
    const struct sched_run *r = &w->runs[d->run];
    if (!w->options.preemption) {
        return world_broken(w, "job %d is stopped without preemption", (int)r->id);
    }
    if (l->stopped[d->run] || !r->can_stop || r->stopping) {
        return world_broken(w, "[11] job %d is stopped for job %d, and stops already", (int)r->id,
                            (int)j->id);
    }
    if (r->evictions >= w->options.max_evictions) {
        return world_broken(w, "[17] job %d is stopped for the %dth time; %d are allowed",
                            (int)r->id, r->evictions + 1, w->options.max_evictions);
    }
    if (w->now_ms - r->started_ms < w->options.min_run_ms) {
        return world_broken(w, "job %d is stopped before its shortest time", (int)r->id);
    }
    if (l->started[d->job] || !world_ready(w, j)) {
        return world_broken(w, "job %d is stopped for job %d, which can't start", (int)r->id,
                            (int)j->id);
    }
    if (!rules_weaker(w, d->run, j, borrowed)) {
        return world_broken(w, "[20] job %d of priority %d is stopped for job %d of %d", (int)r->id,
                            r->priority, (int)j->id, j->priority);
    }
    l->stopped[d->run] = true;
    return true;
}

/* Nobody that could have something reserved waits in front of the job. */
static bool is_first(const struct world *w, const struct ledger *l, size_t job)
{
    for (size_t i = 0; i < w->view.num_jobs; i++) {
        const struct world_job *k = &w->jobs[w->queue_job[i]];
        double its = sched_priority(&w->view, i), mine = sched_priority(&w->view, job);
        bool before = its > mine || (its >= mine && k->id < w->queue[job].id);
        if (before && world_ready(w, k) && !l->started[i] && !k->claim) {
            return false;
        }
    }
    return true;
}

/* What job could use if one of its victims were spared; returns its tenant's devices then. */
static int64_t spare(struct world *w, const struct ledger *l, const struct world_job *j,
                     const bool *goes, bool *free)
{
    int64_t used = 0;
    free_now(w, l, j->id, free);
    for (size_t i = 0; i < w->view.num_jobs; i++) {
        const struct sched_job *k = &w->queue[i];
        used += l->started[i] && k->tenant == j->tenant ? k->num_devices : 0;
    }
    for (size_t i = 0; i < w->view.num_runs; i++) {
        const struct sched_run *r = &w->runs[i];
        bool leaves = goes[i] || (r->stopping && !r->is_stuck);
        used += !leaves && r->tenant == j->tenant ? device_set_num(r->devices) : 0;
        for (int32_t n = 0; leaves && n < device_set_num(r->devices); n++) {
            int32_t x = r->devices->device[n];
            const struct world_job *k = world_job(w, l->claim[x]);
            free[x] = !w->drained[x] && (!k || k == j);
            used += r->tenant == j->tenant && k && k != j && k->tenant == j->tenant;
        }
    }
    return used;
}

/* Each of them is needed: without it the job still would not fit, or not be allowed to. */
static bool check_fewest(struct world *w, struct ledger *l, size_t job,
                         const struct sched_decision *d, size_t num)
{
    const struct world_job *j = &w->jobs[w->queue_job[job]];
    int64_t max = w->tenants[j->tenant].max;
    bool goes[WORLD_MAX_JOBS] = {0}, free[WORLD_MAX_DEVICES];
    for (size_t i = 0; i < num; i++) {
        goes[d[i].run] = goes[d[i].run] || (d[i].kind == SCHED_STOP && d[i].job == job);
    }
    for (size_t i = 0; i < w->view.num_runs; i++) {
        if (goes[i]) {
            goes[i] = false;
            int64_t used =
                spare(w, l, j, goes, free) + kept(w, l, j->tenant, j->id) + j->num_devices;
            goes[i] = true;
            if (rules_fits(w->fabric, &j->place, free) && (max < 0 || used <= max)) {
                return world_broken(w, "[20] job %d is stopped for job %d, which fits without that",
                                    (int)w->runs[i].id, (int)j->id);
            }
        }
    }
    return true;
}

/* ---- claims ---- */

static bool check_claim(struct world *w, struct ledger *l, const struct sched_decision *d)
{
    const struct world_job *j = &w->jobs[w->queue_job[d->job]];
    if (device_set_num(d->set) == 0 || l->started[d->job]) {
        return world_broken(w, "job %d claims nothing, or runs already", (int)j->id);
    }
    for (int32_t n = 0; n < d->set->num; n++) {
        int32_t x = d->set->device[n];
        if (l->claim[x] && l->claim[x] != j->id) {
            return world_broken(w, "[11] device %d is kept for job %d and for job %d", x,
                                (int)l->claim[x], (int)j->id);
        }
        if (w->drained[x]) {
            return world_broken(w, "[18] device %d is kept for job %d, and drained", x, (int)j->id);
        }
    }
    note_claim(l, j->id, d->set);
    return true;
}

/* What victims made room for is given up for a reason only: a device of it is drained or doesn't
 * come back, or the tenant may not have so many any more. */
static bool check_unclaim(struct world *w, struct ledger *l, const struct sched_decision *d)
{
    const struct world_job *j = &w->jobs[w->queue_job[d->job]];
    int64_t max = w->tenants[j->tenant].max, used = kept(w, l, j->tenant, j->id) + j->num_devices;
    bool victims = false, lost = !world_ready(w, j), none[WORLD_MAX_DEVICES] = {0};
    for (size_t i = 0; i < w->view.num_runs; i++) {
        const struct sched_run *r = &w->runs[i];
        victims = victims || (r->stopping && r->yields_to == j->id && !r->is_stuck);
        bool stays = !r->stopping || r->is_stuck;
        used += r->tenant == j->tenant && stays ? device_set_num(r->devices) : 0;
        for (int32_t n = 0; n < device_set_num(r->devices); n++) {
            const struct world_job *k = world_job(w, l->claim[r->devices->device[n]]);
            used += !stays && r->tenant == j->tenant && k && k != j && k->tenant == j->tenant;
            none[r->devices->device[n]] = !r->stopping || r->is_stuck;
        }
    }
    for (int32_t n = 0; n < device_set_num(j->claim); n++) {
        int32_t x = j->claim->device[n];
        lost = lost || w->drained[x] || none[x] || (l->run[x] && l->started[d->job]);
    }
    note_claim(l, j->id, NULL);
    if (victims && !lost && (max < 0 || used <= max)) {
        return world_broken(w,
                            "[17] what is kept for job %d is given up, and its victims are "
                            "still leaving",
                            (int)j->id);
    }
    return true;
}

static bool check_one(struct world *w, struct ledger *l, const struct sched_decision *d,
                      const bool *borrowed)
{
    if (d->job >= w->view.num_jobs || (d->kind == SCHED_STOP && d->run >= w->view.num_runs)) {
        return world_broken(w, "a decision about nobody");
    }
    switch (d->kind) {
    case SCHED_START:
        return check_start(w, l, d);
    case SCHED_STOP:
        return check_stop(w, l, d, borrowed);
    case SCHED_CLAIM:
        return check_claim(w, l, d);
    default:
        return check_unclaim(w, l, d);
    }
}

bool check_decisions(struct world *w, const struct sched_decision *d, size_t num)
{
    struct ledger l;
    bool borrowed[WORLD_MAX_JOBS] = {0}, fine = true;
    ledger_open(&l, w);
    sched_borrowed(&w->view, borrowed);
    for (size_t i = 0; i < num && fine; i++) {
        fine = check_one(w, &l, &d[i], borrowed);
    }
    for (size_t i = 0; i < num && fine; i++) {
        bool first = d[i].kind == SCHED_STOP;
        for (size_t k = 0; k < i; k++) {
            first = first && (d[k].kind != SCHED_STOP || d[k].job != d[i].job);
        }
        fine = !first || !is_first(w, &l, d[i].job) || check_fewest(w, &l, d[i].job, d, num);
    }
    free(l.run);
    free(l.claim);
    return fine;
}
