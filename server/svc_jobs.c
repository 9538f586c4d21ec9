/* Service Jobs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "server/app.h"
#include "server/attempts.h"
#include "server/audit.h"
#include "server/job.h"
#include "server/job_use.h"
#include "server/msg.h"
#include "server/rights.h"
#include "server/submit.h"

#define EVENTS_MAX 1000
#define PAGE_MAX 1000

/* ---- owner thread ---- */

static int find_to_change(struct controller *c, const char *ref, const struct caller *who,
                          struct job **j, struct error *err)
{
    return controller_find(c, ref, who, j, err) != 0 ? -1 : rights_change_job(who, &(*j)->row, err);
}

static int note_change(struct controller *c, const struct caller *who, const struct job *j,
                       struct error *err)
{
    return audit_change(c, who, err, "job %lld", (long long)j->row.id);
}

static int change(void *controller, struct mail *m, enum supervisor_kind kind, struct error *err)
{
    struct controller *c = controller;
    const struct caller *who = call_caller(m->call);
    struct job *j;
    if (find_to_change(c, ((const JobRef *)m->message)->job, who, &j, err) != 0 ||
        attempts_request(c, j, kind, rights_actor(who, j->row.tenant), err) != 0 ||
        note_change(c, who, j, err) != 0) {
        return -1;
    }
    controller_reply(c, m->call, controller_message(c, j, true));
    return 0;
}

static int run_cancel(void *controller, struct mail *m, struct error *err)
{
    return change(controller, m, SUPERVISE_CANCEL, err);
}

static int run_pause(void *controller, struct mail *m, struct error *err)
{
    return change(controller, m, SUPERVISE_PAUSE, err);
}

/* One that has ended is one more in the queue. */
static int run_resume(void *controller, struct mail *m, struct error *err)
{
    struct job *j;
    if (find_to_change(controller, ((const JobRef *)m->message)->job, call_caller(m->call), &j,
                       err) != 0 ||
        (job_state_is_end(j->row.state) && j->row.state != JOB_SUCCEEDED &&
         submit_check_queue(controller, j->row.tenant, err) != 0)) {
        return -1;
    }
    return change(controller, m, SUPERVISE_RESUME, err);
}

static int run_hold(void *controller, struct mail *m, struct error *err)
{
    return change(controller, m, SUPERVISE_HOLD, err);
}

static int run_release(void *controller, struct mail *m, struct error *err)
{
    return change(controller, m, SUPERVISE_RELEASE, err);
}

static int run_set_priority(void *controller, struct mail *m, struct error *err)
{
    struct controller *c = controller;
    const SetPriorityRequest *r = (const SetPriorityRequest *)m->message;
    const struct caller *who = call_caller(m->call);
    if (!r->has_priority || r->priority < 0 || r->priority > 1000) {
        return error_set(err, ERR_INVALID_ARGUMENT, "priority: a number from 0 to 1000");
    }
    struct job *j;
    if (find_to_change(c, r->job, who, &j, err) != 0) {
        return -1;
    }
    if (job_state_is_end(j->row.state)) {
        return error_set(err, ERR_FAILED_PRECONDITION, "job %lld has ended", (long long)j->row.id);
    }
    if (r->priority != j->row.priority) {
        int32_t old = j->row.priority;
        j->row.priority = r->priority;
        controller_schedule(c);
        if (controller_event(c, j, "note", rights_actor(who, j->row.tenant), 0, err,
                             "priority %d -> %d", old, r->priority) != 0 ||
            note_change(c, who, j, err) != 0) {
            return -1;
        }
    }
    controller_reply(c, m->call, controller_message(c, j, true));
    return 0;
}

static void add_reason(WhyReply *reply, const char *fmt, const char *a, const char *b)
{
    char *text;
    msg_printf(&text, "%s%s%s", a, *b ? fmt : "", b);
    msg_push(&reply->reasons, &reply->n_reasons, text);
}

