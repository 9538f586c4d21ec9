/* Choosing devices, the plan and the checkpoint of the next attempt, and launching it. */
#include "server/attempts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/plan.h"
#include "server/attempts_private.h"
#include "server/dependencies.h"
#include "server/job.h"
#include "server/msg.h"
#include "server/run_as.h"
#include "server/scheduler.h"

static struct sched_job as_sched_job(const struct controller *c, const struct job *j)
{
    struct sched_job s = {
        .id = j->row.id, .priority = j->row.priority, .devices = j->row.devices, .type = "any"};
    const ResourcesSpec *r = j->spec ? j->spec->resources : NULL;
    if (r) {
        s.type = r->type ? r->type : "any";
        s.nodes = (const char *const *)r->nodes;
        s.num_nodes = r->n_nodes;
    }
    const struct attempt_row *a = &j->row.attempt;
    s.ready = j->spec && controller_now_ms(c) >= j->not_before_ms &&
              (a->number == 0 || a->condition == ATTEMPT_GONE);
    return s;
}

/* The queue and the devices as the scheduler sees them. *jobs and *who are freed by the caller. */
static size_t read_queue(struct controller *c, struct sched_job **jobs, struct job ***who)
{
    size_t num = 0, all = controller_num_jobs(c);
    *jobs = malloc((all + 1) * sizeof **jobs);
    *who = malloc((all + 1) * sizeof **who);
    ASSERT(*jobs && *who);
    for (size_t i = 0; i < all; i++) {
        struct job *j = controller_job_at(c, i);
        if (j->row.state == JOB_QUEUED) {
            enum dependency dependency = DEPENDENCY_WAITS;
            char words[128];
            (*who)[num] = j;
            (*jobs)[num] = as_sched_job(c, j);
            (*jobs)[num].ready &=
                dependencies_look(c, j, &dependency, words, sizeof words, NULL) == 0 &&
                dependency == DEPENDENCY_MET;
            num++;
        }
    }
    return num;
}

/* All devices, with who holds them; *num_free of them can be had. The caller frees it. */
static struct sched_device *read_devices(struct controller *c, int32_t *num_free)
{
    const struct topology *t = controller_topology(c);
    const struct fabric *f = t->fabric;
    const bool *drained = drains_flags(t->drains);
    struct sched_device *devices = calloc((size_t)f->num_devices + 1, sizeof *devices);
    int64_t *holders = calloc((size_t)f->num_devices + 1, sizeof *holders);
    ASSERT(devices && holders);
    controller_holders(c, holders);
    *num_free = 0;
    for (int32_t i = 0; i < f->num_devices; i++) {
        const struct fabric_device *d = &f->devices[i];
        /* No launcher reaches devices of other types. */
        devices[i] = (struct sched_device){.node = f->nodes[d->node].name,
                                           .type = f->types[d->type].name,
                                           .job_id = holders[i],
                                           .drained = drained[i] || !f->types[d->type].is_cpu};
        *num_free += holders[i] == 0 && !devices[i].drained;
    }
    free(holders);
    return devices;
}

void attempts_why(struct controller *c, const struct job *j, const char *tenant, char *out,
                  size_t size)
{
    const struct attempt_row *a = &j->row.attempt;
    int64_t wait_ms = j->not_before_ms - controller_now_ms(c);
    if (wait_ms > 0) {
        snprintf(out, size, "waits %.1f s before restart %d", (double)wait_ms / 1000,
                 j->row.restarts);
        return;
    }
    if (a->number && a->condition != ATTEMPT_GONE) {
        snprintf(out, size, "waits until the processes of attempt %d are gone%s%s", a->number,
                 *j->stuck ? ": " : "", j->stuck);
        return;
    }
    if (controller_no_room(c, out, size)) {
        return;
    }
    enum dependency dependency;
    struct job *mine = controller_job(c, j->row.id);
    if (mine && dependencies_look(c, mine, &dependency, out, size, NULL) == 0 &&
        dependency != DEPENDENCY_MET) {
        return;
    }
    struct sched_job *jobs;
    struct job **who;
    int32_t num_free, num_devices = controller_topology(c)->fabric->num_devices;
    size_t num = read_queue(c, &jobs, &who);
    struct sched_device *devices = read_devices(c, &num_free);
    for (int32_t i = 0; i < num_devices; i++) {
        devices[i].job_id = controller_shown(c, devices[i].job_id, tenant);
    }
    for (size_t i = 0; i < num; i++) {
        jobs[i].hidden = tenant && strcmp(who[i]->row.tenant, tenant) != 0;
    }
    snprintf(out, size, "is not in the queue");
    for (size_t i = 0; i < num; i++) {
        if (who[i] == j) {
            scheduler_why(jobs, num, devices, num_devices, i, out, size);
        }
    }
    free(devices);
    free(jobs);
    free(who);
}

