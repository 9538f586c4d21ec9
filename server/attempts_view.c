#include "server/attempts_view.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/placement.h"
#include "server/attempts.h"
#include "server/dependencies.h"
#include "server/msg.h"
#include "server/tenants.h"

/* What a stop and a new start cost a gang, however lately it has saved. */
#define RESTART_COST_MS 60000

/* What is expected of a gang that has been told to stop, and of one that has ended. */
#define STOPS_MS 5000
#define LEAVES_MS 1000
/* What should be gone by now, and isn't, is expected after this: a pass is due then. */
#define OVERDUE_MS 1000

const char *attempts_priority_words(int32_t priority, char out[16])
{
    switch (priority) {
    case 250:
        return "low";
    case 500:
        return "normal";
    case 750:
        return "high";
    default:
        snprintf(out, 16, "%d", priority);
        return out;
    }
}

static struct sched_options options_of(const struct controller *c)
{
    const SchedulerConfig *s = controller_scheduler(c);
    return (struct sched_options){.preemption = s->preemption,
                                  .backfill = s->backfill,
                                  .max_evictions = s->max_evictions,
                                  .min_run_ms = 1000 * (int64_t)s->min_run_s,
                                  .grace_ms = 1000 * (int64_t)s->grace_s + ATTEMPTS_KILL_MS,
                                  .aging_per_h = s->aging_per_h,
                                  .aging_max = s->aging_max,
                                  .fair_share = s->fair_share};
}

/* ---- jobs that wait ---- */

/* Memory of a rank matters where devices differ in theirs. Known from submit on; after a restart of
 * the controller found out when it is needed. */
static int64_t mem_of(struct controller *c, struct job *j)
{
    Plan *plan;
    struct error why;
    if (j->mem_bytes < 0 && j->spec && j->facts) {
        j->mem_bytes = 0; /* not known */
        if (attempts_plan(c, j->spec, j->facts, NULL, 0, &plan, &why) == 0) {
            j->mem_bytes = plan->memory ? plan->memory->total_bytes : 0;
            msg_free(plan);
        }
    }
    return j->mem_bytes > 0 ? j->mem_bytes : 0;
}

static bool differ_in_memory(const struct fabric *f)
{
    for (int32_t i = 1; i < f->num_devices; i++) {
        if (f->devices[i].mem_bytes != f->devices[0].mem_bytes) {
            return true;
        }
    }
    return false;
}

void attempts_view_restrict(const struct topology *t, struct place_request *r)
{
    /* The backend was chosen when the job came; a job of an older version has none. */
    r->cpu_only = !r->gpu_only;
    r->one_node = r->gpu_only; /* all that a launcher reaches is one host's */
    if (r->gpu_only && t->gpu_node) {
        r->nodes = &t->gpu_node; /* others are refused at submit */
        r->num_nodes = 1;
    }
}

static struct place_request place_of(struct controller *c, struct job *j, bool with_memory)
{
    struct place_request r = {.data = 0};
    const char *backend = j->spec && j->spec->resources ? j->spec->resources->backend : NULL;
    if (!j->spec || !placement_request(&r, j->spec, backend, with_memory ? mem_of(c, j) : 0) ||
        (int64_t)r.data * r.pipeline * r.context * r.tensor != j->row.devices) {
        r = (struct place_request){.data = j->row.devices,
                                   .pipeline = 1,
                                   .context = 1,
                                   .tensor = 1,
                                   .expert = 1,
                                   .type = "any"};
    }
    attempts_view_restrict(controller_topology(c), &r);
    return r;
}

static int64_t limit_ms_of(const struct controller *c, const struct job *j)
{
    int64_t limit_s = j->spec ? j->spec->time_limit_s : 0;
    return limit_s > 0
               ? 1000 * (limit_s + (int64_t)controller_scheduler(c)->grace_s) + ATTEMPTS_KILL_MS
               : 0;
}

static int is_ready(struct controller *c, struct job *j, bool *out, struct error *err)
{
    const struct attempt_row *a = &j->row.attempt;
    struct dependency dependency = {.state = DEPENDENCY_MET};
    *out = j->spec && controller_now_ms(c) >= j->not_before_ms &&
           (a->number == 0 || a->condition == ATTEMPT_GONE);
    if (*out && j->spec->n_after && dependencies_look(c, j, &dependency, err) != 0) {
        return -1;
    }
    *out &= dependency.state == DEPENDENCY_MET;
    return 0;
}

static int add_job(struct controller *c, struct job *j, const char *tenant, bool with_memory,
                   struct attempts_view *v, struct error *err)
{
    bool ready;
    if (is_ready(c, j, &ready, err) != 0) {
        return -1;
    }
    size_t i = v->view.num_jobs++;
    v->job_of[i] = j;
    v->jobs[i] = (struct sched_job){.id = j->row.id,
                                    .tenant = j->tenant,
                                    .priority = j->row.priority,
                                    .num_devices = j->row.devices,
                                    .place = place_of(c, j, with_memory),
                                    .waits_since_ms = j->queued_ms,
                                    .limit_ms = limit_ms_of(c, j),
                                    .evictions = j->row.evictions,
                                    .ready = ready,
                                    .hidden = tenant && strcmp(tenant, j->row.tenant) != 0,
                                    .claim = j->claim.now};
    return 0;
}

/* ---- attempts that hold devices ---- */

static int64_t later(int64_t ms, int64_t now_ms)
{
    return ms > now_ms ? ms : now_ms + OVERDUE_MS;
}

