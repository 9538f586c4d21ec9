/* What is true of a move in the queue: what it waited for, why it is stopped, how often, and when.
 */
#include <string.h>

#include "server/job.h"
#include "tests/sim/sim_check.h"
#include "tests/sim/sim_client.h"
#include "tests/sim/sim_node.h"
#include "tests/sim/sim_server.h"

/* A launch and a few batches. */
#define LIMIT_LATE_US 2000000

/* [24] */
void sim_check_dependency(struct sim *s, const struct sim_job *j)
{
    bool one = false;
    for (int32_t i = 0; i < j->num_after; i++) {
        one = one || j->after[i]->state == JOB_FAILED || j->after[i]->state == JOB_CANCELLED;
    }
    if (!one) {
        sim_fail(s, "[24] %s failed for what it waits for, and none of that has failed", j->name);
    }
}

void sim_check_start(struct sim *s, const struct sim_job *j)
{
    for (int32_t i = 0; i < j->num_after; i++) {
        if (j->after[i]->state != JOB_SUCCEEDED) {
            sim_fail(s, "[24] %s starts, but %s, which it waits for, is %s", j->name,
                     j->after[i]->name, job_state_name(j->after[i]->state));
        }
    }
    s->seen.dependents += j->num_after > 0;
}

/* [24]: neither before its time nor long after it, had the controller all its wits about it. */
static void check_limit(struct sim *s, const struct sim_job *j, const struct sim_held *h)
{
    const struct sim_server *v = s->server;
    int64_t due_us = h->taken_us + 1000000 * j->limit_s;
    int64_t slack_us = 3000 + 2 * v->late_us + sim_check_astray_us(s, h), late_us = due_us;
    late_us = v->booted_us > late_us ? v->booted_us : late_us;
    late_us = s->disk_well_us > late_us ? s->disk_well_us : late_us;
    if (s->now_us < due_us - slack_us || s->now_us > late_us + slack_us + LIMIT_LATE_US) {
        sim_fail(s, "[24] %s is stopped for its limit of %lld s after %lld ms", j->name,
                 (long long)j->limit_s, (long long)(s->now_us - h->taken_us) / 1000);
    }
}

/* [17] [24]: evictions are bounded; a limit isn't over before its time. */
static void check_stop(struct sim *s, const struct sim_job *j, bool evicted, bool drained,
                       bool limit)
{
    static const SchedulerConfig defaults = SCHEDULER_CONFIG__INIT;
    const SchedulerConfig *c = sim_cluster_scheduler(s);
    c = c ? c : &defaults;
    const struct sim_held *h = j->num_held ? &j->held[j->num_held - 1] : NULL;
    if (evicted && (!c->preemption || j->evictions >= c->max_evictions)) {
        sim_fail(s, "[17] %s has given way %d times of %d and is stopped again", j->name,
                 j->evictions, c->preemption ? c->max_evictions : 0);
    }
    if (drained && h && !(h->devices & sim_admin_maybe_hard(s))) {
        sim_fail(s, "[18] %s has to leave devices %llx, and may finish there", j->name,
                 (unsigned long long)h->devices);
    }
    if (limit && h && h->known) {
        check_limit(s, j, h);
    }
}

/* [24]: what it saved when it stopped is known, or its end would not be. */
static void note_clean_stop(struct sim *s, const struct sim_job *j, const Event *e)
{
    int32_t attempt = j->num_held ? j->held[j->num_held - 1].number : 0;
    for (size_t i = s->num_nodes; i > 0 && !strstr(e->message, "died while"); i--) {
        const struct sim_node *n = s->nodes[i - 1];
        if (n->truth == j && n->attempt == attempt && n->paused) {
            sim_node_tell(n);
            return;
        }
    }
}

/* It is to stop, and not by its user's wish. */
void sim_check_stop(struct sim *s, struct sim_job *j, const Event *e, bool delivered)
{
    const char *cause = e->cause ? e->cause : "";
    bool evicted = strcmp(cause, "preempted") == 0, drained = strcmp(cause, "drained") == 0;
    bool limit = strcmp(cause, "time-limit") == 0;
    bool for_others = e->to == JOB_STOPPING && (evicted || drained || limit);
    if (for_others && e->from == JOB_STOPPING && j->stops_us) {
        return; /* its user takes the stop over; its grace runs on */
    }
    j->stops_us = 0;
    if (for_others) {
        j->stops_us = s->now_us;
        if (delivered) {
            check_stop(s, j, evicted, drained, limit);
        }
    }
    if (e->to == JOB_QUEUED && e->from == JOB_STOPPING) {
        note_clean_stop(s, j, e);
        j->evictions += evicted;
        s->seen.evictions += evicted;
        s->seen.drained += drained;
    }
}
