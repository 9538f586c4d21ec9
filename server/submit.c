#include "server/submit.h"

#include <math.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/cluster.h"
#include "plan/plan.h"
#include "plan/spec_check.h"
#include "plan/step_time.h"
#include "proto/text.h"
#include "server/allowed.h"
#include "server/attempts.h"
#include "server/audit.h"
#include "server/controller.h"
#include "server/data_paths.h"
#include "server/dependencies.h"
#include "server/msg.h"
#include "server/run_as.h"
#include "server/submit_notes.h"

static ProbeRequest *probe_request(const struct controller *c, const JobSpec *spec)
{
    ProbeRequest *r = msg_new(&probe_request__descriptor);
    r->roots = allowed_for(controller_about(c)->allowed, spec->tenant);
    r->private_dir = allowed_private(controller_about(c)->allowed);
    const char *user = run_as_user(controller_about(c)->run_as, spec->tenant);
    if (user && *user) {
        msg_text(&r->run_as, user);
    }
    if (spec->model) {
        r->model = (ModelSpec *)text_clone(&spec->model->base);
    }
    if (spec->data) {
        for (size_t i = 0; i < spec->data->n_train; i++) {
            msg_push(&r->sources, &r->n_sources, text_clone(&spec->data->train[i]->base));
        }
        r->tokenizer = NULL;
        msg_text(&r->tokenizer, spec->data->tokenizer);
    }
    return r;
}

/* What the spec says about where it may run, against what there is. */
static int check_nodes(struct controller *c, const JobSpec *spec, struct error *err)
{
    const struct topology *t = controller_topology(c);
    for (size_t i = 0; spec->resources && i < spec->resources->n_nodes; i++) {
        struct error why;
        if (topology_find_node(t, spec->resources->nodes[i], &why) < 0) {
            return error_set(err, ERR_INVALID_ARGUMENT, "resources.nodes: %s", why.text);
        }
    }
    return 0;
}

static int check_paths(struct controller *c, const JobSpec *spec, const struct caller *who,
                       struct error *err)
{
    return data_paths_check(controller_store(c), controller_about(c)->data_dir, spec, who, err);
}

static int check_tenant(const struct controller *c, JobSpec *spec, const struct caller *who,
                        struct error *err)
{
    if (!spec->tenant || !*spec->tenant) {
        free(spec->tenant);
        spec->tenant = NULL;
        msg_text(&spec->tenant, who->tenant);
    } else if (strcmp(spec->tenant, who->tenant) != 0) {
        return error_set(err, ERR_PERMISSION_DENIED, "tenant: you are in %s, not in \"%s\"",
                         who->tenant, spec->tenant);
    }
    if (!run_as_user(controller_about(c)->run_as, spec->tenant)) {
        return error_set(err, ERR_FAILED_PRECONDITION, "tenant %s: " RUN_AS_NOBODY, spec->tenant);
    }
    return 0;
}

static void take_row(struct job_row *row, const JobSpec *spec, const Plan *plan,
                     const struct caller *who, int64_t now_us)
{
    *row = (struct job_row){.state = spec->hold ? JOB_HELD : JOB_QUEUED,
                            .priority = spec_priority(spec),
                            .devices = (int32_t)plan->mesh->num_ranks,
                            .total_steps = plan->total_steps,
                            .created_us = now_us,
                            .queued_us = now_us,
                            .waits_us = now_us,
                            .loss = (double)NAN,
                            .step_ms = (double)NAN,
                            .tokens_per_s = (double)NAN,
                            .mfu = (double)NAN};
    snprintf(row->name, sizeof row->name, "%s", spec->name);
    snprintf(row->tenant, sizeof row->tenant, "%s", spec->tenant);
    snprintf(row->user, sizeof row->user, "%s", who->user);
    snprintf(row->cause, sizeof row->cause, spec->hold ? "held" : "new");
}

/* Of the spec as it came, before anything is filled in: what a repeated request has the same. */
static void hash_spec(const JobSpec *spec, uint8_t out[HASH_BYTES])
{
    size_t len = job_spec__get_packed_size(spec);
    uint8_t *packed = malloc(len + 1);
    ASSERT(packed);
    job_spec__pack(spec, packed);
    SHA256(packed, len, out);
    free(packed);
}

