/* The clock, and what happens to the world from outside. */
#include <stdarg.h>
#include <stdlib.h>

#include "tests/sched/world.h"

enum { PASSES_MAX = 8, STEPS_MAX = 20000 };

void world_say(struct world *w, const char *fmt, ...)
{
    if (w->trace) {
        va_list args;
        va_start(args, fmt);
        fprintf(w->trace, "%9.1f s  ", (double)w->now_ms / 1000);
        vfprintf(w->trace, fmt, args);
        fputc('\n', w->trace);
        va_end(args);
    }
}

bool world_broken(struct world *w, const char *fmt, ...)
{
    if (!w->why[0]) {
        va_list args;
        va_start(args, fmt);
        int n = snprintf(w->why, sizeof w->why, "at %.1f s: ", (double)w->now_ms / 1000);
        vsnprintf(w->why + n, sizeof w->why - (size_t)n, fmt, args);
        va_end(args);
        world_say(w, "BROKEN %s", w->why);
    }
    return false;
}

struct world_job *world_job(struct world *w, int64_t id)
{
    return id >= 1 && id <= w->num_jobs ? &w->jobs[id - 1] : NULL;
}

/* Stops what lies on a device that is drained. */
static void drain(struct world *w, int32_t device, int64_t num, bool let_finish)
{
    const struct fabric_part *node = &w->fabric->nodes[w->fabric->devices[device].node];
    int32_t first = num > 1 ? node->first_device : device;
    for (int32_t d = first; d < first + num && d < w->fabric->num_devices; d++) {
        w->drained[d] = true;
        for (int32_t i = 0; i < w->num_jobs && !let_finish; i++) {
            struct world_job *j = &w->jobs[i];
            if (world_holds(j) && device_set_has(j->set, d)) {
                world_stop(w, j, TO_QUEUE, 0);
            }
        }
    }
    world_say(w, "drain %d device(s) from %d%s", (int)num, first, let_finish ? ", let finish" : "");
}

static void undrain(struct world *w, int32_t device, int64_t num)
{
    const struct fabric_part *node = &w->fabric->nodes[w->fabric->devices[device].node];
    int32_t first = num > 1 ? node->first_device : device;
    for (int32_t d = first; d < first + num && d < w->fabric->num_devices; d++) {
        w->drained[d] = false;
    }
    world_say(w, "undrain %d device(s) from %d", (int)num, first);
}

static void cancel(struct world *w, struct world_job *j)
{
    if (j->state == W_QUEUED || j->state == W_HELD) {
        world_end(w, j, false);
    } else if (world_holds(j)) {
        world_stop(w, j, TO_END, 0);
    }
    world_say(w, "cancel job %d", (int)j->id);
}

static void hold(struct world *w, struct world_job *j)
{
    if (j->state == W_QUEUED) {
        j->state = W_HELD;
        device_set_free(j->claim);
        j->claim = NULL;
        world_say(w, "hold job %d", (int)j->id);
    }
}

/* Its processes can't be killed. */
static void stick(struct world *w, struct world_job *j, int64_t for_ms)
{
    if (world_holds(j)) {
        world_stop(w, j, TO_END, 0);
        j->is_stuck = true;
        j->gone_ms = w->now_ms + for_ms;
        world_say(w, "job %d is stuck on its devices", (int)j->id);
    }
}

/* The controller is killed, and back after a while: it knows what is stored. */
static void crash(struct world *w, int64_t for_ms)
{
    struct error err = {0};
    sched_free(w->sched);
    ASSERT(sched_new(&w->sched, w->fabric, &err) == 0);
    w->down_until_ms = w->now_ms + for_ms;
    world_say(w, "crash, down for %d s", (int)(for_ms / 1000));
}

static void submit(struct world *w, struct world_job *j)
{
    j->state = W_QUEUED;
    j->waits_since_ms = w->now_ms;
    const struct place_request *r = &j->place;
    world_say(w,
              "submit job %d of %s: %d devices (data %d pipeline %d context %d tensor %d expert "
              "%d) of %s%s, priority %d, limit %d s, after %d",
              (int)j->id, w->tenants[j->tenant].name, j->num_devices, r->data, r->pipeline,
              r->context, r->tensor, r->expert, r->type, r->num_nodes ? " on named nodes" : "",
              j->priority, (int)(j->limit_ms / 1000), (int)j->after);
}

