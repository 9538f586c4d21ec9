/* Who has which device, what is kept for whom, and what tenants hold: after each step, and the same
 * again after a start. */
#include <stdlib.h>
#include <string.h>

#include "server/job.h"
#include "server/sched/sched.h"
#include "tests/sim/sim_check.h"
#include "tests/sim/sim_client.h"
#include "tests/sim/sim_node.h"
#include "tests/sim/sim_server.h"

/* One look at the controller's memory. */
struct look {
    struct sim *s;
    struct controller *c;
    bool loose; /* a step may have been lost sight of: what is new is taken as it is */
    uint64_t held[SIM_JOBS_MAX], claim[SIM_JOBS_MAX]; /* as they are now, by the job's idx */
    uint64_t fresh[SIM_JOBS_MAX];                     /* of an attempt that is new */
    bool queued[SIM_JOBS_MAX], live[SIM_JOBS_MAX];
    int64_t holds[SIM_TENANTS_MAX];
    int64_t in_file[SIM_TENANTS_MAX]; /* of these: what an edit of the file took away is nobody's */
    int64_t yields_to[SIM_JOBS_MAX];  /* since this step */
};

static bool is_live(const struct job *j)
{
    return j->row.attempt.number && j->row.attempt.condition != ATTEMPT_GONE;
}

static struct sim_held *last_held(const struct sim_job *j)
{
    return j->num_held ? &j->held[j->num_held - 1] : NULL;
}

/* ---- an attempt ---- */

/* [21]: by what really runs there. */
static void check_nobody_is_on(struct look *l, const struct sim_job *j, int32_t attempt,
                               uint64_t devices)
{
    struct sim *s = l->s;
    for (size_t i = 0; i < s->num_nodes; i++) {
        const struct sim_node *n = s->nodes[i];
        bool there = sim_node_holds(n) || (n->alive && n->has_ticket);
        if (there && (n->given & devices)) {
            sim_fail(s,
                     "[21] devices %llx are given to %s, attempt %d, while job %lld attempt %d "
                     "is on them",
                     (unsigned long long)(n->given & devices), j->name, attempt, (long long)n->job,
                     n->attempt);
        }
    }
}

/* [18]: nothing new on what is drained; not even on what may be, once that is all that may be. */
static void check_not_drained(struct look *l, const struct sim_job *j, uint64_t devices)
{
    uint64_t on = devices & (sim_admin_drained(l->s, false) | l->s->cluster->missing);
    if (on) {
        sim_fail(l->s, "[18] %s is given devices %llx, which are drained", j->name,
                 (unsigned long long)on);
    }
}

static void free_attempt(const struct sim *s, struct sim_held *h)
{
    h->freed_us = s->server->step_us;
    h->freed_by = s->server->generation;
}

/* How long nobody has seen what was committed. */
static int64_t unseen_us(const struct sim *s)
{
    return s->server->unchecked ? s->server->step_us - s->server->unchecked_us : 0;
}

static void take_attempt(struct look *l, struct sim_job *j, const struct job *memory,
                         uint64_t devices)
{
    struct sim *s = l->s;
    struct sim_held *last = last_held(j);
    const struct attempt_row *a = &memory->row.attempt;
    if (last && !last->freed_us) {
        free_attempt(s, last);
    }
    if (j->num_held == j->cap_held) {
        j->cap_held = j->cap_held ? 2 * j->cap_held : 8;
        j->held = realloc(j->held, (size_t)j->cap_held * sizeof *j->held);
        ASSERT(j->held);
    }
    j->held[j->num_held++] = (struct sim_held){.number = a->number,
                                               .devices = devices,
                                               .taken_us = s->server->step_us,
                                               .before_us = l->loose ? unseen_us(s) : 0,
                                               .jumps_us = s->server->jumps_us,
                                               .version = s->cluster->version,
                                               .taken_by = s->server->generation,
                                               .known = !l->loose};
    l->fresh[j->idx] = devices;
    s->seen.backfills += a->backfills != 0;
    if (l->loose) {
        return;
    }
    if (sim_cluster_count(devices) != j->num_ranks || a->num_devices != j->num_ranks) {
        sim_fail(s, "[15] %s needs %d devices and got %d", j->name, j->num_ranks,
                 sim_cluster_count(devices));
    }
    if (j->pin >= 0 && (devices & ~sim_cluster_of_node(s, j->pin))) {
        sim_fail(s, "%s is bound to %s and got devices %llx", j->name, s->cluster->names[j->pin],
                 (unsigned long long)devices);
    }
    check_nobody_is_on(l, j, a->number, devices);
    check_not_drained(l, j, devices);
}