int attempts_plan(struct controller *c, const JobSpec *spec, const ProbeReply *facts,
                  const int32_t *devices, int32_t num_devices, Plan **out, struct error *err)
{
    const struct topology *t = controller_topology(c);
    RankPlacement **places = devices ? topology_places(t, devices, num_devices) : NULL;
    struct plan_input in = {.spec = spec,
                            .model = facts->model,
                            .train = (const DataFacts *const *)facts->sources,
                            .num_train = facts->n_sources,
                            .cluster = t->cluster,
                            .placement = (const RankPlacement *const *)places};
    int rc = plan_build(&in, out, err);
    topology_free_places(places, num_devices);
    return rc;
}

struct newest {
    Checkpoint c;
    char dir[96];
    bool found;
};

static bool take_complete(void *arg, const Checkpoint *c)
{
    struct newest *n = arg;
    if (c->state != CHECKPOINT_COMPLETE) {
        return true;
    }
    n->c = *c;
    snprintf(n->dir, sizeof n->dir, "%s", c->path);
    n->found = true;
    return false;
}

/* The newest checkpoint that is still there as a whole; one that isn't is marked damaged. dir: ""
 * = none. */
static int find_checkpoint(struct controller *c, struct job *j, char *dir, size_t size,
                           int64_t *step, struct error *err)
{
    const struct world *w = controller_world(c);
    *dir = 0;
    *step = 0;
    for (;;) {
        struct newest n = {0};
        if (store_checkpoint_list(controller_store(c), j->row.id, -1, 0, INT32_MAX, take_complete,
                                  &n, err) != 0) {
            return -1;
        }
        if (!n.found) {
            return 0;
        }
        char folder[4096], path[4400];
        bool damaged = false;
        if (job_dir(folder, sizeof folder, controller_about(c)->data_dir, j->row.id)) {
            snprintf(path, sizeof path, "%s/%s/DAMAGED", folder, n.dir);
            damaged = w->exists(w->ctx, path);
            snprintf(path, sizeof path, "%s/%s/COMPLETE", folder, n.dir);
            if (w->exists(w->ctx, path) && !damaged) {
                snprintf(dir, size, "%s", n.dir);
                *step = n.c.step;
                return 0;
            }
        }
        if (store_checkpoint_set_state(controller_store(c), n.c.id, CHECKPOINT_DAMAGED, err) != 0 ||
            controller_event(c, j, "checkpoint", "tandemd", n.c.step, err,
                             "the checkpoint of step %lld is %s (%s)", (long long)n.c.step,
                             damaged ? "damaged" : "not there any more", n.dir) != 0) {
            return -1;
        }
    }
}

static LaunchTicket *make_ticket(struct controller *c, const struct job *j, const char *token)
{
    char dir[4096];
    LaunchTicket *t = msg_new(&launch_ticket__descriptor);
    msg_text(&t->server, controller_about(c)->worker_addr);
    MSG_SET(t, job_id, j->row.id);
    MSG_SET(t, attempt, j->row.attempt.number);
    msg_text(&t->token, token);
    if (job_dir(dir, sizeof dir, controller_about(c)->data_dir, j->row.id)) {
        msg_text(&t->job_dir, dir);
    }
    msg_text(&t->node, j->row.attempt.node);
    msg_text(&t->bin_dir, controller_about(c)->bin_dir);
    msg_text(&t->job_name, j->row.name);
    return t;
}

/* The row of the next attempt, on devices. */
static struct attempt_row next_attempt(const struct controller *c, const struct job *j,
                                       int32_t num_devices)
{
    int64_t now_us = controller_wall_us(c), since_us = j->row.waits_us;
    struct attempt_row a = {.number = j->row.attempt.number + 1,
                            .condition = ATTEMPT_PLANNED,
                            .num_devices = num_devices,
                            .created_us = now_us,
                            .queued_us = j->row.queued_us,
                            .wait_us = since_us && now_us > since_us ? now_us - since_us : 0};
    snprintf(a.node, sizeof a.node, "%s", controller_about(c)->topology->host.node);
    return a;
}

static int insert_attempt(struct controller *c, const struct job *j, const struct attempt_row *a,
                          const struct device_set *devices, const Plan *plan, struct error *err)
{
    struct buf names = {0};
    size_t len = plan__get_packed_size(plan);
    uint8_t *packed = malloc(len);
    ASSERT(packed);
    plan__pack(plan, packed);
    fabric_print_set(controller_about(c)->topology->fabric, devices, &names);
    int rc = store_attempt_insert(controller_store(c), j->row.id, a, names.data, packed, len, err);
    buf_free(&names);
    free(packed);
    return rc;
}