static void happen(struct world *w, const struct world_event *e)
{
    struct world_job *j = &w->jobs[e->what % w->num_jobs];
    switch (e->kind) {
    case EV_SUBMIT:
        submit(w, j);
        break;
    case EV_CANCEL:
        if (j->state != W_FUTURE) {
            cancel(w, j);
        }
        break;
    case EV_HOLD:
        hold(w, j);
        break;
    case EV_RELEASE:
        j->state = j->state == W_HELD ? W_QUEUED : j->state;
        break;
    case EV_PRIORITY:
        j->priority = (int32_t)e->value;
        world_say(w, "priority of job %d is %d", (int)j->id, j->priority);
        break;
    case EV_DRAIN:
        drain(w, e->what, e->value, e->more != 0);
        break;
    case EV_UNDRAIN:
        undrain(w, e->what, e->value);
        break;
    case EV_QUOTA:
        w->tenants[e->what].quota = e->value;
        w->tenants[e->what].max = e->value >= 0 && e->more >= e->value ? e->more : -1;
        world_say(w, "quota of %s is %d, max %d", w->tenants[e->what].name, (int)e->value,
                  (int)w->tenants[e->what].max);
        break;
    case EV_CRASH:
        crash(w, e->value);
        break;
    case EV_STICK:
        stick(w, j, e->value);
        break;
    }
}

/* Nothing disturbs any more: what can run has to run. */
static void calm_down(struct world *w)
{
    world_say(w, "calm: all is undrained and released, quotas are as in the beginning");
    for (int32_t d = 0; d < w->fabric->num_devices; d++) {
        w->drained[d] = false;
    }
    for (int32_t i = 0; i < w->num_jobs; i++) {
        w->jobs[i].state = w->jobs[i].state == W_HELD ? W_QUEUED : w->jobs[i].state;
    }
    for (int32_t t = 0; t < w->num_tenants; t++) {
        w->tenants[t].quota = w->born[t].quota;
        w->tenants[t].max = w->born[t].max;
    }
    w->calm_ms = SCHED_NEVER;
}

static int64_t next_time(const struct world *w)
{
    int64_t next = w->next_event < w->num_events ? w->events[w->next_event].at_ms : w->calm_ms;
    for (int32_t i = 0; i < w->num_jobs; i++) {
        int64_t at = world_next_of(w, &w->jobs[i]);
        next = at < next ? at : next;
    }
    int64_t at = w->now_ms < w->down_until_ms ? w->down_until_ms : sched_next_ms(w->sched);
    return at > w->now_ms && at < next ? at : next;
}

static void advance(struct world *w, int64_t to_ms)
{
    for (int32_t t = 0; t < w->num_tenants; t++) {
        w->held_ms += rules_in_use(w, t) * (to_ms - w->now_ms);
        w->tenants[t].usage += (double)(rules_in_use(w, t) * (to_ms - w->now_ms)) / 1000;
    }
    w->now_ms = to_ms;
    for (int32_t i = 0; i < w->num_jobs; i++) {
        world_advance(w, &w->jobs[i]);
    }
    while (w->next_event < w->num_events && w->events[w->next_event].at_ms <= to_ms) {
        happen(w, &w->events[w->next_event++]);
    }
    if (to_ms >= w->calm_ms) {
        calm_down(w);
    }
    if (to_ms >= w->no_backfill_from_ms && w->options.backfill) {
        w->options.backfill = false;
        sched_reset(w->sched);
    }
}

bool world_run(struct world *w)
{
    int steps = 0;
    for (int64_t next; (next = next_time(w)) != SCHED_NEVER; steps++) {
        if (next < w->now_ms || steps > STEPS_MAX) {
            return world_broken(w, "[19] it goes on for ever");
        }
        if (steps > 0 && w->now_ms >= w->down_until_ms && !world_nothing_due(w, next - 1)) {
            return false;
        }
        advance(w, next);
        if (w->now_ms < w->down_until_ms) {
            continue;
        }
        int passes = 0;
        int64_t before;
        do {
            before = w->num_starts + w->num_stops + w->num_claims;
            if (!world_pass(w)) {
                return false;
            }
            if (++passes > PASSES_MAX) {
                return world_broken(w, "it doesn't come to rest: passes at one time decide on");
            }
        } while (w->num_starts + w->num_stops + w->num_claims != before);
        if (!check_rest(w)) {
            return false;
        }
    }
    return check_end(w);
}
