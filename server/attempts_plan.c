/* Choosing devices, the plan and the checkpoint of the next attempt, and launching it. */
#include "server/attempts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/plan.h"
#include "plan/spec_check.h"
#include "proto/text.h"
#include "server/attempts_private.h"
#include "server/job.h"
#include "server/msg.h"
#include "server/run_as.h"

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
                            .fabric = t->plan_fabric,
                            .host_cores = t->host.cores,
                            .gpu_node = t->gpu_node,
                            .num_gpus_gone = topology_num_gpus_gone(t),
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

/* Checked when it came, by a version that may have taken what this one doesn't. */
static int check_spec(const struct job *j, struct error *err)
{
    JobSpec *spec = (JobSpec *)text_clone(&j->spec->base);
    int rc = spec_check(spec, err);
    msg_free(spec);
    return rc == 0 ? 0 : error_wrap(err, "this version doesn't take its spec");
}

int attempts_start(struct controller *c, struct job *j, const int32_t *devices, int32_t num,
                   int64_t backfills, bool borrowed, struct error *err)
{
    Plan *plan;
    struct error why = {0};
    ASSERT(num == j->row.devices);
    const char *user = run_as_user(controller_about(c)->run_as, j->row.tenant);
    if (!user) {
        return controller_move(c, j, JOB_FAILED, "no-user", RUN_AS_NOBODY, "scheduler", err);
    }
    if (check_spec(j, &why) != 0 ||
        attempts_plan(c, j->spec, j->facts, devices, num, &plan, &why) != 0) {
        return controller_move(c, j, JOB_FAILED, "no-plan", why.text, "scheduler", err);
    }
    controller_touch(c, j);
    struct attempt_row a = next_attempt(c, j, num);
    a.backfills = backfills;
    a.borrowed = borrowed;
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
