/* The world when a pass has decided nothing more: what holds then, whatever happened before. */
#include <stdlib.h>
#include <string.h>

#include "tests/sched/world.h"

enum { SOME = 4 }; /* one job in so many is asked for its victims and for why it waits */

/* [10] [15] [17] [18]: each device has one holder, each run all that it needs. */
static bool check_holders(struct world *w)
{
    int64_t run[WORLD_MAX_DEVICES] = {0}, claim[WORLD_MAX_DEVICES] = {0};
    for (int32_t i = 0; i < w->num_jobs; i++) {
        const struct world_job *j = &w->jobs[i];
        if (world_holds(j) && device_set_num(j->set) != j->num_devices) {
            return world_broken(w, "[18] job %d runs on %d of %d devices", (int)j->id,
                                device_set_num(j->set), j->num_devices);
        }
        for (int32_t n = 0; world_holds(j) && n < j->set->num; n++) {
            if (run[j->set->device[n]]) {
                return world_broken(w, "[10] device %d is held by job %d and job %d",
                                    j->set->device[n], (int)run[j->set->device[n]], (int)j->id);
            }
            run[j->set->device[n]] = j->id;
        }
        for (int32_t n = 0; n < device_set_num(j->claim); n++) {
            if (claim[j->claim->device[n]] || j->state != W_QUEUED) {
                return world_broken(w, "[17] device %d is kept for job %d wrongly",
                                    j->claim->device[n], (int)j->id);
            }
            claim[j->claim->device[n]] = j->id;
        }
    }
    return true;
}

static bool under_max(const struct world *w, const struct world_job *j)
{
    const struct sched_tenant *t = &w->tenants[j->tenant];
    return t->max < 0 || rules_counted(w, j) + j->num_devices <= t->max;
}

/* A claim leads to a start, or is given up: what it lacks is on its way. */
static bool check_claims(struct world *w)
{
    for (size_t i = 0; i < w->view.num_jobs; i++) {
        const struct world_job *j = &w->jobs[w->queue_job[i]];
        bool waits_for_some = false;
        for (int32_t n = 0; n < device_set_num(j->claim); n++) {
            int32_t x = j->claim->device[n];
            if (w->drained[x]) {
                return world_broken(w, "[18] device %d stays kept for job %d, and is drained", x,
                                    (int)j->id);
            }
            for (int32_t k = 0; k < w->num_jobs; k++) {
                waits_for_some = waits_for_some ||
                                 (world_holds(&w->jobs[k]) && device_set_has(w->jobs[k].set, x));
            }
        }
        if (j->claim && !waits_for_some && world_ready(w, j) && under_max(w, j)) {
            return world_broken(w, "[17] all that is kept for job %d is free, and it doesn't start",
                                (int)j->id);
        }
    }
    return true;
}

/* [19]: what others wait for on other types keeps nobody from starting. */
static bool share_type(const struct world *w, const struct world_job *a, const struct world_job *b)
{
    for (int32_t d = 0; d < w->fabric->num_devices; d++) {
        for (int32_t e = 0; e < w->fabric->num_devices; e++) {
            if (w->fabric->devices[d].type == w->fabric->devices[e].type &&
                rules_suits(w->fabric, &a->place, d) && rules_suits(w->fabric, &b->place, e)) {
                return true;
            }
        }
    }
    return false;
}

static bool check_idle(struct world *w)
{
    for (size_t i = 0; i < w->view.num_jobs; i++) {
        const struct world_job *j = &w->jobs[w->queue_job[i]];
        bool free[WORLD_MAX_DEVICES], alone = world_ready(w, j) && under_max(w, j);
        rules_free(w, j->id, free);
        if (!alone || !rules_fits(w->fabric, &j->place, free)) {
            continue;
        }
        for (size_t k = 0; k < w->view.num_jobs && alone; k++) {
            const struct world_job *other = &w->jobs[w->queue_job[k]];
            alone = k == i || !world_ready(w, other) || !share_type(w, j, other);
        }
        if (alone) {
            return world_broken(w,
                                "[19] job %d fits, nobody else waits for such devices, and it "
                                "doesn't start",
                                (int)j->id);
        }
    }
    return true;
}

