/* What happens to an attempt: launched, checked, lost, stopped. */
#include "server/attempts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "server/account.h"
#include "server/attempts_private.h"
#include "server/job.h"
#include "server/msg.h"
#include "server/run_as.h"

/* How often a process that isn't attached is looked for. */
#define CHECK_FIRST_MS 4
#define CHECK_MS 250
/* Checks until a journal that can't be read is given up: some seconds. */
#define UNREAD_MOST 20
/* How exact the supervisor's deadlines are. */
#define TICK_MS 200
/* A kill that didn't help is tried again after this. */
#define KILL_AGAIN_MS 5000

bool attempts_has_process(const struct job *j)
{
    const struct attempt_row *a = &j->row.attempt;
    return a->number && a->condition >= ATTEMPT_LAUNCHED && a->condition < ATTEMPT_GONE;
}

void attempts_check_soon(struct controller *c, struct job *j)
{
    j->check_due_ms = controller_now_ms(c);
    j->check_wait_ms = CHECK_FIRST_MS;
}

void attempts_set_condition(struct controller *c, struct job *j, enum attempt_condition to)
{
    bool frees = to == ATTEMPT_GONE && j->row.attempt.condition != ATTEMPT_GONE;
    controller_touch(c, j);
    j->row.attempt.condition = to;
    j->since_ms = controller_now_ms(c);
    if (frees) {
        struct attempt_row *a = &j->row.attempt;
        const struct account_span held = {.whole = !j->began_before,
                                          .since_ms = j->began_ms,
                                          .created_us = a->created_us,
                                          .now_ms = controller_now_ms(c),
                                          .wall_us = controller_wall_us(c)};
        tenants_hold(controller_tenants(c), j->tenant, -j->row.devices, held.now_ms);
        a->ended_us = a->ended_us ? a->ended_us : held.wall_us;
        int64_t held_us = account_held_us(&held);
        a->device_us = account_device_us(a->num_devices, held_us);
        a->gone_us = a->created_us + held_us;
        controller_set_devices(c, j, NULL);
        controller_schedule(c); /* devices are free */
    }
}

static struct supervisor_view view(const struct controller *c, const struct job *j)
{
    struct supervisor_view v = {.lease_ms = controller_about(c)->lease_ms,
                                .state = j->row.state,
                                .target = j->row.target,
                                .message = j->row.message,
                                .cause = j->row.cause,
                                .attempt = j->row.attempt.number,
                                .condition = j->row.attempt.condition,
                                .attached = j->worker != NULL,
                                .since_ms = j->since_ms,
                                .moved_ms = j->moved_ms,
                                .grace_ms = 1000 * (int64_t)controller_scheduler(c)->grace_s,
                                .restarts = j->row.restarts,
                                .yields = j->row.attempt.yields_to != 0,
                                .evictions = j->row.evictions,
                                .mark_step = j->row.mark_step,
                                .step = j->row.step};
    const RetrySpec *r = j->spec ? j->spec->retry : NULL;
    if (r) {
        v.max_restarts = r->max_restarts;
        v.reset_after_steps = r->reset_after_steps;
        v.first_backoff_ms = (int64_t)(r->first_backoff_s * 1000);
        v.max_backoff_ms = (int64_t)(r->max_backoff_s * 1000);
    }
    return v;
}

static void kill_attempt(struct controller *c, struct job *j);

static int move_as_decided(struct controller *c, struct job *j, const struct supervisor_decision *d,
                           const char *actor, struct error *err)
{
    int64_t moved_ms = j->moved_ms;
    if (controller_move(c, j, d->to, d->cause, d->message, actor, err) != 0) {
        return -1;
    }
    j->moved_ms = d->keeps_grace ? moved_ms : j->moved_ms;
    j->row.target = d->target;
    j->row.restarts = d->restarts;
    if (d->evictions > j->row.evictions) {
        j->row.attempt.evicted = true;
    }
    j->row.evictions = d->evictions;
    j->row.mark_step = d->mark_step;
    j->not_before_ms = d->backoff_ms ? controller_now_ms(c) + d->backoff_ms : 0;
    j->row.not_before_us = d->backoff_ms ? controller_wall_us(c) + 1000 * d->backoff_ms : 0;
    return 0;
}