static void launch(struct controller *c, const struct job *j, const char *user, const char *token)
{
    struct launch_mail *m =
        launch_mail_new(LAUNCH_START, j->row.id, j->row.attempt.number, attempts_on_launched);
    m->ticket = make_ticket(c, j, token);
    snprintf(m->handle.user, sizeof m->handle.user, "%s", user);
    controller_launch(c, m);
}

/* Commits the intent to run j on devices[num], by rank; the launch goes out behind the commit. */
static int start_attempt(struct controller *c, struct job *j, const int32_t *devices, int32_t num,
                         struct error *err)
{
    Plan *plan;
    struct error why = {0};
    ASSERT(num == j->row.devices);
    const char *user = run_as_user(controller_about(c)->run_as, j->row.tenant);
    if (!user) {
        return controller_move(c, j, JOB_FAILED, "no-user", RUN_AS_NOBODY, "scheduler", err);
    }
    if (attempts_plan(c, j->spec, j->facts, devices, num, &plan, &why) != 0) {
        return controller_move(c, j, JOB_FAILED, "no-plan", why.text, "scheduler", err);
    }
    controller_touch(c, j);
    struct attempt_row a = next_attempt(c, j, num);
    struct device_set *set = device_set_new(devices, num);
    const struct world *w = controller_world(c);
    char token[AUTH_TOKEN_SIZE];
    int64_t total_steps = plan->total_steps;
    int rc = -1;
    /* The end of the last attempt may be of this batch, whose end writes the new one only. */
    bool is_kept = j->row.attempt.number == 0 ||
                   store_attempt_update(controller_store(c), j->row.id, &j->row.attempt, err) == 0;
    if (is_kept &&
        find_checkpoint(c, j, a.resume_dir, sizeof a.resume_dir, &a.start_step, err) == 0 &&
        w->make_token(w->ctx, token, a.token_sha256, err) == 0) {
        rc = insert_attempt(c, j, &a, set, plan, err);
    }
    msg_free(plan);
    if (rc != 0) {
        device_set_free(set);
        return -1;
    }
    j->row.attempt = a;
    controller_set_devices(c, j, set);
    controller_set_claim(c, j, NULL);
    j->row.total_steps = total_steps;
    j->row.step = a.start_step;
    j->row.started_us = j->row.started_us ? j->row.started_us : controller_wall_us(c);
    j->check_pending = j->kill_pending = j->adopted = j->began_before = false;
    j->began_ms = controller_now_ms(c);
    tenants_hold(controller_tenants(c), j->tenant, j->row.devices, j->began_ms);
    j->stuck[0] = 0;
    j->next_kill_ms = 0;
    /* Before the commit: harmless, for nobody has the token yet. */
    w->add_token(w->ctx, j->row.id, a.number, a.token_sha256);
    launch(c, j, user, token);
    char text[128] = "";
    if (a.start_step) {
        snprintf(text, sizeof text, "from the checkpoint of step %lld", (long long)a.start_step);
    }
    return controller_move(c, j, JOB_STARTING, "scheduled", text, "scheduler", err);
}

/* A job whose dependency failed fails, too; those that wait for it come later in the list. */
static int fail_dependents(struct controller *c, struct error *err)
{
    for (size_t i = 0; i < controller_num_jobs(c); i++) {
        struct job *j = controller_job_at(c, i);
        enum dependency dependency = DEPENDENCY_MET;
        char words[128];
        if (j->row.state == JOB_QUEUED &&
            dependencies_look(c, j, &dependency, words, sizeof words, err) != 0) {
            return -1;
        }
        if (dependency == DEPENDENCY_FAILED &&
            controller_move(c, j, JOB_FAILED, "dependency", words, "scheduler", err) != 0) {
            return -1;
        }
    }
    return 0;
}

int attempts_schedule(struct controller *c, struct error *err)
{
    if (fail_dependents(c, err) != 0) {
        return -1;
    }
    int32_t num_free;
    struct sched_device *devices = read_devices(c, &num_free);
    if (num_free == 0) {
        free(devices);
        return 0;
    }
    struct sched_job *jobs;
    struct job **who;
    size_t num = read_queue(c, &jobs, &who);
    struct sched_start *starts = malloc((num + 1) * sizeof *starts);
    ASSERT(starts);
    size_t num_starts =
        scheduler_run(jobs, num, devices, controller_topology(c)->fabric->num_devices, starts);
    int rc = 0;
    for (size_t i = 0; i < num_starts; i++) {
        const struct device_set *set = starts[i].devices;
        rc = rc == 0 ? start_attempt(c, who[starts[i].job_idx], set->device, set->num, err) : rc;
        device_set_free(starts[i].devices);
    }
    free(starts);
    free(jobs);
    free(who);
    free(devices);
    return rc;
}