/* [20]: the order of victims, by the table. */
static int compare_victims(const struct world *w, const bool *borrowed, int64_t job, size_t a,
                           size_t b)
{
    const struct sched_run *x = &w->runs[a], *y = &w->runs[b];
    int64_t keys[][2] = {
        {x->backfills != job, y->backfills != job},
        {x->backfills != job && !borrowed[a], y->backfills != job && !borrowed[b]},
        {x->priority, y->priority},
        {x->lost_ms * device_set_num(x->devices), y->lost_ms * device_set_num(y->devices)}};
    for (int k = 0; k < 4; k++) {
        if (keys[k][0] != keys[k][1]) {
            return keys[k][0] < keys[k][1] ? -1 : 1;
        }
    }
    return 0;
}

static bool check_victims(struct world *w, const bool *borrowed)
{
    for (size_t i = 0; i < w->view.num_jobs; i++) {
        if ((int64_t)i % SOME != w->num_passes % SOME) {
            continue;
        }
        size_t runs[WORLD_MAX_JOBS], num = sched_victims(&w->view, i, runs);
        bool seen[WORLD_MAX_JOBS] = {0};
        const struct world_job *j = &w->jobs[w->queue_job[i]];
        for (size_t n = 0; n < num; n++) {
            const struct sched_run *r = &w->runs[runs[n]];
            if (seen[runs[n]] || !r->can_stop || r->stopping ||
                !rules_weaker(w, runs[n], j, borrowed) ||
                r->evictions >= w->options.max_evictions) {
                return world_broken(w, "[20] job %d is no victim for job %d", (int)r->id,
                                    (int)j->id);
            }
            seen[runs[n]] = true;
            if (n > 0 && compare_victims(w, borrowed, j->id, runs[n - 1], runs[n]) > 0) {
                return world_broken(w, "[20] victims for job %d: job %d before job %d", (int)j->id,
                                    (int)w->runs[runs[n - 1]].id, (int)r->id);
            }
        }
    }
    return true;
}

/* May the run be asked to give way for j at once? */
static bool may_go(const struct world *w, size_t run, const struct world_job *j,
                   const bool *borrowed)
{
    const struct sched_run *r = &w->runs[run];
    int64_t quota = w->tenants[j->tenant].quota;
    bool reclaims = rules_counted(w, j) + j->num_devices <= quota;
    return r->can_stop && !r->stopping && r->evictions < w->options.max_evictions &&
           w->now_ms - r->started_ms >= w->options.min_run_ms &&
           rules_weaker(w, run, j, borrowed) &&
           (r->priority < j->priority || r->backfills == j->id || reclaims);
}

static void add_run(const struct world *w, const struct world_job *j, size_t run, bool *free)
{
    const struct device_set *s = w->runs[run].devices;
    for (int32_t n = 0; n < s->num; n++) {
        bool kept = false;
        for (int32_t k = 0; k < w->num_jobs; k++) {
            kept = kept || (&w->jobs[k] != j && device_set_has(w->jobs[k].claim, s->device[n]));
        }
        free[s->device[n]] = !kept && !w->drained[s->device[n]];
    }
}

/* [20]: where the first of the queue could start if others gave way, they are asked to. */
static bool check_preempts(struct world *w, const bool *borrowed)
{
    size_t first = w->view.num_jobs;
    bool free[WORLD_MAX_DEVICES];
    for (size_t i = 0; i < w->view.num_jobs; i++) {
        if (w->queue[i].ready && (first == w->view.num_jobs ||
                                  sched_priority(&w->view, i) > sched_priority(&w->view, first))) {
            first = i;
        }
    }
    if (!w->options.preemption || first == w->view.num_jobs) {
        return true;
    }
    const struct world_job *j = &w->jobs[w->queue_job[first]];
    if (j->claim || !under_max(w, j)) {
        return true;
    }
    rules_free(w, j->id, free);
    for (size_t i = 0; i < w->view.num_runs; i++) {
        if (w->runs[i].stopping && !w->runs[i].is_stuck) {
            add_run(w, j, i, free);
        }
    }
    bool comes = rules_fits(w->fabric, &j->place, free);
    for (size_t i = 0; i < w->view.num_runs; i++) {
        if (may_go(w, i, j, borrowed)) {
            add_run(w, j, i, free);
        }
    }
    if (!comes && rules_fits(w->fabric, &j->place, free)) {
        return world_broken(w,
                            "[20] job %d is first in the queue and could start if others gave "
                            "way; nobody is asked to",
                            (int)j->id);
    }
    return true;
}