/* [11]: who stops for one job doesn't stop for another. */
static void check_yields(struct look *l, const struct sim_job *j, struct sim_held *h,
                         const struct job_row *row)
{
    const struct attempt_row *a = &row->attempt;
    if (h->yields_to && a->yields_to != h->yields_to) {
        sim_fail(l->s, "[11] %s gave way to job %lld, and now to job %lld", j->name,
                 (long long)h->yields_to, (long long)a->yields_to);
    }
    l->yields_to[j->idx] = h->yields_to ? 0 : a->yields_to;
    h->yields_to = a->yields_to;
    bool evicted = j->state == JOB_STOPPING && strcmp(row->cause, "preempted") == 0;
    if (evicted && !a->yields_to) {
        sim_fail(l->s, "[13] %s is stopped, and nobody waits for its devices", j->name);
    }
}

static void look_at_attempt(struct look *l, struct sim_job *j, const struct job *memory)
{
    uint64_t devices = sim_cluster_mask(l->s, memory->devices.now);
    struct sim_held *last = last_held(j);
    const struct attempt_row *a = &memory->row.attempt;
    if (!is_live(memory)) {
        if (memory->devices.now) {
            sim_fail(l->s, "%s holds devices without an attempt", j->name);
        }
        return;
    }
    if (!last || last->number != a->number) {
        take_attempt(l, j, memory, devices);
    } else if (devices != (last->devices & l->s->cluster->file)) {
        sim_fail(l->s, "[10] attempt %d of %s has devices %llx, and had %llx", a->number, j->name,
                 (unsigned long long)devices, (unsigned long long)last->devices);
    }
    check_yields(l, j, last_held(j), &memory->row);
    l->held[j->idx] = devices;
    l->holds[j->tenant] += memory->row.devices;
    l->in_file[j->tenant] += sim_cluster_count(devices);
}

/* ---- a job ---- */

static void look_at_claim(struct look *l, struct sim_job *j, const struct job *memory)
{
    uint64_t claim = sim_cluster_mask(l->s, memory->claim.now);
    bool queued = memory->row.state == JOB_QUEUED;
    l->claim[j->idx] = claim;
    l->queued[j->idx] = queued;
    if (claim && !queued) {
        sim_fail(l->s, "[17] %s is %s, and devices %llx are kept for it", j->name,
                 job_state_name(memory->row.state), (unsigned long long)claim);
    }
    if (sim_cluster_count(claim) > j->num_ranks) {
        sim_fail(l->s, "[17] %d devices are kept for %s, which needs %d", sim_cluster_count(claim),
                 j->name, j->num_ranks);
    }
}

/* [11] [24]: an eviction counts once, and costs neither restarts nor age. */
static void look_at_counts(struct look *l, struct sim_job *j, const struct job *memory)
{
    const struct job_row *row = &memory->row;
    const char *cause = row->cause;
    bool gave_way = strcmp(cause, "preempted") == 0 || strcmp(cause, "drained") == 0;
    if (row->evictions != j->evictions) {
        sim_fail(l->s, "[11] %s gave way %d times, its row says %d", j->name, j->evictions,
                 row->evictions);
    }
    if (row->state == JOB_QUEUED && gave_way &&
        (row->restarts != j->restarts || row->queued_us != j->queued_us)) {
        sim_fail(l->s,
                 "[24] %s gave way (%s): restarts %d and were %d, waits since %lld and did "
                 "since %lld",
                 j->name, cause, row->restarts, j->restarts, (long long)row->queued_us,
                 (long long)j->queued_us);
    }
    j->restarts = row->restarts;
    j->queued_us = row->queued_us;
}

