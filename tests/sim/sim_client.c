#include "tests/sim/sim_client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "proto/text.h"
#include "server/job.h"
#include "server/msg.h"
#include "tests/sim/sim_call.h"
#include "tests/sim/sim_server.h"

#define ANSWER_US 5000000
#define AGAIN_US 700000

static const char *const op_names[OP_NUM] = {"Submit", "Cancel",  "Pause",       "Resume",
                                             "Hold",   "Release", "SetPriority", "Why"};

/* One request on its way, and its answer. */
struct request {
    struct sim *sim;
    struct sim_job *job;
    enum sim_op op;
    struct call *call; /* a reference, until the answer or the timeout */
    int64_t generation;
    bool undone_open; /* when it was sent, something that would undo it could still happen */
    int64_t num_resumes;
    bool twin;    /* the second of two equal ones: nobody waits for it */
    bool waiting; /* for the answer */
    int refs;
};

static void send_request(struct sim *s, struct sim_job *j, enum sim_op op, bool twin);
static void again(struct sim *s, void *arg, int64_t op);

static void release(struct request *r)
{
    if (--r->refs == 0) {
        free(r);
    }
}

static void let_call_go(struct request *r)
{
    if (r->call) {
        struct call *c = r->call;
        r->call = NULL;
        sim_call_over(c);
        call_unref(c);
    }
}

static void drop_request(struct sim *s, void *arg, int64_t n)
{
    (void)s;
    (void)n;
    let_call_go(arg);
    release(arg);
}

/* ---- what is told ---- */

static bool undoes(enum sim_op op)
{
    return op == OP_RESUME || op == OP_RELEASE;
}

static void note_ok(struct sim *s, const struct request *r, int64_t id)
{
    struct sim_job *j = r->job;
    if (r->op == OP_SUBMIT) {
        if (j->id && j->id != id) {
            sim_fail(s, "%s is job %lld and job %lld", j->name, (long long)j->id, (long long)id);
        }
        j->id = id;
        j->is_held = j->is_held || (j->held_new && j->num_resumes == 0);
        if (j->too_large) {
            sim_fail(s, "%s needs more devices than there are, and was taken", j->name);
        }
        return;
    }
    bool stands = !r->undone_open && r->num_resumes == j->num_resumes;
    j->is_cancelled = j->is_cancelled || (r->op == OP_CANCEL && stands);
    if (!j->is_paused && r->op == OP_PAUSE && stands) {
        j->is_paused = true;
        j->paused_us = s->now_us;
    }
    j->is_held = j->is_held || (r->op == OP_HOLD && stands);
}

/* What it was to wait for has failed. */
static void forget_after(struct sim *s, struct sim_job *j)
{
    if (j->num_after) {
        msg_free(j->spec);
        j->num_after = 0;
        j->spec = sim_client_spec(s, j);
    }
}

/* A submit may be refused for what it asks for, where that isn't there (now). */
static bool take_refusal(struct sim *s, struct sim_job *j, enum error_code code)
{
    bool ours = code == ERR_FAILED_PRECONDITION || code == ERR_INVALID_ARGUMENT;
    if (!ours || (!j->too_large && s->cluster->version == 0 && !j->num_after)) {
        return false;
    }
    j->is_refused = true;
    s->seen.refused++;
    if (j->too_large) {
        j->busy = false;
    } else {
        sim_after(s, AGAIN_US, again, NULL, j, OP_SUBMIT);
    }
    return true;
}

static void again(struct sim *s, void *arg, int64_t op)
{
    struct sim_job *j = arg;
    j->busy = false;
    if (op == OP_SUBMIT && j->is_refused && !j->open[OP_SUBMIT] && !j->real_id) {
        forget_after(s, j);
    }
    send_request(s, j, (enum sim_op)op, false);
}