/* Which runs are beyond their tenant's quota: those within it fit into it. */
static bool check_borrowed(struct world *w, const bool *borrowed)
{
    for (int32_t t = 0; t < w->num_tenants; t++) {
        int64_t own = 0, quota = w->tenants[t].quota, all = rules_in_use(w, t);
        for (size_t i = 0; i < w->view.num_runs; i++) {
            if (w->runs[i].tenant != t) {
                continue;
            }
            own += borrowed[i] ? 0 : device_set_num(w->runs[i].devices);
            if (borrowed[i] && (quota < 0 || all <= quota)) {
                return world_broken(w, "[13] job %d is borrowed, and %s is within its quota",
                                    (int)w->runs[i].id, w->tenants[t].name);
            }
        }
        if (quota >= 0 && own > quota) {
            return world_broken(w, "[13] %s: %d devices count as its own, its quota is %d",
                                w->tenants[t].name, (int)own, (int)quota);
        }
    }
    return true;
}

/* The order that is documented: own priority, and aging, less the tenant's part of what all have
 * used. */
static double priority_of(const struct world *w, const struct world_job *j)
{
    const struct sched_options *o = &w->options;
    double age_h = (double)(w->now_ms - j->waits_since_ms) / 3600000, all = 0;
    double aged = o->aging_per_h * age_h < o->aging_max ? o->aging_per_h * age_h : o->aging_max;
    for (int32_t t = 0; t < w->num_tenants; t++) {
        all += w->tenants[t].usage / w->tenants[t].weight;
    }
    const struct sched_tenant *mine = &w->tenants[j->tenant];
    return j->priority + aged - (all > 0 ? o->fair_share * mine->usage / mine->weight / all : 0);
}

static bool check_order(struct world *w)
{
    for (size_t i = 0; i < w->view.num_jobs; i++) {
        const struct world_job *j = &w->jobs[w->queue_job[i]];
        double should = priority_of(w, j), is = sched_priority(&w->view, i);
        if (is > should + 1e-6 || is < should - 1e-6) {
            return world_broken(w, "[19] job %d: effective priority %.3f, should be %.3f",
                                (int)j->id, is, should);
        }
    }
    return true;
}

/* [14]: nothing of another tenant's jobs is told. */
static bool check_secrecy(struct world *w, const struct world_job *j,
                          const struct sched_reason *why)
{
    for (int32_t i = 0; i < why->num_holders; i++) {
        const struct world_job *k = world_job(w, why->holders[i]);
        if (why->holders[i] != -1 && (!k || k->tenant != j->tenant)) {
            return world_broken(w, "[14] job %d: why tells of job %d", (int)j->id,
                                (int)why->holders[i]);
        }
    }
    for (const char *at = why->words; (at = strstr(at, "job ")) != NULL; at += 4) {
        const struct world_job *k = world_job(w, strtoll(at + 4, NULL, 10));
        if (k && k->tenant != j->tenant) {
            return world_broken(w, "[14] job %d: why says \"%s\"", (int)j->id, why->words);
        }
    }
    return true;
}

/* What its user is told. */
static struct sched_reason ask(struct world *w, size_t job)
{
    struct sched_reason why;
    for (size_t i = 0; i < w->view.num_jobs; i++) {
        w->queue[i].hidden = w->queue[i].tenant != w->queue[job].tenant;
    }
    for (size_t i = 0; i < w->view.num_runs; i++) {
        w->runs[i].hidden = w->runs[i].tenant != w->queue[job].tenant;
    }
    sched_why(&w->view, job, &why);
    world_say(w, "  why %d: %s", (int)w->queue[job].id, why.words);
    return why;
}

/* [16]: "fragmented" where enough are free and don't fit, and nowhere else. */
static bool check_fragmented(struct world *w, const struct world_job *j,
                             const struct sched_reason *why)
{
    bool free[WORLD_MAX_DEVICES], all[WORLD_MAX_DEVICES];
    memset(all, true, sizeof all);
    rules_free(w, j->id, free);
    bool enough = rules_count(w->fabric, &j->place, free) >= j->num_devices;
    bool fits = rules_fits(w->fabric, &j->place, free);
    bool fragmented = strstr(why->words, "fragmented") != NULL;
    if (fragmented && (!enough || fits)) {
        return world_broken(w, "[16] job %d: \"%s\", but %s", (int)j->id, why->words,
                            fits ? "it fits" : "too few are free");
    }
    if (!fragmented && enough && !fits && world_ready(w, j) && under_max(w, j) && !j->claim &&
        rules_fits(w->fabric, &j->place, all)) {
        return world_broken(w, "[16] job %d: enough are free in no fitting shape, why says \"%s\"",
                            (int)j->id, why->words);
    }
    return true;
}