static void look_at_all(struct look *l)
{
    for (size_t i = 0; i < controller_num_jobs(l->c); i++) {
        const struct job *memory = controller_job_at(l->c, i);
        struct sim_job *j = sim_client_job_named(l->s, memory->row.name);
        l->live[j->idx] = is_live(memory);
        look_at_attempt(l, j, memory);
        look_at_claim(l, j, memory);
        look_at_counts(l, j, memory);
    }
    for (int32_t i = 0; i < l->s->num_jobs; i++) {
        struct sim_held *last = last_held(&l->s->jobs[i]);
        if (last && !last->freed_us && !l->live[i]) {
            free_attempt(l->s, last);
        }
    }
}

/* ---- all together ---- */

/* [10] */
static void check_holders(struct look *l)
{
    struct sim *s = l->s;
    int64_t holders[SIM_DEVICES_MAX];
    uint64_t all = 0, kept = 0;
    controller_holders(l->c, holders);
    for (int32_t i = 0; i < s->num_jobs; i++) {
        if ((all & l->held[i]) || (kept & l->claim[i])) {
            sim_fail(s, "[10] %s holds devices %llx, or has devices %llx kept, of another job",
                     s->jobs[i].name, (unsigned long long)(all & l->held[i]),
                     (unsigned long long)(kept & l->claim[i]));
        }
        all |= l->held[i];
        kept |= l->claim[i];
    }
    for (int32_t d = 0; d < s->cluster->num_in_file; d++) {
        bool held = (all & sim_cluster_bit(s, d)) != 0;
        const struct sim_job *j = holders[d] ? sim_client_job(s, holders[d]) : NULL;
        if (held != (j != NULL) || (j && !(l->held[j->idx] & sim_cluster_bit(s, d)))) {
            sim_fail(s, "[10] device %d is held by job %lld, its attempts say otherwise", d,
                     (long long)holders[d]);
        }
    }
    for (size_t i = 0; i < s->num_nodes; i++) {
        const struct sim_node *n = s->nodes[i];
        uint64_t on = sim_node_holds(n) ? n->devices & s->cluster->file : 0;
        if (on & ~l->held[n->truth->idx]) {
            sim_fail(s, "[10] a gang of job %lld is on devices %llx, the controller says it isn't",
                     (long long)n->job, (unsigned long long)(on & ~l->held[n->truth->idx]));
        }
    }
}

/* [17]: what is kept for a job is given to no other. */
static void check_claims(struct look *l)
{
    struct sim *s = l->s;
    for (int32_t i = 0; i < s->num_jobs && !l->loose; i++) {
        const struct sim_job *j = &s->jobs[i];
        uint64_t lost = sim_admin_maybe_drained(s) & j->claim;
        for (int32_t k = 0; k < s->num_jobs && j->claim && l->queued[i] && !lost; k++) {
            if (k != i && (l->fresh[k] & j->claim) && l->claim[i]) {
                sim_fail(s, "[17] devices %llx were kept for %s, and went to %s",
                         (unsigned long long)(l->fresh[k] & j->claim), j->name, s->jobs[k].name);
            }
        }
    }
}

/* [10] [13] */
static void check_tenants(struct look *l)
{
    struct sim *s = l->s;
    struct tenants *t = controller_tenants(l->c);
    for (int32_t i = 0; i < SIM_TENANTS_MAX; i++) {
        int32_t at = tenants_find(t, sim_tenants[i]);
        int64_t held = at >= 0 ? tenants_held(t, at) : 0;
        if (held != l->holds[i]) {
            sim_fail(s, "[10] %s holds %lld devices, its attempts %lld", sim_tenants[i],
                     (long long)held, (long long)l->holds[i]);
        }
        if (at < 0) {
            continue;
        }
        int32_t num;
        double use = tenants_sched(t, controller_now_ms(l->c), &num)[at].usage;
        if (!(use >= 0 && use < 1e9)) {
            sim_fail(s, "[10] %s has used %g device-seconds", sim_tenants[i], use);
        }
        const struct tenant_quota *q = tenants_quota(t, at);
        const struct sim_quota is = {q->devices, q->max_devices, q->weight};
        if (!sim_admin_may_be(s, i, &is)) {
            sim_fail(s, "[13] the quota of %s is %lld, at most %lld: nobody asked for that",
                     sim_tenants[i], (long long)q->devices, (long long)q->max_devices);
        }
        for (int32_t k = 0; k < s->num_jobs && !l->loose; k++) {
            if (s->jobs[k].tenant == i && l->fresh[k] && q->max_devices >= 0 &&
                l->in_file[i] > q->max_devices) {
                sim_fail(s, "[13] %s starts, and %s holds %lld devices of at most %lld",
                         s->jobs[k].name, sim_tenants[i], (long long)l->in_file[i],
                         (long long)q->max_devices);
            }
        }
    }
}