/* The job that the key stands for already: 1, and the reply is on its way. Another spec under the
 * key is refused: the caller would take the first job for that one. */
static int reply_by_key(struct controller *c, struct call *call, const SubmitRequest *r,
                        const uint8_t spec_sha256[HASH_BYTES], struct error *err)
{
    if (!r->idempotency_key || !*r->idempotency_key || r->dry_run) {
        return 0;
    }
    const struct caller *who = call_caller(call);
    int64_t id;
    bool same;
    int rc = store_key_get(controller_store(c), who->tenant, who->user, r->idempotency_key,
                           spec_sha256, &id, &same, err);
    if (rc != 1) {
        return rc;
    }
    if (!same) {
        return error_set(err, ERR_ALREADY_EXISTS,
                         "idempotency_key: job %lld was submitted with it, and with another spec",
                         (long long)id);
    }
    char ref[24];
    struct job *j;
    snprintf(ref, sizeof ref, "%lld", (long long)id);
    if (controller_find(c, ref, who, &j, err) != 0) {
        return -1;
    }
    SubmitReply *reply = msg_new(&submit_reply__descriptor);
    reply->job = controller_message(c, j, true);
    controller_reply(c, call, reply);
    return 1;
}

/* Counted only where it can matter: a long queue is looked through. Paused jobs wait, too: for
 * their users. */
int submit_check_queue(struct controller *c, const char *tenant, struct error *err)
{
    int32_t max = controller_about(c)->tenant_queued_jobs;
    size_t all = controller_num_jobs(c), num = 0;
    if (max <= 0 || all < (size_t)max) {
        return 0;
    }
    for (size_t i = 0; i < all; i++) {
        const struct job_row *row = &controller_job_at(c, i)->row;
        num += (row->state == JOB_QUEUED || row->state == JOB_HELD || row->state == JOB_PAUSED) &&
               strcmp(row->tenant, tenant) == 0;
    }
    if (num < (size_t)max) {
        return 0;
    }
    return error_set(err, ERR_RESOURCE_EXHAUSTED,
                     "tenant %s has %d jobs waiting, as many as may be; try again when one has "
                     "started",
                     tenant, max);
}

static int store_new(struct controller *c, struct probe_mail *m, JobSpec *spec, const Plan *plan,
                     struct job **out, struct error *err)
{
    const SubmitRequest *r = (const SubmitRequest *)m->mail.message;
    const struct caller *who = call_caller(m->mail.call);
    struct job_row row;
    take_row(&row, spec, plan, who, controller_wall_us(c));
    struct job *j;
    /* Looking at model and data may have taken long. */
    const struct world *world = &controller_about(c)->world;
    if ((world->still_allowed && world->still_allowed(world->ctx, who, METHOD_MEMBER, err) != 0) ||
        submit_check_queue(c, who->tenant, err) != 0) {
        msg_free(spec);
        return -1;
    }
    if (controller_add(c, &row, spec, (ProbeReply *)text_clone(&m->reply->base), &j, err) != 0) {
        return -1;
    }
    j->mem_bytes = plan->memory ? plan->memory->total_bytes : 0;
    if (r->idempotency_key && *r->idempotency_key &&
        store_key_insert(controller_store(c), who->tenant, who->user, r->idempotency_key,
                         m->spec_sha256, j->row.id, err) != 0) {
        return -1;
    }
    if (audit_change(c, who, err, "job %lld", (long long)j->row.id) != 0) {
        return -1;
    }
    controller_schedule(c);
    *out = j;
    return controller_event(c, j, "submitted", who->user, 0, err, "%s", "");
}

/* Paths outside of the tenant's roots are a matter of rights. */
static int fail_probe(struct controller *c, const struct probe_mail *m, struct error *err)
{
    const struct world *world = &controller_about(c)->world;
    if (m->error.code == ERR_PERMISSION_DENIED && world->refused) {
        world->refused(world->ctx, call_caller(m->mail.call));
    }
    *err = m->error;
    return -1;
}

/* On the probe thread: on a large cluster a plan takes many milliseconds, and whoever asks for dry
 * runs makes many. */