/* n: 0 = OK, else the code. */
static void answered(struct sim *s, void *arg, int64_t n)
{
    struct request *r = arg;
    struct sim_job *j = r->job;
    if (r->waiting) {
        r->waiting = false;
        sim_trace(s->now_us, "%s %s: %s", op_names[r->op], j->name,
                  n ? error_code_name((enum error_code)(n & 0xff)) : "OK");
        enum error_code code = (enum error_code)(n & 0xff);
        if (code == ERR_OK) {
            note_ok(s, r, n >> 8);
        }
        if (!r->twin) {
            if (r->op == OP_SUBMIT && take_refusal(s, j, code)) {
                /* tried again, or never again */
            } else if (code == ERR_OK || code == ERR_FAILED_PRECONDITION ||
                       (code == ERR_DATA_LOSS && j->is_rotten)) {
                j->busy = false;
            } else if (code == ERR_UNAVAILABLE || code == ERR_RESOURCE_EXHAUSTED ||
                       code == ERR_DEADLINE_EXCEEDED || code == ERR_INTERNAL) {
                sim_after(s, AGAIN_US, again, NULL, j, r->op);
            } else {
                sim_fail(s, "%s %s is refused: %s", op_names[r->op], j->name,
                         error_code_name(code));
            }
        }
    }
    let_call_go(r);
    release(r);
}

static void answer_after(struct request *r, int64_t delay_us, int64_t n)
{
    r->refs++;
    sim_after(r->sim, delay_us, answered, drop_request, r, n);
}

/* A reason that says something, and no number of another tenant's job. */
static void check_why(struct sim *s, const struct sim_job *j, const WhyReply *m)
{
    if (m->n_reasons == 0 || !m->reasons[0][0]) {
        sim_fail(s, "nothing is said about why %s waits", j->name);
    }
    for (size_t i = 0; i < m->n_holders && j->tenant > 0; i++) {
        const struct sim_job *holder = m->holders[i] > 0 ? sim_client_job(s, m->holders[i]) : j;
        if (holder->tenant != j->tenant) {
            sim_fail(s, "the user of %s hears of %s, which is another tenant's", j->name,
                     holder->name);
        }
    }
}

static void on_message(void *peer, const ProtobufCMessage *m)
{
    struct request *r = peer;
    struct sim *s = r->sim;
    if (r->op == OP_WHY) {
        check_why(s, r->job, (const WhyReply *)m);
        answer_after(r, sim_net_us(s), ERR_OK);
        return;
    }
    const Job *job =
        m->descriptor == &submit_reply__descriptor ? ((const SubmitReply *)m)->job : (const Job *)m;
    if (!sim_strikes(s, s->profile->lose_reply)) {
        answer_after(r, sim_net_us(s), job->id << 8);
    }
}

static void on_end(void *peer, enum error_code code, const char *text)
{
    struct request *r = peer;
    sim_trace(r->sim->now_us, "  refused: %s", text);
    answer_after(r, sim_net_us(r->sim), code);
}

static void on_freed(void *peer)
{
    struct request *r = peer;
    r->job->open[r->op]--;
    release(r);
}

/* ---- sending ---- */

static ProtobufCMessage *make_message(struct sim *s, const struct sim_job *j, enum sim_op op)
{
    char ref[24];
    snprintf(ref, sizeof ref, "%lld", (long long)j->id);
    if (op == OP_SUBMIT) {
        SubmitRequest *r = msg_new(&submit_request__descriptor);
        r->spec = (JobSpec *)text_clone(&j->spec->base);
        msg_text(&r->idempotency_key, j->name);
        return &r->base;
    }
    if (op == OP_PRIORITY) {
        SetPriorityRequest *r = msg_new(&set_priority_request__descriptor);
        msg_text(&r->job, ref);
        MSG_SET(r, priority, (int32_t)sim_rng_between(&s->rng, 0, 1000));
        return &r->base;
    }
    JobRef *r = msg_new(&job_ref__descriptor);
    msg_text(&r->job, ref);
    return &r->base;
}

static const struct method *find_method(enum sim_op op)
{
    char path[64];
    snprintf(path, sizeof path, "/tandem.v1.Jobs/%s", op_names[op]);
    for (const struct method *m = svc_jobs_methods; m->path; m++) {
        if (strcmp(m->path, path) == 0) {
            return m;
        }
    }
    ASSERT(false && "no such method");
}

static void arrive(struct sim *s, void *arg, int64_t n)
{
    (void)n;
    struct request *r = arg;
    if (r->call && s->server->up && s->server->generation == r->generation) {
        ProtobufCMessage *m = make_message(s, r->job, r->op);
        find_method(r->op)->on_message(&s->server->app, r->call, m);
        msg_free(m);
    } else {
        answer_after(r, 1000, ERR_UNAVAILABLE);
    }
    release(r);
}