int attempts_apply(struct controller *c, struct job *j, const struct supervisor_event *e,
                   const char *actor, struct error *err)
{
    struct supervisor_view v = view(c, j);
    struct supervisor_decision d;
    supervisor_decide(&v, e, controller_now_ms(c), &d);
    if (d.refusal) {
        return error_set(err, ERR_FAILED_PRECONDITION, "job %lld is %s: %s", (long long)j->row.id,
                         job_state_name(j->row.state), d.refusal);
    }
    if (d.moves && move_as_decided(c, j, &d, actor, err) != 0) {
        return -1;
    }
    attempts_send(c, j, d.send);
    if (d.kill && !j->kill_pending && controller_now_ms(c) >= j->next_kill_ms) {
        kill_attempt(c, j);
        /* Until it is seen to be gone nothing else is to be done about it. */
        controller_touch(c, j);
        j->next_kill_ms = controller_now_ms(c) + KILL_AGAIN_MS;
        return d.why_kill ? controller_event(c, j, "note", "supervisor", 0, err, "%s", d.why_kill)
                          : 0;
    }
    return 0;
}

int attempts_request(struct controller *c, struct job *j, enum supervisor_kind kind,
                     const char *user, struct error *err)
{
    if (!j->spec && kind == SUPERVISE_RESUME) {
        return error_set(err, ERR_DATA_LOSS, "job %lld can't run again: its stored spec is damaged",
                         (long long)j->row.id);
    }
    struct supervisor_event e = {.kind = kind, .user = user};
    if (kind == SUPERVISE_DRAIN) {
        e = (struct supervisor_event){.kind = kind, .message = user};
        return attempts_apply(c, j, &e, "drain", err);
    }
    return attempts_apply(c, j, &e, user, err);
}

/* ---- the launch thread's answers ---- */

/* The job of a mail, if the mail is about its present attempt. */
static struct job *job_of(struct controller *c, const struct launch_mail *m)
{
    struct job *j = controller_job(c, m->job_id);
    return j && j->row.attempt.number == m->attempt ? j : NULL;
}

static void set_handle(const struct controller *c, struct launch_handle *h, const struct job *j)
{
    const struct attempt_row *a = &j->row.attempt;
    const char *user = run_as_user(controller_about(c)->run_as, j->row.tenant);
    snprintf(h->user, sizeof h->user, "%s", user ? user : "");
    h->pid = a->pid;
    h->start_time = a->start_time;
    memcpy(h->boot_id, a->boot_id, sizeof h->boot_id);
}

/* The process is gone, and everything below it. */
static int on_gone(struct controller *c, struct job *j, const char *message, bool counted,
                   struct error *err)
{
    bool said_so = j->row.attempt.condition == ATTEMPT_ENDED;
    if (*j->stuck && controller_event(c, j, "note", "supervisor", 0, err,
                                      "its processes are gone after all; its devices are free "
                                      "again") != 0) {
        return -1;
    }
    j->stuck[0] = 0;
    attempts_set_condition(c, j, ATTEMPT_GONE);
    if (said_so) {
        return 0;
    }
    struct supervisor_event e = {
        .kind = SUPERVISE_LOST, .retryable = true, .counted = counted, .message = message};
    return attempts_apply(c, j, &e, "supervisor", err);
}

/* What was killed and won't go (uninterruptible in the kernel, most likely) holds the devices, but
 * not the job: that goes on, or ends, as if it were gone. The attempt's condition stays. */