/* [13] [22] [24] */
static bool check_words(struct world *w, const struct world_job *j, const struct sched_reason *why)
{
    const struct sched_tenant *t = &w->tenants[j->tenant];
    bool all[WORLD_MAX_DEVICES];
    memset(all, true, sizeof all);
    if (!why->words[0] || strstr(why->words, "about to start")) {
        return world_broken(w, "[24] job %d doesn't start, why says \"%s\"", (int)j->id,
                            why->words);
    }
    if (t->max >= 0 && rules_in_use(w, j->tenant) > t->max && j->num_devices <= t->max &&
        world_ready(w, j) && !j->claim && !strstr(why->words, "over by")) {
        return world_broken(w, "[13] %s is over its maximum, why says \"%s\" of job %d", t->name,
                            why->words, (int)j->id);
    }
    if (why->may_start_ms < w->now_ms ||
        (!rules_fits(w->fabric, &j->place, all) && why->may_start_ms != SCHED_NEVER)) {
        return world_broken(w, "[22] job %d may start at %lld, says why", (int)j->id,
                            (long long)why->may_start_ms);
    }
    return true;
}

static bool check_why(struct world *w)
{
    for (size_t i = 0; i < w->view.num_jobs; i++) {
        if ((int64_t)i % SOME == w->num_passes % SOME) {
            const struct world_job *j = &w->jobs[w->queue_job[i]];
            struct sched_reason why = ask(w, i);
            if (!check_fragmented(w, j, &why) || !check_words(w, j, &why) ||
                !check_secrecy(w, j, &why)) {
                return false;
            }
        }
    }
    return true;
}

/* ---- [19] the reserved job ---- */

/* When the first job of the queue can start at the latest if all runs use up their limits and
 * nothing else starts from now on. */
static int64_t shadow(const struct world *w, const struct world_job *j)
{
    int64_t at = SCHED_NEVER;
    for (int32_t e = 0; e < w->num_jobs; e++) { /* each end of a run is a candidate */
        bool free[WORLD_MAX_DEVICES];
        int64_t end = w->jobs[e].started_ms + w->jobs[e].limit_ms;
        if (!world_holds(&w->jobs[e]) || end >= at) {
            continue;
        }
        rules_free(w, j->id, free);
        for (int32_t i = 0; i < w->num_jobs; i++) {
            const struct world_job *k = &w->jobs[i];
            bool by_then =
                k->started_ms + k->limit_ms <= end || (k->backfills && k->started_ms == w->now_ms);
            for (int32_t n = 0; world_holds(k) && by_then && n < k->set->num; n++) {
                free[k->set->device[n]] = true;
            }
        }
        if (rules_fits(w->fabric, &j->place, free)) {
            at = end;
        }
    }
    return at;
}

static void promise(struct world *w)
{
    bool all[WORLD_MAX_DEVICES];
    memset(all, true, sizeof all);
    size_t first = w->view.num_jobs;
    for (size_t i = 0; i < w->view.num_jobs; i++) {
        if (rules_fits(w->fabric, &w->queue[i].place, all) &&
            (first == w->view.num_jobs ||
             sched_priority(&w->view, i) > sched_priority(&w->view, first))) {
            first = i;
        }
    }
    if (first < w->view.num_jobs) {
        struct world_job *j = &w->jobs[w->queue_job[first]];
        if (j->head_ms < 0) {
            j->head_ms = w->now_ms;
            j->promised_ms = shadow(w, j);
            world_say(w, "  job %d is first in the queue; it may start at %.1f s", (int)j->id,
                      (double)j->promised_ms / 1000);
        }
    }
}

bool check_rest(struct world *w)
{
    bool borrowed[WORLD_MAX_JOBS] = {0};
    world_view(w);
    sched_borrowed(&w->view, borrowed);
    if (w->profile->exact) {
        promise(w);
    }
    return check_holders(w) && check_claims(w) && check_idle(w) && check_order(w) &&
           check_borrowed(w, borrowed) && check_victims(w, borrowed) &&
           check_preempts(w, borrowed) && check_why(w);
}