static void send_request(struct sim *s, struct sim_job *j, enum sim_op op, bool twin)
{
    static const struct sim_peer peer = {.message = on_message, .end = on_end, .freed = on_freed};
    struct request *r = calloc(1, sizeof *r);
    ASSERT(r);
    *r = (struct request){.sim = s,
                          .job = j,
                          .op = op,
                          .generation = s->server->generation,
                          .undone_open = j->open[OP_RESUME] || j->open[OP_RELEASE],
                          .twin = twin,
                          .waiting = true,
                          .refs = 2}; /* the call's and arrive's */
    j->busy = true;
    j->open[op]++;
    j->may_be_cancelled = j->may_be_cancelled || op == OP_CANCEL;
    if (undoes(op)) {
        j->num_resumes++;
        j->is_cancelled = j->is_paused = j->is_held = false;
    }
    r->num_resumes = j->num_resumes;
    sim_trace(s->now_us, "%s %s", op_names[op], j->name);
    struct caller who = {.user = "dev",
                         .tenant = sim_tenants[j->tenant],
                         .role = j->tenant ? "member" : "admin",
                         .peer = "unix",
                         .method = "Jobs/Change"};
    r->call = sim_call_new(s, &who, &peer, r);
    sim_after(s, sim_net_us(s), arrive, drop_request, r, 0);
    answer_after(r, ANSWER_US, ERR_DEADLINE_EXCEEDED);
    if (!twin && op == OP_SUBMIT && sim_strikes(s, s->profile->submit_twice)) {
        send_request(s, j, op, true);
    }
}

/* ---- jobs ---- */

struct sim_job *sim_client_job_named(struct sim *s, const char *name)
{
    for (int32_t i = 0; i < s->num_jobs; i++) {
        if (strcmp(s->jobs[i].name, name) == 0) {
            return &s->jobs[i];
        }
    }
    sim_fail(s, "there is a job %s, which nobody submitted", name);
    return &s->jobs[0];
}

struct sim_job *sim_client_job(struct sim *s, int64_t id)
{
    for (int32_t i = 0; i < s->num_jobs; i++) {
        if (s->jobs[i].real_id == id) {
            return &s->jobs[i];
        }
    }
    struct controller *c = s->server->app.controller;
    const struct job *memory = c ? controller_job(c, id) : NULL;
    struct job_row row;
    if (memory || (c && store_job_get(controller_store(c), id, &row, NULL) == 1)) {
        struct sim_job *j = sim_client_job_named(s, memory ? memory->row.name : row.name);
        if (j->real_id) {
            sim_fail(s, "%s is job %lld and job %lld", j->name, (long long)j->real_id,
                     (long long)id);
        }
        j->real_id = id;
        return j;
    }
    sim_fail(s, "there is a job %lld, which nobody submitted", (long long)id);
    return &s->jobs[0];
}

struct sim_held *sim_client_held(const struct sim_job *j, int32_t number)
{
    for (int32_t i = j->num_held; i > 0; i--) {
        if (j->held[i - 1].number == number) {
            return &j->held[i - 1];
        }
    }
    return NULL;
}

/* Others of the tenant whose numbers are known by now. */
static void pick_after(struct sim *s, struct sim_job *j)
{
    int64_t most = sim_rng_between(&s->rng, 1, 2);
    for (int32_t i = 0; i < s->num_jobs && j->num_after < most; i++) {
        struct sim_job *other = &s->jobs[sim_rng_between(&s->rng, 0, s->num_jobs - 1)];
        bool named = j->num_after && j->after[0] == other;
        if (other != j && other->id && other->tenant == j->tenant && !named) {
            j->after[j->num_after++] = other;
        }
    }
}

static void submit(struct sim *s, void *arg, int64_t n)
{
    (void)n;
    struct sim_job *j = arg;
    if (sim_rng_chance(&s->rng, s->profile->after)) {
        pick_after(s, j);
    }
    j->spec = sim_client_spec(s, j);
    send_request(s, j, OP_SUBMIT, false);
}

/* Sizes up to the whole cluster, small ones most of all. */
static int32_t draw_ranks(struct sim *s, const struct sim_job *j)
{
    const struct sim_profile *p = s->profile;
    int32_t all = s->cluster->num_devices;
    if (j->pin >= 0) {
        return (int32_t)sim_rng_between(&s->rng, 1,
                                        sim_cluster_count(sim_cluster_of_node(s, j->pin)));
    }
    if (sim_rng_chance(&s->rng, p->wide)) {
        return all;
    }
    int32_t most = p->cluster > 0 && all > 2 ? (all + 1) / 2 : 2;
    int32_t num = p->cluster > 0 ? 1 + (int32_t)sim_rng_delay(&s->rng, 0, most)
                                 : 1 << sim_rng_between(&s->rng, 0, 1);
    return num < all ? num : all;
}