static int on_stuck(struct controller *c, struct job *j, const char *which, struct error *err)
{
    j->next_kill_ms = controller_now_ms(c) + KILL_AGAIN_MS;
    if (*j->stuck) {
        return 0;
    }
    log_error("job %lld, attempt %d: %s", (long long)j->row.id, j->row.attempt.number, which);
    if (controller_event(c, j, "stuck", "supervisor", 0, err,
                         "%s; the devices of attempt %d are out of use until it is gone", which,
                         j->row.attempt.number) != 0) {
        return -1;
    }
    snprintf(j->stuck, sizeof j->stuck, "%s", which);
    if (j->row.attempt.condition == ATTEMPT_ENDED) {
        return 0;
    }
    struct supervisor_event e = {
        .kind = SUPERVISE_LOST, .retryable = true, .counted = true, .message = which};
    return attempts_apply(c, j, &e, "supervisor", err);
}

/* tandem-node is gone, and what it had not told is in m, or nothing is left of that. True: the
 * attempt is over; else it is looked at again. */
static bool has_told_all(struct controller *c, struct job *j, const struct launch_mail *m, int *rc,
                         struct error *err)
{
    *rc = 0;
    if (m->unread && ++j->num_unread < UNREAD_MOST) {
        log_warn("%s", m->error.text);
        return false;
    }
    j->num_unread = 0;
    if (m->replay.num_ups) {
        attempts_check_soon(c, j);
        *rc = attempts_take_over(c, j, &m->replay, err);
        return false;
    }
    const long long acked = (long long)j->row.attempt.acked_seq;
    if (j->first_replayed) {
        *rc = controller_event(c, j, "note", "supervisor", 0, err,
                               "tandem-node is gone; %lld reports that it had not delivered were "
                               "read from its journal",
                               acked + 1 - (long long)j->first_replayed);
        j->first_replayed = 0;
    }
    if (*rc == 0 && (m->unread || *m->replay.loss)) {
        *rc = controller_event(c, j, "note", "supervisor", 0, err,
                               "reports after number %lld of attempt %d are lost: %s", acked,
                               j->row.attempt.number, m->unread ? m->error.text : m->replay.loss);
    }
    return *rc == 0;
}

static int on_checked(void *controller, struct mail *base, struct error *err)
{
    struct controller *c = controller;
    const struct launch_mail *m = (const struct launch_mail *)base;
    struct job *j = job_of(c, m);
    if (!j || !attempts_has_process(j)) {
        return 0;
    }
    j->check_pending = false;
    j->check_due_ms = controller_now_ms(c) + j->check_wait_ms;
    j->check_wait_ms = 2 * j->check_wait_ms < CHECK_MS ? 2 * j->check_wait_ms : CHECK_MS;
    if (j->worker || (m->ok && !m->stuck)) {
        return 0; /* alive; or its stream has not ended yet, and may hold its last words */
    }
    int rc;
    if (!has_told_all(c, j, m, &rc, err)) {
        return rc;
    }
    if (m->stuck) {
        return on_stuck(c, j, m->error.text, err);
    }
    /* Without its ticket a tandem-node leaves: the controller's end is no failure of the job. */
    if (j->adopted && j->row.attempt.condition == ATTEMPT_LAUNCHED) {
        return on_gone(c, j, "the controller was restarted while it was launched", false, err);
    }
    return on_gone(c, j, "tandem-node is gone and took the gang with it", true, err);
}

static int on_killed(void *controller, struct mail *base, struct error *err)
{
    struct controller *c = controller;
    const struct launch_mail *m = (const struct launch_mail *)base;
    struct job *j = job_of(c, m);
    if (!j) {
        return 0;
    }
    j->kill_pending = false;
    attempts_check_soon(c, j);
    return m->stuck && attempts_has_process(j) ? on_stuck(c, j, m->error.text, err) : 0;
}

