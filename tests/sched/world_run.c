/* The course of one job: it starts, runs, saves, fails, stops or doesn't. */
#include <stdlib.h>
#include <string.h>

#include "tests/sched/world.h"

#define MINUTE 60000

/* Luck that follows from the job's attempt alone. */
static struct sim_rng luck_of(const struct world *w, const struct world_job *j)
{
    struct sim_rng rng = {w->seed * 0xD1342543DE82EF95u + (uint64_t)(j->id * 64 + j->attempts)};
    return rng;
}

bool world_holds(const struct world_job *j)
{
    return j->state == W_STARTING || j->state == W_RUNNING || j->state == W_STOPPING;
}

bool world_ready(const struct world *w, const struct world_job *j)
{
    return j->state == W_QUEUED && w->now_ms >= j->not_before_ms &&
           (!j->after || w->jobs[j->after - 1].state == W_ENDED);
}

void world_start(struct world *w, struct world_job *j, const struct sched_decision *d)
{
    struct sim_rng rng = luck_of(w, j);
    size_t bytes = (size_t)j->num_devices * sizeof *j->devices;
    j->devices = realloc(j->devices, bytes);
    ASSERT(j->devices);
    memcpy(j->devices, d->devices, bytes);
    j->set = device_set_new(j->devices, j->num_devices);
    device_set_free(j->claim);
    j->claim = NULL;
    j->state = W_STARTING;
    j->target = TO_END;
    j->attempts++;
    j->started_ms = w->now_ms;
    j->begun_ms = w->now_ms + (w->profile->exact ? 0 : sim_rng_delay(&rng, 0, 2 * MINUTE));
    j->yields_to = 0;
    j->backfills = d->backfills;
    j->is_stuck = false;
    j->ends_ms = j->begun_ms + j->work_ms - j->done_ms;
    j->will_fail = j->fails < j->num_fails;
    if (j->will_fail) {
        j->ends_ms = j->begun_ms + sim_rng_between(&rng, 0, j->ends_ms - j->begun_ms);
    }
    if (j->limit_ms && j->ends_ms > j->started_ms + j->limit_ms) {
        j->ends_ms = j->started_ms + j->limit_ms;
        j->will_fail = false;
    }
    if (j->first_start_ms < 0) {
        j->first_start_ms = w->now_ms;
    }
    w->num_starts++;
    w->num_backfills += d->backfills != 0;
}

void world_stop(struct world *w, struct world_job *j, enum world_target target, int64_t yields_to)
{
    if (j->state == W_STOPPING) {
        j->target = target == TO_END ? TO_END : j->target;
        return;
    }
    struct sim_rng rng = luck_of(w, j);
    rng.state += 77;
    bool stubborn = sim_rng_chance(&rng, w->profile->stubborn);
    bool till_grace = stubborn && sim_rng_chance(&rng, .5);
    j->will_save = j->state == W_RUNNING && !till_grace;
    j->state = W_STOPPING;
    j->target = target;
    j->yields_to = yields_to;
    j->stop_ms = w->now_ms;
    j->gone_ms = w->now_ms + (till_grace ? w->options.grace_ms
                              : stubborn ? sim_rng_between(&rng, 0, w->options.grace_ms)
                                         : sim_rng_between(&rng, 0, 5000));
    if (yields_to) {
        j->evictions++;
        w->num_stops++;
    }
}

void world_end(struct world *w, struct world_job *j, bool succeeded)
{
    (void)w;
    j->state = W_ENDED;
    j->succeeded = succeeded;
    device_set_free(j->claim);
    j->claim = NULL;
}

/* Its devices are free. */
static void gone(struct world *w, struct world_job *j, enum world_target target, bool succeeded)
{
    int64_t charge = (w->now_ms - j->started_ms) * j->num_devices;
    j->charged_ms += charge;
    w->charged_ms += charge;
    device_set_free(j->set);
    j->set = NULL;
    if (target == TO_QUEUE) {
        j->state = W_QUEUED;
    } else {
        world_end(w, j, succeeded);
    }
    world_say(w, "job %d gone from its devices, %s", (int)j->id,
              target == TO_QUEUE ? "queued again" : "ended");
}

static int64_t saved(const struct world_job *j, int64_t at_ms, bool all)
{
    int64_t ran = at_ms > j->begun_ms ? at_ms - j->begun_ms : 0;
    return all ? ran : ran / j->ckpt_every_ms * j->ckpt_every_ms;
}

int64_t world_next_of(const struct world *w, const struct world_job *j)
{
    switch (j->state) {
    case W_STARTING:
        return j->begun_ms < j->ends_ms ? j->begun_ms : j->ends_ms;
    case W_RUNNING:
        return j->ends_ms;
    case W_STOPPING:
        return !j->is_stuck && j->ends_ms < j->gone_ms ? j->ends_ms : j->gone_ms;
    case W_QUEUED:
        return j->not_before_ms > w->now_ms ? j->not_before_ms : SCHED_NEVER;
    default:
        return SCHED_NEVER;
    }
}

static void end_of_run(struct world *w, struct world_job *j)
{
    bool done = j->done_ms + j->ends_ms - j->begun_ms >= j->work_ms;
    if (j->will_fail && !done) {
        j->fails++;
        j->done_ms += saved(j, w->now_ms, false);
        j->not_before_ms = w->now_ms + MINUTE * j->fails;
        bool wanted = j->state != W_STOPPING || j->target == TO_QUEUE;
        gone(w, j, wanted ? TO_QUEUE : TO_END, false);
    } else {
        gone(w, j, TO_END, done);
    }
}

static void depend(struct world *w, struct world_job *j)
{
    if ((j->state == W_QUEUED || j->state == W_HELD) && j->after) {
        const struct world_job *first = &w->jobs[j->after - 1];
        if (first->state == W_ENDED && !first->succeeded) {
            world_say(w, "job %d ends: the one it waits for has not succeeded", (int)j->id);
            world_end(w, j, false);
        }
    }
}

void world_advance(struct world *w, struct world_job *j)
{
    if (j->state == W_STARTING && j->begun_ms <= w->now_ms && j->ends_ms > w->now_ms) {
        j->state = W_RUNNING;
    }
    if (j->state == W_STARTING || j->state == W_RUNNING) {
        if (j->ends_ms <= w->now_ms) {
            end_of_run(w, j);
        }
    } else if (j->state == W_STOPPING && world_next_of(w, j) <= w->now_ms) {
        if (j->ends_ms <= w->now_ms && !j->is_stuck) {
            end_of_run(w, j);
        } else {
            j->done_ms += saved(j, w->now_ms, j->will_save);
            gone(w, j, j->target, false);
        }
    }
    depend(w, j);
}