static void draw_job(struct sim *s, struct sim_job *j)
{
    const struct sim_profile *p = s->profile;
    j->pin = sim_rng_chance(&s->rng, p->pin)
                 ? (int32_t)sim_rng_between(&s->rng, 0, s->cluster->num_nodes - 1)
                 : -1;
    j->num_ranks = draw_ranks(s, j);
    j->too_large = sim_rng_chance(&s->rng, p->too_large);
    j->num_ranks = j->too_large ? 2 * SIM_DEVICES_MAX : j->num_ranks;
    j->tenant = p->tenants > 1 ? (int32_t)sim_rng_between(&s->rng, 0, p->tenants - 1) : 0;
    j->held_new = sim_rng_chance(&s->rng, p->hold_new);
    j->limit_s = sim_rng_chance(&s->rng, p->limit) ? sim_rng_between(&s->rng, 1, 10) : 0;
    j->total_steps = sim_rng_between(&s->rng, 1, p->steps_max);
    j->interval = sim_rng_between(&s->rng, 1, 8);
    j->max_restarts = p->max_restarts;
}

void sim_client_new(struct sim *s)
{
    const struct sim_profile *p = s->profile;
    s->num_jobs = (int32_t)sim_rng_between(&s->rng, p->jobs_min, p->jobs_max);
    s->jobs = calloc((size_t)s->num_jobs, sizeof *s->jobs);
    ASSERT(s->jobs);
    for (int32_t i = 0; i < s->num_jobs; i++) {
        struct sim_job *j = &s->jobs[i];
        j->idx = i;
        snprintf(j->name, sizeof j->name, "job-%d", i);
        draw_job(s, j);
        sim_after(s, sim_rng_between(&s->rng, 0, 500 * p->chaos_ms), submit, NULL, j, 0);
    }
}

void sim_client_free(struct sim *s)
{
    for (int32_t i = 0; i < s->num_jobs; i++) {
        msg_free(s->jobs[i].spec);
        free(s->jobs[i].held);
    }
    free(s->jobs);
}

/* ---- what users do ---- */

void sim_client_act(struct sim *s)
{
    struct sim_job *j = &s->jobs[sim_rng_between(&s->rng, 0, s->num_jobs - 1)];
    const struct sim_profile *p = s->profile;
    if (!j->id || j->busy) {
        return;
    }
    if (sim_strikes(s, p->cancel)) {
        send_request(s, j, OP_CANCEL, false);
    } else if (sim_strikes(s, p->pause)) {
        send_request(s, j, OP_PAUSE, false);
    } else if (sim_strikes(s, p->hold)) {
        send_request(s, j, OP_HOLD, false);
    } else if (sim_strikes(s, p->priority)) {
        send_request(s, j, OP_PRIORITY, false);
    } else if (j->state == JOB_QUEUED && sim_strikes(s, p->why)) {
        send_request(s, j, OP_WHY, false);
    } else if (j->state == JOB_PAUSED && sim_strikes(s, 0.3)) {
        send_request(s, j, OP_RESUME, false);
    } else if (j->state == JOB_HELD && sim_strikes(s, 0.3)) {
        send_request(s, j, OP_RELEASE, false);
    } else if ((j->state == JOB_CANCELLED || j->state == JOB_FAILED) &&
               sim_strikes(s, p->resume_ended)) {
        send_request(s, j, OP_RESUME, false);
    }
}

void sim_client_settle(struct sim *s)
{
    for (int32_t i = 0; i < s->num_jobs; i++) {
        struct sim_job *j = &s->jobs[i];
        if (j->id && !j->busy && (j->state == JOB_PAUSED || j->state == JOB_HELD)) {
            send_request(s, j, j->state == JOB_PAUSED ? OP_RESUME : OP_RELEASE, false);
        }
    }
}

bool sim_client_is_over(const struct sim_job *j)
{
    return j->id ? job_state_is_end(j->state) : j->too_large && j->is_refused;
}

bool sim_client_is_done(const struct sim *s)
{
    for (int32_t i = 0; i < s->num_jobs; i++) {
        if (s->jobs[i].busy || !sim_client_is_over(&s->jobs[i])) {
            return false;
        }
    }
    return true;
}
