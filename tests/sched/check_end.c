/* The world when nothing happens any more. */
#include <string.h>

#include "tests/sched/world.h"

/* [19] [22]: what could run has run. */
static bool check_all_ran(struct world *w)
{
    bool all[WORLD_MAX_DEVICES];
    memset(all, true, sizeof all);
    for (int32_t i = 0; i < w->num_jobs; i++) {
        const struct world_job *j = &w->jobs[i];
        const struct sched_tenant *t = &w->tenants[j->tenant];
        bool can =
            rules_fits(w->fabric, &j->place, all) && (t->max < 0 || j->num_devices <= t->max);
        if (can && j->after) {
            const struct world_job *first = &w->jobs[j->after - 1];
            can = first->state == W_ENDED;
        }
        if (can && j->state != W_ENDED) {
            return world_broken(w, "[19] job %d waits for ever", (int)j->id);
        }
        if (!can && j->claim) {
            return world_broken(w, "[17] devices stay kept for job %d, which can't start",
                                (int)j->id);
        }
    }
    return true;
}

/* [10]: device-time of the attempts is device-time by the clock, to the millisecond. */
static bool check_sums(struct world *w)
{
    int64_t sum = 0;
    for (int32_t i = 0; i < w->num_jobs; i++) {
        if (w->jobs[i].charged_ms < 0 || world_holds(&w->jobs[i])) {
            return world_broken(w, "[10] job %d holds devices, or was charged less than nothing",
                                (int)w->jobs[i].id);
        }
        sum += w->jobs[i].charged_ms;
    }
    if (sum != w->charged_ms || sum != w->held_ms) {
        return world_broken(w, "[10] attempts held %lld device-ms, the clock says %lld",
                            (long long)sum, (long long)w->held_ms);
    }
    return true;
}

/* [17]: evictions of a job are bounded. */
static bool check_evictions(struct world *w)
{
    for (int32_t i = 0; i < w->num_jobs; i++) {
        if (w->jobs[i].evictions > w->options.max_evictions) {
            return world_broken(w, "[17] job %d was evicted %d times", (int)w->jobs[i].id,
                                w->jobs[i].evictions);
        }
    }
    return true;
}

/* [19]: who was first in the queue started no later than could be said at that time. */
static bool check_promises(struct world *w)
{
    for (int32_t i = 0; i < w->num_jobs && w->profile->exact; i++) {
        const struct world_job *j = &w->jobs[i];
        if (j->head_ms >= 0 && j->first_start_ms > j->promised_ms) {
            return world_broken(w,
                                "[19] job %d was first in the queue at %.1f s and could start at "
                                "%.1f s; it did at %.1f s",
                                (int)j->id, (double)j->head_ms / 1000,
                                (double)j->promised_ms / 1000, (double)j->first_start_ms / 1000);
        }
    }
    return true;
}

bool check_end(struct world *w)
{
    return check_all_ran(w) && check_sums(w) && check_evictions(w) && check_promises(w);
}
