/* One pass over the world as it is stored, and its decisions carried out. */
#include <stdlib.h>
#include <string.h>

#include "tests/sched/world.h"

static struct sched_run run_of(const struct world *w, const struct world_job *j)
{
    int64_t ran = w->now_ms > j->begun_ms ? w->now_ms - j->begun_ms : 0;
    struct sched_run r = {
        .id = j->id,
        .tenant = j->tenant,
        .priority = j->priority,
        .devices = j->set,
        .started_ms = j->started_ms,
        .end_ms = SCHED_NEVER,
        .hard_end_ms = j->limit_ms ? j->started_ms + j->limit_ms : SCHED_NEVER,
        .lost_ms = ran % j->ckpt_every_ms,
        .evictions = j->evictions,
        .can_stop = j->state == W_RUNNING,
        .stopping = j->state == W_STOPPING,
        .yields_to = j->yields_to,
        .backfills = j->backfills,
        .is_stuck = j->is_stuck,
    };
    if (j->state == W_STOPPING) {
        r.end_ms = j->stop_ms + w->options.grace_ms;
    } else if (j->known_end) {
        r.end_ms = j->begun_ms + j->work_ms - j->done_ms;
    }
    r.hard_end_ms = j->state == W_STOPPING && r.end_ms < r.hard_end_ms ? r.end_ms : r.hard_end_ms;
    r.end_ms = r.hard_end_ms < r.end_ms ? r.hard_end_ms : r.end_ms;
    if (j->is_stuck) {
        r.end_ms = r.hard_end_ms = SCHED_NEVER;
    }
    return r;
}

void world_view(struct world *w)
{
    struct sched_view *v = &w->view;
    *v = (struct sched_view){.fabric = w->fabric,
                             .drained = w->drained,
                             .options = &w->options,
                             .tenants = w->tenants,
                             .num_tenants = w->num_tenants,
                             .jobs = w->queue,
                             .runs = w->runs,
                             .now_ms = w->now_ms};
    for (int32_t i = 0; i < w->num_jobs; i++) {
        const struct world_job *j = &w->jobs[i];
        if (world_holds(j)) {
            w->run_job[v->num_runs] = i;
            w->runs[v->num_runs++] = run_of(w, j);
        } else if (j->state == W_QUEUED) {
            w->queue_job[v->num_jobs] = i;
            w->queue[v->num_jobs++] = (struct sched_job){.id = j->id,
                                                         .tenant = j->tenant,
                                                         .priority = j->priority,
                                                         .num_devices = j->num_devices,
                                                         .place = j->place,
                                                         .waits_since_ms = j->waits_since_ms,
                                                         .limit_ms = j->limit_ms,
                                                         .evictions = j->evictions,
                                                         .ready = world_ready(w, j),
                                                         .claim = j->claim};
        }
    }
}

static void say_devices(struct world *w, const char *what, const struct world_job *j,
                        const struct device_set *s, const char *more)
{
    if (w->trace) {
        struct buf b = {0};
        fabric_print_set(w->fabric, s, &b);
        world_say(w, "  %s job %d on %s%s", what, (int)j->id, b.len ? b.data : "nothing", more);
        buf_free(&b);
    }
}

static void carry_out(struct world *w, const struct sched_decision *d)
{
    struct world_job *j = &w->jobs[w->queue_job[d->job]];
    char more[64] = "";
    switch (d->kind) {
    case SCHED_START:
        world_start(w, j, d);
        if (d->backfills) {
            snprintf(more, sizeof more, ", in front of %d", (int)d->backfills);
        }
        say_devices(w, d->borrowed ? "start, borrowed," : "start", j, j->set, more);
        break;
    case SCHED_STOP:
        world_stop(w, &w->jobs[w->run_job[d->run]], TO_QUEUE, j->id);
        world_say(w, "  stop job %d for job %d", (int)w->jobs[w->run_job[d->run]].id, (int)j->id);
        break;
    case SCHED_CLAIM:
        device_set_free(j->claim);
        j->claim = device_set_copy(d->set);
        w->num_claims++;
        say_devices(w, "claim for", j, j->claim, "");
        break;
    case SCHED_UNCLAIM:
        device_set_free(j->claim);
        j->claim = NULL;
        w->num_claims++;
        say_devices(w, "unclaim", j, NULL, "");
        break;
    }
}