/* When it is gone for sure. */
static int64_t hard_end_of(const struct controller *c, const struct job *j)
{
    int64_t grace_ms = 1000 * (int64_t)controller_scheduler(c)->grace_s + ATTEMPTS_KILL_MS;
    /* A pause has the time that it needs, up to the limit. */
    bool pauses = j->row.state == JOB_STOPPING &&
                  !supervisor_has_grace(j->row.target, j->row.cause, j->row.attempt.yields_to != 0);
    if (*j->stuck) {
        return SCHED_NEVER;
    }
    if (pauses || j->row.state == JOB_RUNNING || j->row.state == JOB_STARTING) {
        int64_t limit_ms = limit_ms_of(c, j);
        return limit_ms ? j->attempt_ms + limit_ms : SCHED_NEVER;
    }
    return j->moved_ms + (j->row.state == JOB_STOPPING ? grace_ms : SUPERVISOR_LEAVE_MS);
}

static int64_t end_of(const struct controller *c, const struct job *j, int64_t hard_end_ms)
{
    int64_t now_ms = controller_now_ms(c), end_ms = SCHED_NEVER;
    int64_t left = j->row.total_steps - j->row.step;
    if (*j->stuck) {
        return SCHED_NEVER;
    }
    if (j->row.state == JOB_STOPPING) {
        end_ms = later(j->moved_ms + STOPS_MS, now_ms);
    } else if (j->row.state != JOB_RUNNING && j->row.state != JOB_STARTING) {
        end_ms = later(j->since_ms + LEAVES_MS, now_ms);
    } else if (j->pace.step_ms > 0 && (double)left * j->pace.step_ms < 1e15) {
        end_ms = now_ms + (int64_t)((double)left * j->pace.step_ms) + LEAVES_MS;
    }
    return end_ms < hard_end_ms ? end_ms : hard_end_ms;
}

static void add_run(const struct controller *c, struct job *j, bool hidden, struct attempts_view *v)
{
    const struct attempt_row *a = &j->row.attempt;
    int64_t now_ms = controller_now_ms(c);
    int64_t hard_end_ms = hard_end_of(c, j);
    size_t i = v->view.num_runs++;
    hard_end_ms = hard_end_ms == SCHED_NEVER ? SCHED_NEVER : later(hard_end_ms, now_ms);
    v->runs[i] = (struct sched_run){
        .id = j->row.id,
        .tenant = j->tenant,
        .priority = j->row.priority,
        .devices = j->devices.now,
        .started_ms = j->attempt_ms,
        .end_ms = end_of(c, j, hard_end_ms),
        .hard_end_ms = hard_end_ms,
        .lost_ms = RESTART_COST_MS + (now_ms > j->saved_ms ? now_ms - j->saved_ms : 0),
        .evictions = j->row.evictions,
        .can_stop = j->row.state == JOB_RUNNING && a->condition == ATTEMPT_STARTED,
        .stopping = j->row.state != JOB_RUNNING && j->row.state != JOB_STARTING,
        .yields_to = a->yields_to,
        .backfills = a->backfills,
        .is_stuck = *j->stuck != 0,
        .hidden = hidden,
    };
}

static int by_id(const void *a, const void *b)
{
    const struct job *const *x = a, *const *y = b;
    return ((*x)->row.id > (*y)->row.id) - ((*x)->row.id < (*y)->row.id);
}

/* In an order that doesn't come from what happened before. */
static void add_runs(struct controller *c, const char *tenant, struct attempts_view *v)
{
    size_t num = 0;
    for (size_t i = 0; i < controller_num_active(c); i++) {
        struct job *j = controller_active_at(c, i);
        if (j->devices.now) {
            v->run_of[num++] = j;
        }
    }
    qsort(v->run_of, num, sizeof(struct job *), by_id);
    for (size_t i = 0; i < num; i++) {
        struct job *j = v->run_of[i];
        add_run(c, j, tenant && strcmp(tenant, j->row.tenant) != 0, v);
    }
}

/* ---- all of it ---- */

int attempts_view_make(struct controller *c, const char *tenant, struct attempts_view *v,
                       struct error *err)
{
    size_t all = controller_num_jobs(c), active = controller_num_active(c);
    const struct topology *t = controller_topology(c);
    bool with_memory = differ_in_memory(t->fabric);
    memset(v, 0, sizeof *v);
    v->options = options_of(c);
    v->jobs = malloc((all + 1) * sizeof *v->jobs);
    v->job_of = malloc((all + 1) * sizeof *v->job_of);
    v->runs = malloc((active + 1) * sizeof *v->runs);
    v->run_of = malloc((active + 1) * sizeof *v->run_of);
    ASSERT(v->jobs && v->job_of && v->runs && v->run_of);
    for (size_t i = 0; i < all; i++) {
        struct job *j = controller_job_at(c, i);
        if (j->row.state == JOB_QUEUED && add_job(c, j, tenant, with_memory, v, err) != 0) {
            attempts_view_free(v);
            return -1;
        }
    }
    add_runs(c, tenant, v);
    v->view.fabric = t->fabric;
    v->view.drained = drains_flags(t->drains);
    v->view.options = &v->options;
    v->view.now_ms = controller_now_ms(c);
    v->view.tenants = tenants_sched(controller_tenants(c), v->view.now_ms, &v->view.num_tenants);
    v->view.jobs = v->jobs;
    v->view.runs = v->runs;
    return 0;
}

void attempts_view_free(struct attempts_view *v)
{
    free(v->jobs);
    free(v->job_of);
    free(v->runs);
    free(v->run_of);
    memset(v, 0, sizeof *v);
}