static void show_stuck(DeviceInfo *info, const struct job *j, const char *tenant)
{
    MSG_SET(info, drained, 1);
    free(info->reason);
    info->reason = NULL;
    if (info->job_id <= 0) {
        msg_text(&info->reason, "a process that can't be killed holds it");
    } else if (tenant && strcmp(tenant, j->row.tenant) != 0) {
        msg_text(&info->reason, "held by a process that can't be killed");
    } else {
        msg_printf(&info->reason, "job %lld: %s", (long long)j->row.id, j->stuck);
    }
}

void attempts_show_stuck(struct controller *c, ClusterSpec *cluster, const char *tenant)
{
    for (size_t i = 0; i < controller_num_active(c); i++) {
        const struct job *j = controller_active_at(c, i);
        const struct device_set *held = *j->stuck ? j->devices.now : NULL;
        for (int32_t d = 0; d < device_set_num(held); d++) {
            show_stuck(topology_device(controller_topology(c), cluster, held->device[d]), j,
                       tenant);
        }
    }
}

int attempts_on_launched(void *controller, struct mail *base, struct error *err)
{
    struct controller *c = controller;
    struct launch_mail *m = (struct launch_mail *)base;
    struct job *j = job_of(c, m);
    if (!j || j->row.attempt.condition != ATTEMPT_PLANNED) {
        return 0; /* without its ticket it leaves by itself */
    }
    if (!m->ok) {
        attempts_set_condition(c, j, ATTEMPT_GONE);
        struct supervisor_event e = {
            .kind = SUPERVISE_LOST, .retryable = true, .counted = true, .message = m->error.text};
        return attempts_apply(c, j, &e, "launcher", err);
    }
    attempts_set_condition(c, j, ATTEMPT_LAUNCHED);
    struct attempt_row *a = &j->row.attempt;
    a->pid = m->handle.pid;
    a->start_time = m->handle.start_time;
    memcpy(a->boot_id, m->handle.boot_id, sizeof a->boot_id);
    attempts_check_soon(c, j);
    if (j->row.state == JOB_STARTING) {
        j->check_wait_ms = CHECK_MS;
        j->check_due_ms += CHECK_MS;
        controller_ticket(c, m);
    }
    return 0;
}

static void check_attempt(struct controller *c, struct job *j)
{
    struct launch_mail *m =
        launch_mail_new(LAUNCH_CHECK, j->row.id, j->row.attempt.number, on_checked);
    set_handle(c, &m->handle, j);
    m->acked_seq = j->row.attempt.acked_seq;
    j->check_pending = true;
    controller_launch(c, m);
}

static void kill_attempt(struct controller *c, struct job *j)
{
    struct launch_mail *m =
        launch_mail_new(LAUNCH_KILL, j->row.id, j->row.attempt.number, on_killed);
    set_handle(c, &m->handle, j);
    j->kill_pending = true;
    controller_launch(c, m);
}

void attempts_forget_pending(struct controller *c)
{
    for (size_t i = 0; i < controller_num_jobs(c); i++) {
        struct job *j = controller_job_at(c, i);
        j->check_pending = j->kill_pending = false;
    }
}

/* ---- time ---- */

/* When the attempt has used up its time limit; INT64_MAX: never, or it stops already and has a
 * grace for that. */
static int64_t limit_due_ms(const struct job *j)
{
    const struct job_row *r = &j->row;
    bool runs = r->state == JOB_STARTING || r->state == JOB_RUNNING ||
                (r->state == JOB_STOPPING &&
                 !supervisor_has_grace(r->target, r->cause, r->attempt.yields_to != 0));
    return runs && j->spec && j->spec->time_limit_s > 0
               ? j->attempt_ms + 1000 * j->spec->time_limit_s
               : INT64_MAX;
}

