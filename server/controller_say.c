/* What a handler of mail does with the controller: looks around, moves a job, says things that go
 * out behind the commit. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/printable.h"
#include "server/controller_private.h"
#include "server/job.h"
#include "server/msg.h"

/* What takes more of the processor than the first is not done again for so many times as long. */
#define REST_COST_MS 5
#define REST_TIMES 3
/* Explanations have the same part of the time, on average over so long. */
#define EXPLAIN_AHEAD_MS 1000

struct store *controller_store(struct controller *c)
{
    return c->options.store;
}

const struct controller_options *controller_about(const struct controller *c)
{
    return &c->options;
}

struct topology *controller_topology(struct controller *c)
{
    return c->options.topology;
}

struct tenants *controller_tenants(struct controller *c)
{
    return c->tenants;
}

const SchedulerConfig *controller_scheduler(const struct controller *c)
{
    static const SchedulerConfig defaults = SCHEDULER_CONFIG__INIT;
    return c->options.scheduler ? c->options.scheduler : &defaults;
}

int64_t controller_now_ms(const struct controller *c)
{
    return c->now_ms;
}

int64_t controller_wall_us(const struct controller *c)
{
    return c->options.world.wall_us(c->options.world.ctx);
}

const struct world *controller_world(const struct controller *c)
{
    return &c->options.world;
}

void controller_post(struct controller *c, struct mail *m)
{
    struct mailbox_node **last = &c->backlog;
    while (*last) {
        last = &(*last)->next;
    }
    m->node.next = NULL;
    *last = &m->node;
}

bool controller_no_room(const struct controller *c, char *why, size_t size)
{
    const struct world *w = controller_world(c);
    return w->no_room && w->no_room(w->ctx, why, size);
}

size_t controller_num_jobs(const struct controller *c)
{
    return c->num_jobs;
}

struct job *controller_job_at(struct controller *c, size_t i)
{
    return c->jobs[i];
}

void controller_schedule(struct controller *c)
{
    c->schedule = true;
}

struct sched *controller_sched(struct controller *c)
{
    return c->sched;
}

bool controller_may_explain(struct controller *c)
{
    const struct world *w = controller_world(c);
    c->explain_began_ms = w->mono_ms(w->ctx);
    c->explain_busy_ms = w->busy_ms(w->ctx);
    return c->explain_rest_ms <= c->explain_began_ms + EXPLAIN_AHEAD_MS;
}

void controller_explained(struct controller *c)
{
    const struct world *w = controller_world(c);
    int64_t took_ms = w->busy_ms(w->ctx) - c->explain_busy_ms;
    int64_t from_ms =
        c->explain_rest_ms > c->explain_began_ms ? c->explain_rest_ms : c->explain_began_ms;
    c->explain_rest_ms = from_ms + (1 + REST_TIMES) * took_ms;
}

int64_t controller_rest_until(int64_t took_ms, int64_t now_ms)
{
    return took_ms > REST_COST_MS ? now_ms + REST_TIMES * took_ms : 0;
}

int64_t controller_bad_ends(const struct controller *c)
{
    return c->bad_ends;
}

Job *controller_message(struct controller *c, const struct job *j, bool with_spec)
{
    return job_message(&j->row, c->options.data_dir, j->spec, with_spec);
}

void controller_holders(struct controller *c, int64_t *holders)
{
    int32_t num = c->options.topology->fabric->num_devices;
    memset(holders, 0, (size_t)num * sizeof *holders);
    for (size_t i = 0; i < controller_num_active(c); i++) {
        const struct job *j = controller_active_at(c, i);
        const struct attempt_row *a = &j->row.attempt;
        if (a->number == 0 || a->condition == ATTEMPT_GONE) {
            continue;
        }
        for (int32_t d = 0; d < device_set_num(j->devices.now); d++) {
            holders[j->devices.now->device[d]] = j->row.id;
        }
    }
}

void controller_claims(struct controller *c, int64_t *claims)
{
    memset(claims, 0, (size_t)c->options.topology->fabric->num_devices * sizeof *claims);
    for (size_t i = 0; i < controller_num_jobs(c); i++) {
        const struct job *j = controller_job_at(c, i);
        for (int32_t d = 0; d < device_set_num(j->claim.now); d++) {
            claims[j->claim.now->device[d]] = j->row.id;
        }
    }
}

int64_t controller_shown(struct controller *c, int64_t job_id, const char *tenant)
{
    const struct job *j = job_id && tenant ? controller_job(c, job_id) : NULL;
    return j && strcmp(j->row.tenant, tenant) != 0 ? -1 : job_id;
}

static int add_event(struct controller *c, struct job *j, Event *e, const char *kind,
                     const char *actor, bool with_job, struct error *err)
{
    e->has_job_id = e->has_time_us = 1;
    e->job_id = j->row.id;
    e->time_us = controller_wall_us(c);
    if (j->row.attempt.number) {
        MSG_SET(e, attempt, j->row.attempt.number);
    }
    msg_text(&e->kind, kind);
    msg_text(&e->actor, actor);
    if (store_event_insert(c->options.store, e, err) != 0) {
        msg_free(e);
        return -1;
    }
    struct feed_mail *m = feed_mail_new(j->row.id, j->row.tenant);
    m->event = e;
    m->job = with_job ? controller_message(c, j, false) : NULL;
    controller_feed(c, m);
    return 0;
}

