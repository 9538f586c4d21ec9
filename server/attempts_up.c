/* What tandem-node says on its Attach stream, and what it is told. */
#include "server/attempts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "server/allowed.h"
#include "server/attempts_private.h"
#include "server/device_events.h"
#include "server/discovery.h"
#include "server/job.h"
#include "server/msg.h"

/* ---- down ---- */

static WorkerDown *new_down(const struct job *j, Tandem__V1__WorkerDown__BodyCase what)
{
    WorkerDown *down = msg_new(&worker_down__descriptor);
    MSG_SET(down, attempt, j->row.attempt.number);
    down->body_case = what;
    return down;
}

static void send_start(struct controller *c, struct job *j)
{
    Plan *plan;
    struct error err = {0};
    const struct attempt_row *a = &j->row.attempt;
    if (store_attempt_plan(controller_store(c), j->row.id, a->number, &plan, &err) != 0) {
        log_error("job %lld: %s", (long long)j->row.id, err.text);
        /* It leaves, and the next attempt gets a plan of its own. */
        controller_end_stream(c, j->worker, ERR_FAILED_PRECONDITION, "%s", err.text);
        return;
    }
    WorkerDown *down = new_down(j, WORKER_DOWN__BODY_START);
    down->start = msg_new(&start__descriptor);
    down->start->plan = plan;
    down->start->roots = allowed_for(controller_about(c)->allowed, j->row.tenant);
    down->start->private_dir = allowed_private(controller_about(c)->allowed);
    char dir[4096];
    if (*a->resume_dir && job_dir(dir, sizeof dir, controller_about(c)->data_dir, j->row.id)) {
        msg_printf(&down->start->resume_dir, "%s/%s", dir, a->resume_dir);
        MSG_SET(down->start, resume_step, a->start_step);
    }
    controller_send(c, j->worker, down);
}

void attempts_send(struct controller *c, struct job *j, enum supervisor_send what)
{
    if (!j->worker) {
        return;
    }
    WorkerDown *down;
    switch (what) {
    case SEND_NOTHING:
        break;
    case SEND_START:
        send_start(c, j);
        break;
    case SEND_STOP:
        down = new_down(j, WORKER_DOWN__BODY_STOP_AT_STEP);
        down->stop_at_step = msg_new(&stop_at_step__descriptor);
        controller_send(c, j->worker, down);
        break;
    case SEND_CANCEL:
        down = new_down(j, WORKER_DOWN__BODY_CANCEL);
        down->cancel = msg_new(&cancel_attempt__descriptor);
        MSG_SET(down->cancel, grace_ms, SUPERVISOR_GRACE_MS);
        msg_text(&down->cancel->reason, j->row.message);
        controller_send(c, j->worker, down);
        break;
    case SEND_REFUSAL:
        controller_end_stream(c, j->worker, ERR_FAILED_PRECONDITION,
                              "job %lld is %s: attempt %d is not wanted any more",
                              (long long)j->row.id, job_state_name(j->row.state),
                              j->row.attempt.number);
        break;
    }
}

/* ---- up ---- */

/* Only the process that was started for the attempt speaks for it, and only until it is known to be
 * gone: by then its devices may be another's. */
static int check_who(const struct job *j, const Hello *h, struct error *err)
{
    const struct attempt_row *a = &j->row.attempt;
    if (!attempts_has_process(j)) {
        return error_set(err, ERR_FAILED_PRECONDITION,
                         "attempt %d of job %lld has no process any more", a->number,
                         (long long)j->row.id);
    }
    bool same = h->has_pid && h->pid == a->pid &&
                (!a->start_time || (h->has_start_time && h->start_time == a->start_time)) &&
                h->boot_id && strcmp(h->boot_id, a->boot_id) == 0;
    if (!same) {
        return error_set(err, ERR_FAILED_PRECONDITION,
                         "attempt %d of job %lld is pid %lld of boot %s, not pid %d of boot %s",
                         a->number, (long long)j->row.id, (long long)a->pid, a->boot_id, h->pid,
                         h->boot_id ? h->boot_id : "?");
    }
    return 0;
}