static int limit_attempt(struct controller *c, struct job *j, struct error *err)
{
    char words[100];
    snprintf(words, sizeof words, "its time limit of %lld s is over",
             (long long)j->spec->time_limit_s);
    struct supervisor_event e = {.kind = SUPERVISE_LIMIT, .message = words};
    return attempts_apply(c, j, &e, "supervisor", err);
}

int attempts_tick(struct controller *c, struct error *err)
{
    int64_t now_ms = controller_now_ms(c);
    for (size_t i = 0; i < controller_num_active(c); i++) {
        struct job *j = controller_active_at(c, i);
        if (j->not_before_ms && now_ms >= j->not_before_ms) {
            j->not_before_ms = 0;
            controller_schedule(c);
        }
        if (!attempts_has_process(j)) {
            continue;
        }
        struct supervisor_event tick = {.kind = SUPERVISE_TICK};
        if (attempts_apply(c, j, &tick, "supervisor", err) != 0) {
            return -1;
        }
        if (now_ms >= limit_due_ms(j) && limit_attempt(c, j, err) != 0) {
            return -1;
        }
        if (!j->worker && !j->check_pending && now_ms >= j->check_due_ms) {
            check_attempt(c, j);
        }
    }
    return 0;
}

int64_t attempts_wait_ms(struct controller *c)
{
    const struct world *w = controller_world(c);
    int64_t now_ms = w->mono_ms(w->ctx), first_ms = INT64_MAX;
    for (size_t i = 0; i < controller_num_active(c); i++) {
        const struct job *j = controller_active_at(c, i);
        int64_t due_ms = j->not_before_ms ? j->not_before_ms : INT64_MAX;
        if (attempts_has_process(j)) {
            if (!j->worker && !j->check_pending && j->check_due_ms < due_ms) {
                due_ms = j->check_due_ms;
            }
            /* From the last batch on, which looked at all deadlines. */
            int64_t tick_ms = controller_now_ms(c) + TICK_MS;
            if (j->row.state != JOB_RUNNING && tick_ms < due_ms) {
                due_ms = tick_ms;
            }
            due_ms = limit_due_ms(j) < due_ms ? limit_due_ms(j) : due_ms;
        }
        first_ms = due_ms < first_ms ? due_ms : first_ms;
    }
    return first_ms == INT64_MAX ? -1 : first_ms > now_ms ? first_ms - now_ms : 0;
}

/* ---- a start of the controller ---- */

static int on_boot(void *controller, struct mail *m, struct error *err)
{
    (void)m;
    struct controller *c = controller;
    for (size_t i = 0; i < controller_num_jobs(c); i++) {
        struct job *j = controller_job_at(c, i);
        if (j->claim_stale) {
            controller_touch(c, j); /* written as it is now: not to come back with an older file */
        }
        if (j->row.attempt.number && j->row.attempt.condition == ATTEMPT_PLANNED &&
            on_gone(c, j, "the controller was restarted before it was launched", false, err) != 0) {
            return -1;
        }
        /* A cancel goes on without the spec. */
        bool ends = job_state_is_end(j->row.state) ||
                    (j->row.state == JOB_STOPPING && j->row.target == JOB_CANCELLED);
        if (!j->spec && !ends &&
            controller_move(c, j, JOB_FAILED, "damaged", "its stored spec is damaged", "tandemd",
                            err) != 0) {
            return -1;
        }
    }
    return 0;
}

int attempts_adopt(struct controller *c, struct error *err)
{
    (void)err;
    for (size_t i = 0; i < controller_num_jobs(c); i++) {
        struct job *j = controller_job_at(c, i);
        if (attempts_has_process(j)) {
            attempts_check_soon(c, j);
            j->adopted = true;
            log_info("job %lld, attempt %d: waiting for its tandem-node (pid %lld)",
                     (long long)j->row.id, j->row.attempt.number, (long long)j->row.attempt.pid);
        }
    }
    struct mail *first = mail_new(sizeof *first, on_boot, NULL, NULL);
    controller_post(c, first);
    return 0;
}