static int submit_work(struct probe_mail *m)
{
    const struct topology *t = m->topology;
    const struct plan_input in = {.spec = ((const SubmitRequest *)m->mail.message)->spec,
                                  .model = m->reply->model,
                                  .train = (const DataFacts *const *)m->reply->sources,
                                  .num_train = m->reply->n_sources,
                                  .cluster = t->cluster,
                                  .fabric = t->plan_fabric,
                                  .host_cores = t->host.cores,
                                  .gpu_node = t->gpu_node,
                                  .num_gpus_gone = m->num_gpus_gone};
    Plan *plan;
    if (plan_build(&in, &plan, &m->error) != 0) {
        return -1;
    }
    m->result = &plan->base;
    return 0;
}

/* The probe has answered. */
static int on_probed(void *controller, struct mail *base, struct error *err)
{
    struct controller *c = controller;
    struct probe_mail *m = (struct probe_mail *)base;
    const SubmitRequest *r = (const SubmitRequest *)base->message;
    /* GPUs came or went meanwhile: planned again below. */
    if (m->result && m->num_gpus_gone != topology_num_gpus_gone(controller_topology(c))) {
        msg_free(m->result);
        m->result = NULL;
    }
    if (!m->reply) {
        return fail_probe(c, m, err);
    }
    /* The same key may have come twice at once. */
    int rc = reply_by_key(c, base->call, r, m->spec_sha256, err);
    if (rc != 0) {
        return rc < 0 ? -1 : 0;
    }
    Plan *plan = (Plan *)m->result;
    m->result = NULL;
    if (!plan && attempts_plan(c, r->spec, m->reply, NULL, 0, &plan, err) != 0) {
        return -1;
    }
    SubmitReply *reply = msg_new(&submit_reply__descriptor);
    reply->plan = plan_summary(plan);
    submit_notes_add(c, call_caller(base->call)->tenant, r->spec, m->reply, plan, reply->plan);
    struct job *j = NULL;
    if (!r->dry_run) {
        rc = store_new(c, m, (JobSpec *)text_clone(&plan->spec->base), plan, &j, err);
    }
    msg_free(plan);
    if (rc != 0) {
        msg_free(reply);
        return -1;
    }
    if (j) {
        reply->job = controller_message(c, j, true);
    }
    controller_reply(c, base->call, reply);
    return 0;
}

int submit_on_request(void *controller, struct mail *m, struct error *err)
{
    struct controller *c = controller;
    SubmitRequest *r = (SubmitRequest *)m->message;
    if (r->idempotency_key && strlen(r->idempotency_key) > IDEMPOTENCY_KEY_MAX) {
        return error_set(err, ERR_INVALID_ARGUMENT, "idempotency_key: at most %d bytes",
                         IDEMPOTENCY_KEY_MAX);
    }
    if (!r->spec) {
        return error_set(err, ERR_INVALID_ARGUMENT, "spec: missing");
    }
    uint8_t spec_sha256[HASH_BYTES];
    hash_spec(r->spec, spec_sha256);
    int rc = reply_by_key(c, m->call, r, spec_sha256, err);
    if (rc != 0) {
        return rc < 0 ? -1 : 0;
    }
    char why[512];
    if (!r->dry_run && controller_no_room(c, why, sizeof why)) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "%s", why);
    }
    if (check_tenant(c, r->spec, call_caller(m->call), err) != 0 || spec_check(r->spec, err) != 0 ||
        check_nodes(c, r->spec, err) != 0 || dependencies_check(c, r->spec, err) != 0 ||
        check_paths(c, r->spec, call_caller(m->call), err) != 0) {
        return -1;
    }
    struct probe_mail *probe =
        probe_mail_new(probe_request(c, r->spec), m->call, m->message, on_probed);
    memcpy(probe->spec_sha256, spec_sha256, sizeof spec_sha256);
    /* Until its peaks are known the topology changes. */
    probe->topology = controller_topology(c);
    probe->num_gpus_gone = topology_num_gpus_gone(probe->topology);
    probe->work = probe->topology->plan_fabric ? submit_work : NULL;
    controller_probe(c, probe);
    return 0;
}

/* ---- Plans.Plan ---- */

/* The time of a step as `tandem plan` tells it; on the owner thread by formula, since launches are
 * many. */