static int run_why(void *controller, struct mail *m, struct error *err)
{
    struct controller *c = controller;
    struct job *j;
    if (controller_find(c, ((const JobRef *)m->message)->job, call_caller(m->call), &j, err) != 0) {
        return -1;
    }
    WhyReply *reply = msg_new(&why_reply__descriptor);
    if (j->row.state == JOB_QUEUED) {
        if (attempts_why(c, j, rights_tenant(call_caller(m->call)), reply, err) != 0) {
            msg_free(reply);
            return -1;
        }
    } else {
        const char *state = job_state_name(j->row.state);
        char step[64];
        snprintf(step, sizeof step, "step %lld of %lld", (long long)j->row.step,
                 (long long)j->row.total_steps);
        if (j->row.state == JOB_RUNNING) {
            add_reason(reply, ", ", state, step);
        } else {
            add_reason(reply, ": ", state, strcasecmp(state, j->row.cause) ? j->row.cause : "");
        }
        if (j->row.state == JOB_HELD) {
            add_reason(reply, "", "kept out of the queue until it is released", "");
        }
        if (j->row.state == JOB_PAUSED) {
            add_reason(reply, "", "a resume goes on from its newest checkpoint", "");
        }
        if (j->row.state == JOB_RUNNING && !j->worker) {
            add_reason(reply, "", "its tandem-node is not attached at the moment; training goes on",
                       "");
        }
    }
    if (*j->row.message) {
        add_reason(reply, "", j->row.message, "");
    }
    controller_reply(c, m->call, reply);
    return 0;
}

/* ---- query thread ---- */

static bool push_event(void *arg, const Event *e)
{
    Job *job = arg;
    Event *copy = msg_new(&event__descriptor);
    *copy = *e;
    copy->kind = copy->cause = copy->actor = copy->message = NULL;
    msg_text(&copy->kind, e->kind);
    msg_text(&copy->cause, e->cause);
    msg_text(&copy->actor, e->actor);
    msg_text(&copy->message, e->message);
    msg_push(&job->events, &job->n_events, copy);
    return true;
}

static int run_get(void *query, struct mail *m, struct error *err)
{
    struct query *q = query;
    struct job_row row;
    if (store_begin_read(q->reader, err) != 0) {
        return -1;
    }
    int rc =
        query_find(q, ((const GetJobRequest *)m->message)->job, call_caller(m->call), &row, err);
    Job *job = NULL;
    if (rc == 0) {
        JobSpec *spec = NULL;
        /* A damaged spec is left out; quarantine says so. */
        store_job_spec(q->reader, row.id, &spec, NULL);
        job = job_message(&row, q->data_dir, spec, true);
        msg_free(spec);
        rc = job_use_add(q->reader, &row, clock_wall_us(), true, job, err);
    }
    if (rc == 0) {
        rc = store_event_newest(q->reader, row.id, EVENTS_MAX, push_event, job, err);
    }
    store_end_read(q->reader);
    if (rc == 0) {
        call_reply(m->call, &job->base);
    }
    msg_free(job);
    return rc;
}

static int run_list(void *query, struct mail *m, struct error *err)
{
    struct query *q = query;
    const ListJobsRequest *r = (const ListJobsRequest *)m->message;
    const struct caller *who = call_caller(m->call);
    int32_t size = r->page_size < 1 ? 100 : r->page_size > PAGE_MAX ? PAGE_MAX : r->page_size;
    struct store_job_filter filter = {
        .name = r->name, .before_id = r->before_id, .limit = size, .by_turn = r->by_turn};
    for (size_t i = 0; i < r->n_states; i++) {
        filter.states |= 1u << r->states[i];
    }
    if (!r->n_states && !r->all) {
        filter.states = (1u << JOB_SUCCEEDED) - 2; /* those below the ends */
    }
    if (rights_ask_tenant(who, r->tenant, &filter.tenant, err) != 0) {
        return -1;
    }
    if (rights_is_admin(who)) {
        filter.tenant = r->tenant;
    }
    struct job_row *rows;
    size_t num;
    if (store_job_list(q->reader, &filter, &rows, &num, err) != 0) {
        return -1;
    }
    ListJobsReply *reply = msg_new(&list_jobs_reply__descriptor);
    int64_t now_us = clock_wall_us();
    int rc = 0;
    for (size_t i = 0; i < num && rc == 0; i++) {
        JobSpec *spec = NULL;
        store_job_spec(q->reader, rows[i].id, &spec, NULL);
        Job *job = job_message(&rows[i], q->data_dir, spec, false);
        msg_push(&reply->jobs, &reply->n_jobs, job);
        rc = job_use_add(q->reader, &rows[i], now_us, false, job, err);
        msg_free(spec);
    }
    MSG_SET(reply, next_before_id, num == (size_t)size && !r->by_turn ? rows[num - 1].id : 0);
    free(rows);
    if (rc == 0) {
        call_reply(m->call, &reply->base);
    }
    msg_free(reply);
    return rc;
}