static bool same(const struct sched_decision *a, const struct sched_decision *b, int32_t num)
{
    return a->kind == b->kind && a->job == b->job && (a->kind != SCHED_STOP || a->run == b->run) &&
           device_set_equal(a->set, b->set) &&
           (a->kind != SCHED_START ||
            (a->backfills == b->backfills && a->borrowed == b->borrowed &&
             memcmp(a->devices, b->devices, (size_t)num * sizeof *a->devices) == 0));
}

/* One that remembers nothing decides the same: memory makes a pass quicker, never different. */
static bool check_memory(struct world *w, const struct sched_decision *d, size_t num)
{
    struct sched *fresh = NULL;
    struct error err = {0};
    ASSERT(sched_new(&fresh, w->fabric, &err) == 0);
    const struct sched_decision *other;
    bool fine = sched_pass(fresh, &w->view, &other) == num;
    for (size_t i = 0; i < num && fine; i++) {
        fine = same(&d[i], &other[i], w->queue[d[i].job].num_devices);
    }
    if (fine && sched_next_ms(fresh) != sched_next_ms(w->sched)) {
        fine = world_broken(w, "[10] after a restart the next pass is due at another time");
    }
    sched_free(fresh);
    return fine || world_broken(w, "[10] a pass decides otherwise than one without memory");
}

static bool is_first(const struct world *w, size_t job)
{
    for (size_t i = 0; i < w->view.num_jobs; i++) {
        double its = sched_priority(&w->view, i), mine = sched_priority(&w->view, job);
        if (w->queue[i].ready && (its > mine || (its >= mine && i < job))) {
            return false;
        }
    }
    return true;
}

bool world_nothing_due(struct world *w, int64_t at_ms)
{
    static const char *const names[] = {"start", "stop for", "claim for", "unclaim"};
    if (w->options.aging_per_h > 0 || w->options.fair_share || at_ms <= w->now_ms) {
        return true; /* the order of the queue changes with time alone */
    }
    int64_t now_ms = w->now_ms;
    w->now_ms = at_ms;
    world_view(w);
    w->now_ms = now_ms;
    struct sched *fresh = NULL;
    struct error err = {0};
    ASSERT(sched_new(&fresh, w->fabric, &err) == 0);
    const struct sched_decision *d;
    size_t num = sched_pass(fresh, &w->view, &d);
    /* Only the first of the queue's. When others may pass a reservation isn't foreseen to the
     * moment: where places are reserved for those behind depends on who could still pass. */
    bool fine = true;
    for (size_t i = 0; i < num && fine; i++) {
        fine = d[i].kind == SCHED_START || !is_first(w, d[i].job);
    }
    if (!fine) {
        for (size_t i = 0; i < num; i++) {
            world_say(w, "  later: %s job %d", names[d[i].kind], (int)w->queue[d[i].job].id);
        }
        world_broken(w, "[24] at %.1f s a pass would decide something; none is due",
                     (double)at_ms / 1000);
    }
    sched_free(fresh);
    return fine;
}

bool world_pass(struct world *w)
{
    world_view(w);
    const struct sched_decision *d;
    size_t num = sched_pass(w->sched, &w->view, &d);
    w->num_passes++;
    bool fine = check_memory(w, d, num) && check_decisions(w, d, num);
    for (size_t i = 0; i < num && (fine || w->trace); i++) {
        carry_out(w, &d[i]); /* shown, if it is broken */
    }
    return fine;
}