static void set_step_time(RankedPlan *ranked, const ClusterSpec *cluster, bool is_owner)
{
    const Plan *plan = ranked->plan;
    struct step_time time = is_owner ? step_time_by_formula(plan) : step_time_find(plan, cluster);
    ranked->step_s = time.step_s;
    ranked->has_step_s = time.step_s > 0;
    if (is_owner && strcmp(plan->backend, "cuda") == 0 && plan->n_unbuilt == 0) {
        char *text;
        msg_printf(&text, "step_s is by formula, not by launches, while this host's peak is "
                          "measured");
        msg_push(&ranked->summary->notes, &ranked->summary->n_notes, text);
    }
}

/* A plan of 131,072 ranks takes half a second. So it is made on the probe thread, where the owner
 * changes nothing of what it is made from. */
static PlanReply *make_plan(PlanRequest *r, const ProbeReply *facts, const struct topology *t,
                            bool is_owner, struct error *err)
{
    if (r->cluster && cluster_check("cluster", r->cluster, err) != 0) {
        return NULL;
    }
    struct spec_unbuilt unbuilt = {0};
    PlanReply *reply = NULL;
    Plan *plan;
    /* Checked before; it says once more what isn't built. */
    JobSpec *spec = (JobSpec *)text_clone(&r->spec->base);
    struct plan_input in = {.spec = spec,
                            .model = facts->model,
                            .train = (const DataFacts *const *)facts->sources,
                            .num_train = facts->n_sources,
                            .cluster = r->cluster ? r->cluster : t->cluster,
                            .fabric = r->cluster ? NULL : t->plan_fabric,
                            .host_cores = r->cluster ? 0 : t->host.cores,
                            .unbuilt = &unbuilt};
    if (spec_check_plan(spec, &unbuilt, err) == 0 && plan_build(&in, &plan, err) == 0) {
        RankedPlan *ranked = msg_new(&ranked_plan__descriptor);
        ranked->summary = plan_summary(plan);
        ranked->plan = plan;
        set_step_time(ranked, in.cluster, is_owner);
        reply = msg_new(&plan_reply__descriptor);
        msg_push(&reply->plans, &reply->n_plans, ranked);
    }
    msg_free(spec);
    spec_unbuilt_free(&unbuilt);
    return reply;
}

static int plan_work(struct probe_mail *m)
{
    PlanReply *reply =
        make_plan((PlanRequest *)m->mail.message, m->reply, m->topology, false, &m->error);
    m->result = reply ? &reply->base : NULL;
    return reply ? 0 : -1;
}

static int on_plan_probed(void *controller, struct mail *base, struct error *err)
{
    struct controller *c = controller;
    struct probe_mail *m = (struct probe_mail *)base;
    if (!m->reply) {
        return fail_probe(c, m, err);
    }
    ProtobufCMessage *reply = m->result;
    m->result = NULL;
    if (!reply) {
        PlanReply *made =
            make_plan((PlanRequest *)base->message, m->reply, controller_topology(c), true, err);
        if (!made) {
            return -1;
        }
        reply = &made->base;
    }
    controller_reply(c, base->call, reply);
    return 0;
}

int submit_on_plan(void *controller, struct mail *m, struct error *err)
{
    struct controller *c = controller;
    PlanRequest *r = (PlanRequest *)m->message;
    if (!r->spec) {
        return error_set(err, ERR_INVALID_ARGUMENT, "spec: missing");
    }
    struct spec_unbuilt unbuilt = {0};
    int rc = check_tenant(c, r->spec, call_caller(m->call), err) != 0 ||
             spec_check_plan(r->spec, &unbuilt, err) != 0 ||
             check_paths(c, r->spec, call_caller(m->call), err) != 0;
    spec_unbuilt_free(&unbuilt);
    if (rc != 0) {
        return -1;
    }
    struct probe_mail *probe =
        probe_mail_new(probe_request(c, r->spec), m->call, m->message, on_plan_probed);
    /* Until its peaks are known the topology changes. */
    probe->topology = controller_topology(c);
    probe->work = r->cluster || probe->topology->plan_fabric ? plan_work : NULL;
    controller_probe(c, probe);
    return 0;
}