/* ---- io threads ---- */

static void submit(void *ctx, struct call *c, const ProtobufCMessage *r)
{
    app_change(ctx, c, r, submit_on_request);
}

static void get(void *ctx, struct call *c, const ProtobufCMessage *r)
{
    app_to_query(ctx, c, r, run_get);
}

static void list(void *ctx, struct call *c, const ProtobufCMessage *r)
{
    app_to_query(ctx, c, r, run_list);
}

static void cancel(void *ctx, struct call *c, const ProtobufCMessage *r)
{
    app_change(ctx, c, r, run_cancel);
}

static void pause_job(void *ctx, struct call *c, const ProtobufCMessage *r)
{
    app_change(ctx, c, r, run_pause);
}

static void resume(void *ctx, struct call *c, const ProtobufCMessage *r)
{
    app_change(ctx, c, r, run_resume);
}

static void hold(void *ctx, struct call *c, const ProtobufCMessage *r)
{
    app_change(ctx, c, r, run_hold);
}

static void release(void *ctx, struct call *c, const ProtobufCMessage *r)
{
    app_change(ctx, c, r, run_release);
}

static void set_priority(void *ctx, struct call *c, const ProtobufCMessage *r)
{
    app_change(ctx, c, r, run_set_priority);
}

static void why(void *ctx, struct call *c, const ProtobufCMessage *r)
{
    app_to_owner(ctx, c, r, run_why);
}

static void watch(void *ctx, struct call *c, const ProtobufCMessage *r)
{
    feed_watch(((struct app *)ctx)->feed, c, (const WatchRequest *)r);
}

static void logs(void *ctx, struct call *c, const ProtobufCMessage *r)
{
    feed_logs(((struct app *)ctx)->feed, c, (const LogsRequest *)r);
}

static void closed(void *ctx, struct call *c)
{
    feed_closed(((struct app *)ctx)->feed, c);
}

const struct method svc_jobs_methods[] = {
    {"/tandem.v1.Jobs/Submit", METHOD_UNARY, METHOD_MEMBER, &submit_request__descriptor, submit,
     NULL, NULL},
    {"/tandem.v1.Jobs/Get", METHOD_UNARY, METHOD_VIEWER, &get_job_request__descriptor, get, NULL,
     NULL},
    {"/tandem.v1.Jobs/List", METHOD_UNARY, METHOD_VIEWER, &list_jobs_request__descriptor, list,
     NULL, NULL},
    {"/tandem.v1.Jobs/Cancel", METHOD_UNARY, METHOD_MEMBER, &job_ref__descriptor, cancel, NULL,
     NULL},
    {"/tandem.v1.Jobs/Pause", METHOD_UNARY, METHOD_MEMBER, &job_ref__descriptor, pause_job, NULL,
     NULL},
    {"/tandem.v1.Jobs/Resume", METHOD_UNARY, METHOD_MEMBER, &job_ref__descriptor, resume, NULL,
     NULL},
    {"/tandem.v1.Jobs/Hold", METHOD_UNARY, METHOD_MEMBER, &job_ref__descriptor, hold, NULL, NULL},
    {"/tandem.v1.Jobs/Release", METHOD_UNARY, METHOD_MEMBER, &job_ref__descriptor, release, NULL,
     NULL},
    {"/tandem.v1.Jobs/SetPriority", METHOD_UNARY, METHOD_MEMBER, &set_priority_request__descriptor,
     set_priority, NULL, NULL},
    {"/tandem.v1.Jobs/Why", METHOD_UNARY, METHOD_VIEWER, &job_ref__descriptor, why, NULL, NULL},
    {"/tandem.v1.Jobs/Watch", METHOD_SERVER_STREAM, METHOD_VIEWER, &watch_request__descriptor,
     watch, NULL, closed},
    {"/tandem.v1.Jobs/Logs", METHOD_SERVER_STREAM, METHOD_VIEWER, &logs_request__descriptor, logs,
     NULL, closed},
    {0},
};