static int on_hello(struct controller *c, struct job *j, struct call *call, const Hello *h,
                    struct error *err)
{
    if (j->worker == call) {
        return error_set(err, ERR_ABORTED, "hello was said before");
    }
    if (check_who(j, h, err) != 0) {
        return -1;
    }
    if (j->worker) {
        /* The old connection may not have noticed yet that it is dead. */
        controller_end_stream(c, j->worker, ERR_ABORTED, "replaced by a newer connection");
        controller_lease(c, j->worker, false);
        call_unref(j->worker);
        j->worker = NULL;
    }
    controller_touch(c, j);
    j->worker = call_ref(call);
    discovery_of_attempt(c, j, h);
    j->ack_due = j->row.attempt.acked_seq > 0;
    controller_lease(c, call, true);
    struct supervisor_event e = {.kind = SUPERVISE_ATTACHED, .fresh = h->fresh};
    if (attempts_apply(c, j, &e, "worker", err) != 0) {
        return -1;
    }
    if (j->row.attempt.condition == ATTEMPT_LAUNCHED) {
        attempts_set_condition(c, j, ATTEMPT_STARTED);
    } else if (!h->fresh) {
        return controller_event(c, j, "note", "worker", 0, err, "tandem-node is attached again");
    }
    return 0;
}

static double or_nan(protobuf_c_boolean has, double value)
{
    return has ? value : (double)NAN;
}

/* By the clock where it isn't told. */
static void set_pace(const struct controller *c, struct job *j, const StepMetrics *m)
{
    int64_t now_ms = controller_now_ms(c), steps = m->step - j->row.step;
    double took_ms = j->step_at_ms ? (double)(now_ms - j->step_at_ms) / (double)steps : 0;
    took_ms = m->has_step_ms && m->step_ms > 0 ? m->step_ms : took_ms;
    if (took_ms > 0 && took_ms < 1e12) {
        job_pace_add(&j->pace, took_ms);
    }
    j->step_at_ms = now_ms;
}

static int on_metrics(struct controller *c, struct job *j, const StepMetrics *up, struct error *err)
{
    StepMetrics m = *up;
    MSG_SET(&m, job_id, j->row.id);
    MSG_SET(&m, attempt, j->row.attempt.number);
    if (m.step < 1 || m.step > j->row.total_steps) {
        log_warn("job %lld: metrics of step %lld, which it doesn't have", (long long)j->row.id,
                 (long long)m.step);
        return 0;
    }
    if (store_metric_insert(controller_store(c), &m, err) != 0) {
        return -1;
    }
    if (m.step > j->row.step) {
        set_pace(c, j, &m);
        j->row.step = m.step;
        j->row.loss = or_nan(m.has_loss, m.loss);
        /* A single step says little on a busy host: what is left, and how fast, goes by the pace.
         */
        double smooth =
            j->pace.step_ms > 0 && m.has_step_ms && m.step_ms > 0 ? m.step_ms / j->pace.step_ms : 1;
        j->row.step_ms = j->pace.step_ms > 0 ? j->pace.step_ms : (double)NAN;
        j->row.tokens_per_s = or_nan(m.has_tokens_per_s, m.tokens_per_s * smooth);
        j->row.mfu = or_nan(m.has_mfu, m.mfu * smooth);
    }
    struct feed_mail *f = feed_mail_new(j->row.id, j->row.tenant);
    f->metrics = msg_new(&step_metrics__descriptor);
    *f->metrics = m;
    controller_feed(c, f);
    return 0;
}

/* A folder below the job's: what a worker names can't lead out of it. */
static bool is_below(const char *dir)
{
    return dir && *dir && dir[0] != '/' && !strstr(dir, "..") && strlen(dir) < 96;
}

static int on_checkpoint(struct controller *c, struct job *j, const CheckpointDone *done,
                         struct error *err)
{
    if (!is_below(done->dir) || done->step < 0) {
        log_warn("job %lld: a checkpoint without a usable folder", (long long)j->row.id);
        return 0;
    }
    Checkpoint k = CHECKPOINT__INIT;
    k.job_id = j->row.id;
    k.attempt = j->row.attempt.number;
    k.step = done->step;
    k.path = done->dir;
    k.size_bytes = done->size_bytes;
    k.has_loss = done->has_loss;
    k.loss = done->loss;
    k.created_us = controller_wall_us(c);
    if (store_checkpoint_insert(controller_store(c), &k, err) != 0) {
        return -1;
    }
    j->saved_ms = controller_now_ms(c);
    return controller_event(c, j, "checkpoint", "worker", done->step, err, "%s", done->dir);
}

