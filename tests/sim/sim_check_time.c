/* Deadlines, by what really runs; and device-time, by when it really ran. */
#include <stdlib.h>

#include "server/attempts_view.h"
#include "server/store/usage_rows.h"
#include "tests/sim/sim_check.h"
#include "tests/sim/sim_client.h"
#include "tests/sim/sim_node.h"
#include "tests/sim/sim_server.h"

/* Until a kill that is due is asked for, sent and carried out. */
#define KILLED_US ((int64_t)6000000)

/* ---- deadlines ---- */

static int64_t grace_us(const struct sim *s)
{
    static const SchedulerConfig defaults = SCHEDULER_CONFIG__INIT;
    const SchedulerConfig *c = sim_cluster_scheduler(s);
    return 1000000 * (int64_t)(c ? c->grace_s : defaults.grace_s) + 1000 * ATTEMPTS_KILL_MS;
}

static int64_t latest(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

int64_t sim_check_astray_us(const struct sim *s, const struct sim_held *h)
{
    int64_t until = h->freed_us ? h->freed_by : s->server->generation;
    return h->known && h->taken_by == until ? 0 : s->server->jumps_us - h->jumps_us;
}

/* When it has to be gone, had the controller all its wits about it; INT64_MAX: never. */
static int64_t due_of(const struct sim *s, const struct sim_node *n)
{
    const struct sim_job *j = n->truth;
    const struct sim_held *h = sim_client_held(j, n->attempt);
    bool last = h && h == &j->held[j->num_held - 1] && !h->freed_us;
    if (!last || !h->known) {
        return INT64_MAX;
    }
    if (j->stops_us) {
        return j->stops_us;
    }
    bool runs = j->state == JOB_STARTING || j->state == JOB_RUNNING;
    int64_t limit_us = 1000000 * j->limit_s + sim_check_astray_us(s, h);
    return runs && j->limit_s ? h->taken_us + limit_us : INT64_MAX;
}

/* [24]: never beyond its limit, or the grace of a stop, and the time that a kill takes. */
void sim_check_time(struct sim *s)
{
    const struct sim_server *v = s->server;
    for (size_t i = 0; i < s->num_nodes && v->up; i++) {
        const struct sim_node *n = s->nodes[i];
        if (!sim_node_holds(n) || n->stuck_until_us) {
            continue;
        }
        int64_t due_us = due_of(s, n);
        if (due_us == INT64_MAX) {
            continue;
        }
        due_us = latest(due_us, latest(v->booted_us, s->disk_well_us)) + v->late_us;
        if (s->now_us > due_us + grace_us(s) + KILLED_US) {
            sim_fail(s, "[24] job %lld attempt %d still runs, %lld ms after it should have stopped",
                     (long long)n->job, n->attempt, (long long)(s->now_us - due_us) / 1000);
        }
    }
}

/* ---- device-time ---- */

struct sums {
    struct sim *s;
    struct sim_job *job; /* NULL: of a tenant */
    int64_t device_us, num;
};

/* Exact to the steps of the clock where one controller saw all of it; else by the clock on the
 * wall, with what that jumped. */
static bool take_usage(void *arg, const struct usage_row *r)
{
    struct sums *u = arg;
    struct sim *s = u->s;
    u->device_us += r->device_us;
    u->num++;
    if (!u->job) {
        return true;
    }
    const struct sim_held *h = sim_client_held(u->job, r->number);
    if (!h) {
        sim_fail(s, "[10] attempt %d of %s is in the accounts, and never was", r->number,
                 u->job->name);
        return false;
    }
    int64_t held_us = h->freed_us - h->taken_us;
    int64_t slack_us = 3000 + 2 * s->server->late_us + h->before_us;
    int64_t astray_us = sim_check_astray_us(s, h);
    int64_t off_us = r->device_us / (r->devices ? r->devices : 1) - held_us;
    off_us = off_us < 0 ? -off_us : off_us;
    if (r->device_us < 0 || !r->gone_us || r->devices != u->job->num_ranks ||
        r->device_us != r->devices * (r->gone_us - r->created_us)) {
        sim_fail(s, "[10] attempt %d of %s: %lld us on %lld devices", r->number, u->job->name,
                 (long long)r->device_us, (long long)r->devices);
    }
    if (off_us > slack_us + astray_us) {
        sim_fail(s, "[10] attempt %d of %s held its %d devices for %lld ms, and is charged %lld ms",
                 r->number, u->job->name, u->job->num_ranks, (long long)held_us / 1000,
                 (long long)(r->device_us / r->devices / 1000));
    }
    return true;
}

void sim_check_accounts(struct sim *s, struct store *store)
{
    struct error err = {0};
    int64_t by_jobs[SIM_TENANTS_MAX] = {0};
    for (int32_t i = 0; i < s->num_jobs; i++) {
        struct sums u = {.s = s, .job = &s->jobs[i]};
        if (!s->jobs[i].id) {
            continue;
        }
        if (store_usage_of_job(store, s->jobs[i].id, take_usage, &u, &err) != 0) {
            sim_fail(s, "the accounts: %s", err.text);
        }
        if (u.num != s->jobs[i].num_held) {
            sim_fail(s, "[10] %s had %d attempts, %lld are in the accounts", s->jobs[i].name,
                     s->jobs[i].num_held, (long long)u.num);
        }
        by_jobs[s->jobs[i].tenant] += u.device_us;
    }
    for (int32_t t = 0; t < SIM_TENANTS_MAX; t++) {
        struct sums u = {.s = s};
        if (store_usage_between(store, sim_tenants[t], 0, INT64_MAX, take_usage, &u, &err) != 0) {
            sim_fail(s, "the accounts: %s", err.text);
        }
        if (u.device_us != by_jobs[t]) {
            sim_fail(s, "[10] %s is charged %lld us, its jobs %lld", sim_tenants[t],
                     (long long)u.device_us, (long long)by_jobs[t]);
        }
    }
}