int controller_event(struct controller *c, struct job *j, const char *kind, const char *actor,
                     int64_t step, struct error *err, const char *fmt, ...)
{
    Event *e = msg_new(&event__descriptor);
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    printable_utf8(text);
    msg_text(&e->message, text);
    if (step > 0) {
        MSG_SET(e, step, step);
    }
    return add_event(c, j, e, kind, actor, strcmp(kind, "submitted") == 0, err);
}

/* A wait begins or ends with a move. The age in the queue is kept by who gave way or died: it
 * doesn't go to the end. */
static void count_wait(struct controller *c, struct job *j, JobState from, JobState to,
                       const char *cause)
{
    struct job_row *r = &j->row;
    int64_t now_us = controller_wall_us(c);
    if (from == JOB_QUEUED && r->waits_us) {
        r->wait_us += now_us > r->waits_us ? now_us - r->waits_us : 0;
    }
    bool keeps = strcmp(cause, SUPERVISOR_PREEMPTED) == 0 ||
                 strcmp(cause, SUPERVISOR_DRAINED) == 0 || strcmp(cause, "restart") == 0;
    if (to == JOB_QUEUED && !(keeps && r->queued_us)) {
        r->queued_us = now_us;
        j->queued_ms = c->now_ms;
    }
    r->waits_us = to == JOB_QUEUED ? now_us : 0;
}

int controller_move(struct controller *c, struct job *j, JobState to, const char *cause,
                    const char *message, const char *actor, struct error *err)
{
    JobState from = j->row.state;
    if (!job_may_move(from, to)) {
        ASSERT(false && "a move that is not in the table");
    }
    controller_touch(c, j);
    count_wait(c, j, from, to, cause);
    j->row.state = to;
    j->row.target = 0;
    snprintf(j->row.cause, sizeof j->row.cause, "%s", cause);
    snprintf(j->row.message, sizeof j->row.message, "%s", message);
    printable_utf8(j->row.message);
    j->row.ended_us = job_state_is_end(to) ? controller_wall_us(c) : 0;
    j->since_ms = j->moved_ms = c->now_ms;
    if (to == JOB_STARTING) {
        j->attempt_ms = j->saved_ms = c->now_ms;
        j->step_at_ms = 0;
        j->pace = (struct job_pace){0};
        j->row.step_ms = j->row.tokens_per_s = j->row.mfu = (double)NAN; /* the last attempt's */
    }
    if (to != JOB_QUEUED && j->claim.now) {
        controller_set_claim(c, j, NULL); /* only who waits keeps others waiting */
    }
    c->schedule = true;
    c->bad_ends += to == JOB_FAILED || to == JOB_CANCELLED;
    Event *e = msg_new(&event__descriptor);
    MSG_SET(e, from, from);
    MSG_SET(e, to, to);
    msg_text(&e->cause, cause);
    msg_text(&e->message, j->row.message);
    if (j->row.step) {
        MSG_SET(e, step, j->row.step);
    }
    return add_event(c, j, e, "state", actor, true, err);
}

void controller_reply(struct controller *c, struct call *call, void *message)
{
    outbox_add(&c->outbox,
               (struct out){.kind = OUT_REPLY, .call = call_ref(call), .message = message});
}

void controller_send(struct controller *c, struct call *call, void *message)
{
    outbox_add(&c->outbox,
               (struct out){.kind = OUT_SEND, .call = call_ref(call), .message = message});
}

void controller_end_stream(struct controller *c, struct call *call, enum error_code code,
                           const char *fmt, ...)
{
    struct error *e = calloc(1, sizeof *e);
    ASSERT(e);
    e->code = code;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(e->text, sizeof e->text, fmt, ap);
    va_end(ap);
    outbox_add(&c->outbox, (struct out){.kind = OUT_END, .call = call_ref(call), .error = e});
}

void controller_launch(struct controller *c, struct launch_mail *m)
{
    outbox_add(&c->outbox, (struct out){.kind = OUT_LAUNCH, .mail = &m->mail});
}

void controller_feed(struct controller *c, struct feed_mail *m)
{
    outbox_add(&c->outbox, (struct out){.kind = OUT_FEED, .mail = &m->mail});
}

void controller_ticket(struct controller *c, struct launch_mail *m)
{
    outbox_add(&c->outbox, (struct out){.kind = OUT_TICKET, .mail = &m->mail});
}

void controller_then(struct controller *c, struct mail *m)
{
    outbox_add(&c->outbox, (struct out){.kind = OUT_THEN, .mail = m});
}

void controller_lease(struct controller *c, struct call *call, bool on)
{
    outbox_add(&c->outbox,
               (struct out){.kind = on ? OUT_LEASE : OUT_UNLEASE, .call = call_ref(call)});
}

void controller_probe(struct controller *c, struct probe_mail *m)
{
    outbox_add(&c->outbox, (struct out){.kind = OUT_PROBE, .mail = &m->mail});
}