static int on_rank_exit(struct controller *c, struct job *j, const RankExit *x, struct error *err)
{
    if (x->kind == EXIT_OK) {
        return 0;
    }
    if (x->message && *x->message) {
        return controller_event(c, j, "rank-exit", "worker", x->step, err, "rank %d: %s", x->rank,
                                x->message);
    }
    return controller_event(c, j, "rank-exit", "worker", x->step, err, "rank %d %s %d", x->rank,
                            x->kind == EXIT_SIGNAL ? "was killed by signal" : "left with code",
                            x->code);
}

static int on_end(struct controller *c, struct job *j, const AttemptEnd *end, struct error *err)
{
    if (j->row.attempt.condition >= ATTEMPT_ENDED) {
        return 0;
    }
    attempts_set_condition(c, j, ATTEMPT_ENDED);
    j->row.attempt.ended_us = controller_wall_us(c);
    struct supervisor_event e = {.kind = SUPERVISE_ENDED,
                                 .finished = end->finished,
                                 .paused = end->paused,
                                 .cancelled = end->cancelled,
                                 .retryable = end->retryable,
                                 .counted = true,
                                 .message = end->message};
    return attempts_apply(c, j, &e, "worker", err);
}

static void send_comm_id(struct controller *c, struct job *j)
{
    WorkerDown *down = new_down(j, WORKER_DOWN__BODY_COMM_ID);
    down->comm_id = msg_new(&comm_id__descriptor);
    down->comm_id->id.data = malloc(j->comm_id_len);
    ASSERT(down->comm_id->id.data);
    memcpy(down->comm_id->id.data, j->comm_id, j->comm_id_len);
    down->comm_id->id.len = j->comm_id_len;
    down->comm_id->has_id = 1;
    controller_send(c, j->worker, down);
}

/* The first one counts, for all nodes of the attempt. Said again, it is answered again: the answer
 * may have been lost with a stream. */
static int on_comm_id(struct controller *c, struct job *j, const CommId *id, struct error *err)
{
    int32_t attempt = j->row.attempt.number;
    if (!id->has_id || id->id.len == 0 || id->id.len > ATTEMPT_COMM_ID_MAX) {
        return error_set(err, ERR_INVALID_ARGUMENT,
                         "an id of %zu bytes for the communicators of attempt %d of job %lld; "
                         "1 to %d can be",
                         id->has_id ? id->id.len : 0, attempt, (long long)j->row.id,
                         ATTEMPT_COMM_ID_MAX);
    }
    bool is_first = j->comm_id_attempt != attempt;
    if (!is_first &&
        (j->comm_id_len != id->id.len || memcmp(j->comm_id, id->id.data, id->id.len) != 0)) {
        return error_set(err, ERR_FAILED_PRECONDITION,
                         "attempt %d of job %lld has another id for its communicators already",
                         attempt, (long long)j->row.id);
    }
    if (is_first) {
        j->comm_id_attempt = attempt;
        j->comm_id_len = id->id.len;
        memcpy(j->comm_id, id->id.data, id->id.len);
    }
    send_comm_id(c, j);
    return 0;
}

static int on_body(struct controller *c, struct job *j, const WorkerUp *up, struct error *err)
{
    switch (up->body_case) {
    case WORKER_UP__BODY_METRICS:
        return on_metrics(c, j, up->metrics, err);
    case WORKER_UP__BODY_RANK_EXIT:
        return on_rank_exit(c, j, up->rank_exit, err);
    case WORKER_UP__BODY_CHECKPOINT_DONE:
        return on_checkpoint(c, j, up->checkpoint_done, err);
    case WORKER_UP__BODY_EXPORT_DONE:
        if (is_below(up->export_done->dir)) {
            snprintf(j->row.export_dir, sizeof j->row.export_dir, "%s", up->export_done->dir);
        }
        return 0;
    case WORKER_UP__BODY_ATTEMPT_END:
        return on_end(c, j, up->attempt_end, err);
    case WORKER_UP__BODY_NOTE:
        return controller_event(c, j, "note", "worker", 0, err, "%s",
                                up->note->message ? up->note->message : "");
    case WORKER_UP__BODY_DEVICE_EVENT:
        return device_events_take(c, j, up->device_event, err);
    default:
        return 0; /* progress; or of a newer worker */
    }
}