/* [13]: a tenant that has no more than its quota gives nothing to another. */
static void check_victims(struct look *l)
{
    struct sim *s = l->s;
    struct tenants *t = controller_tenants(l->c);
    for (int32_t i = 0; i < s->num_jobs && !l->loose; i++) {
        const struct sim_job *j = &s->jobs[i];
        if (!l->yields_to[i] || sim_client_job(s, l->yields_to[i])->tenant == j->tenant) {
            continue;
        }
        int64_t holds = l->holds[j->tenant];
        for (int32_t k = 0; k < s->num_jobs; k++) {
            holds += s->jobs[k].tenant == j->tenant ? sim_cluster_count(l->claim[k]) : 0;
        }
        int64_t quota = tenants_quota(t, tenants_find(t, sim_tenants[j->tenant]))->devices;
        if (quota >= holds) {
            sim_fail(s,
                     "[13] %s gives way to another tenant's job %lld; its own has %lld devices "
                     "of a quota of %lld",
                     j->name, (long long)l->yields_to[i], (long long)holds, (long long)quota);
        }
    }
}

/* [18] [23] */
static void check_drains(struct look *l)
{
    struct sim *s = l->s;
    const struct topology *t = controller_topology(l->c);
    uint64_t surely = sim_admin_drained(s, false) | s->cluster->missing;
    uint64_t maybe = sim_admin_maybe_drained(s) | s->cluster->missing;
    uint64_t hard = sim_admin_drained(s, true);
    for (int32_t d = 0; d < s->cluster->num_in_file; d++) {
        bool drained = drains_flags(t->drains)[d];
        uint64_t bit = sim_cluster_bit(s, d);
        if ((drained && !(maybe & bit)) || (!drained && (surely & bit))) {
            sim_fail(s, "[18] device %d is %s, and should %sbe drained", d,
                     drained ? "drained" : "not drained", drained ? "not " : "");
        }
    }
    for (size_t i = 0; i < controller_num_active(l->c); i++) {
        const struct job *j = controller_active_at(l->c, i);
        const struct sim_job *truth = sim_client_job_named(s, j->row.name);
        bool runs = j->row.state == JOB_RUNNING || j->row.state == JOB_STARTING;
        const struct sim_held *h = last_held(truth);
        if (runs && h && h->version == s->cluster->version && (l->held[truth->idx] & hard)) {
            sim_fail(s, "[18] %s runs on devices %llx, which are drained", truth->name,
                     (unsigned long long)(l->held[truth->idx] & hard));
        }
    }
}

static void look(struct sim *s, bool loose, struct look *l)
{
    *l = (struct look){.s = s, .c = s->server->app.controller, .loose = loose};
    look_at_all(l);
    check_holders(l);
    check_claims(l);
    check_tenants(l);
    check_victims(l);
    check_drains(l);
    for (int32_t i = 0; i < s->num_jobs; i++) {
        s->seen.claims += !s->jobs[i].claim && l->claim[i];
        s->jobs[i].claim = l->claim[i];
    }
}

void sim_check_devices(struct sim *s)
{
    struct look l;
    look(s, false, &l);
}

/* [10] [17]: the same figures after a start. Where the last step may have been committed without
 * anybody having looked, it may be another one. */
void sim_check_figures(struct sim *s)
{
    struct look l;
    uint64_t claims[SIM_JOBS_MAX];
    bool cut = s->server->unchecked;
    for (int32_t i = 0; i < s->num_jobs; i++) {
        claims[i] = s->jobs[i].claim;
    }
    look(s, true, &l);
    for (int32_t i = 0; i < s->num_jobs && !cut; i++) {
        const struct sim_job *j = &s->jobs[i];
        if (l.fresh[i]) {
            sim_fail(s, "[10] after a start %s has an attempt that it had not", j->name);
        }
        if (l.claim[i] != (claims[i] & s->cluster->file)) {
            sim_fail(s, "[17] after a start devices %llx are kept for %s; before, it was %llx",
                     (unsigned long long)l.claim[i], j->name, (unsigned long long)claims[i]);
        }
    }
}