/* The next report of its attempt, or one that is known already. */
static int take_report(struct controller *c, struct job *j, const WorkerUp *up, struct error *err)
{
    controller_touch(c, j);
    if (up->seq <= j->row.attempt.acked_seq) {
        return 0; /* it didn't hear that we have it */
    }
    j->row.attempt.acked_seq = up->seq;
    return on_body(c, j, up, err);
}

int attempts_take_over(struct controller *c, struct job *j, const struct replay *r,
                       struct error *err)
{
    j->first_replayed = j->first_replayed ? j->first_replayed : j->row.attempt.acked_seq + 1;
    for (size_t i = 0; i < r->num_ups; i++) {
        const WorkerUp *up = r->ups[i];
        if (up->attempt != j->row.attempt.number || up->seq > j->row.attempt.acked_seq + 1) {
            break; /* not ours, or not next: it is read again */
        }
        if (take_report(c, j, up, err) != 0) {
            return -1;
        }
    }
    return 0;
}

int attempts_on_up(void *controller, struct mail *m, struct error *err)
{
    struct controller *c = controller;
    const WorkerUp *up = (const WorkerUp *)m->message;
    const struct caller *who = call_caller(m->call);
    struct job *j = controller_job(c, who->job_id);
    if (!j) {
        return error_set(err, ERR_FAILED_PRECONDITION,
                         "job %lld has ended; attempt %d is not wanted any more",
                         (long long)who->job_id, who->attempt);
    }
    if (who->attempt != j->row.attempt.number) {
        return error_set(err, ERR_FAILED_PRECONDITION,
                         "attempt %d of job %lld is stale: the job is at attempt %d", who->attempt,
                         (long long)who->job_id, j->row.attempt.number);
    }
    if (!up->has_attempt || up->attempt != who->attempt || !up->has_job_id ||
        up->job_id != who->job_id) {
        return error_set(err, ERR_INVALID_ARGUMENT,
                         "a message of attempt %d of job %lld, with the token of attempt %d of job "
                         "%lld",
                         up->attempt, (long long)up->job_id, who->attempt, (long long)who->job_id);
    }
    if (up->body_case == WORKER_UP__BODY_HELLO) {
        return on_hello(c, j, m->call, up->hello, err);
    }
    if (j->worker != m->call) {
        return error_set(err, ERR_ABORTED, "say hello first");
    }
    if (up->seq <= 0 && up->body_case == WORKER_UP__BODY_COMM_ID) {
        return on_comm_id(c, j, up->comm_id, err);
    }
    if (up->seq <= 0) {
        return 0; /* what may be lost tells us nothing that we keep */
    }
    if (up->seq > j->row.attempt.acked_seq + 1) {
        return error_set(err, ERR_ABORTED, "seq %lld came, %lld was expected: attach again",
                         (long long)up->seq, (long long)j->row.attempt.acked_seq + 1);
    }
    controller_touch(c, j);
    j->ack_due = true;
    return take_report(c, j, up, err);
}

int attempts_on_closed(void *controller, struct mail *m, struct error *err)
{
    struct controller *c = controller;
    controller_lease(c, m->call, false);
    struct job *j = controller_job(c, call_caller(m->call)->job_id);
    if (!j || j->worker != m->call) {
        return 0;
    }
    call_unref(j->worker);
    j->worker = NULL;
    attempts_check_soon(c, j);
    if (j->row.attempt.condition != ATTEMPT_STARTED) {
        return 0;
    }
    controller_touch(c, j);
    j->since_ms = controller_now_ms(c);
    return controller_event(c, j, "note", "supervisor", 0, err,
                            "tandem-node is not attached; its gang trains on if it lives");
}
