#include "server/supervisor.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "server/job.h"

static void move(struct supervisor_decision *d, JobState to, const char *cause, const char *fmt,
                 ...) __attribute__((format(printf, 4, 5)));

static void move(struct supervisor_decision *d, JobState to, const char *cause, const char *fmt,
                 ...)
{
    d->moves = true;
    d->to = to;
    d->target = 0;
    d->cause = cause;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(d->message, sizeof d->message, fmt, ap);
    va_end(ap);
}

static const char *words(const struct supervisor_event *e)
{
    return e->message && *e->message ? e->message : "the gang ended without saying why";
}

/* The cause of a stop that its user did not ask for, as a word that outlives the row; else NULL. */
static const char *cause_of_others(const char *cause)
{
    static const char *const causes[] = {SUPERVISOR_PREEMPTED, SUPERVISOR_DRAINED,
                                         SUPERVISOR_LIMITED};
    for (size_t i = 0; cause && i < sizeof causes / sizeof *causes; i++) {
        if (strcmp(cause, causes[i]) == 0) {
            return causes[i];
        }
    }
    return NULL;
}

bool supervisor_has_grace(int32_t target, const char *cause, bool yields)
{
    return target != JOB_PAUSED || yields || cause_of_others(cause) != NULL;
}

static int64_t backoff(const struct supervisor_view *v, int32_t restarts)
{
    int64_t ms = v->first_backoff_ms;
    for (int32_t i = 1; i < restarts && ms < v->max_backoff_ms; i++) {
        ms *= 2;
    }
    return ms < v->max_backoff_ms ? ms : v->max_backoff_ms;
}

/* The gang is gone and should not be: again, within the budget. */
static void restart(const struct supervisor_view *v, const struct supervisor_event *e,
                    struct supervisor_decision *d)
{
    if (!e->retryable) {
        move(d, JOB_FAILED, "failed", "%s", words(e));
        return;
    }
    if (e->kind == SUPERVISE_LOST && !e->counted) {
        move(d, JOB_QUEUED, "restart", "%s", words(e));
        return;
    }
    /* Real progress is beyond the farthest point of the last failure. */
    int32_t before =
        v->restarts > 0 && v->step - v->mark_step >= v->reset_after_steps ? 0 : v->restarts;
    d->mark_step = before > 0 && v->mark_step > v->step ? v->mark_step : v->step;
    d->restarts = before;
    if (before >= v->max_restarts) {
        move(d, JOB_FAILED, "restarts-spent", "%s (restarted %d times, retry.max_restarts %lld)",
             words(e), before, (long long)v->max_restarts);
        return;
    }
    d->restarts = before + 1;
    d->backoff_ms = backoff(v, d->restarts);
    move(d, JOB_QUEUED, "restart", "%.400s (restart %d of %lld in %g s)", words(e), d->restarts,
         (long long)v->max_restarts, (double)d->backoff_ms / 1000);
}

static bool saved(const struct supervisor_event *e)
{
    return e->kind == SUPERVISE_ENDED ? e->paused || e->cancelled : !e->counted;
}

/* The cause of the stop, as a word that outlives the row. */
static const char *cause_of_stop(const struct supervisor_view *v)
{
    return v->target == JOB_FAILED                                   ? SUPERVISOR_LIMITED
           : v->cause && strcmp(v->cause, SUPERVISOR_PREEMPTED) == 0 ? SUPERVISOR_PREEMPTED
                                                                     : SUPERVISOR_DRAINED;
}

/* It was to stop, but not by its user's wish: for another job, a drain, its time limit. However it
 * went, that is what becomes of it, and it costs no restart. */
static void stopped_for_others(const struct supervisor_view *v, const struct supervisor_event *e,
                               struct supervisor_decision *d)
{
    const char *why = v->message ? v->message : "";
    /* "gives its 4 devices to job 12", "gives them back: alpha:2 is drained": said when asked. */
    bool gives = strncmp(why, "gives ", 6) == 0;
    why += gives ? 6 : 0;
    const char *reason = gives ? strstr(why, ": ") : NULL;
    int len = (int)(reason ? (size_t)(reason - why) : strnlen(why, 250));
    char end[200];
    snprintf(end, sizeof end, "; it died while it was stopping (%.100s)", words(e));
    move(d, (JobState)v->target, cause_of_stop(v), "%s%.*s after step %lld%.200s%s",
         gives ? "gave " : "", len, why, (long long)v->step, reason ? reason : "",
         saved(e) ? "" : end);
    if (v->target == JOB_QUEUED && strcmp(d->cause, SUPERVISOR_PREEMPTED) == 0) {
        d->evictions = v->evictions < INT32_MAX ? v->evictions + 1 : v->evictions;
    }
}

static void stopped(const struct supervisor_view *v, const struct supervisor_event *e,
                    struct supervisor_decision *d)
{
    if (v->target == JOB_CANCELLED) {
        /* Whatever else happened on the way: the user's wish is why it ends. */
        const char *why = v->message && *v->message ? v->message : e->message;
        move(d, JOB_CANCELLED, "cancelled", "%s", why ? why : "");
    } else if (e->kind == SUPERVISE_ENDED && e->finished) {
        move(d, JOB_SUCCEEDED, "finished", "finished before it could %s",
             v->target == JOB_PAUSED ? "pause" : "stop");
    } else if (v->target == JOB_QUEUED || v->target == JOB_FAILED) {
        stopped_for_others(v, e, d);
    } else if (v->target == JOB_HELD) {
        move(d, JOB_HELD, "held", "%s", v->message ? v->message : "");
    } else if (saved(e)) {
        move(d, JOB_PAUSED, "paused", "%s", e->message ? e->message : "");
    } else {
        move(d, JOB_PAUSED, "paused",
             "died while it was pausing (%s); it can be resumed from its newest checkpoint",
             words(e));
    }
}

static void ended(const struct supervisor_view *v, const struct supervisor_event *e,
                  struct supervisor_decision *d)
{
    if (v->state == JOB_STOPPING) {
        stopped(v, e, d);
    } else if (v->state != JOB_STARTING && v->state != JOB_RUNNING) {
        return; /* it has been decided already */
    } else if (e->kind == SUPERVISE_ENDED && e->finished && v->state == JOB_RUNNING) {
        move(d, JOB_SUCCEEDED, "finished", "%s", e->message ? e->message : "");
    } else {
        restart(v, e, d);
    }
}

static void attached(const struct supervisor_view *v, const struct supervisor_event *e,
                     struct supervisor_decision *d)
{
    if (v->condition == ATTEMPT_ENDED) {
        return; /* only its acknowledgement was lost */
    }
    if (v->state == JOB_STOPPING) {
        d->send = v->target == JOB_CANCELLED || e->fresh ? SEND_CANCEL : SEND_STOP;
    } else if (v->state == JOB_STARTING) {
        move(d, JOB_RUNNING, "started", "%s", "");
        d->send = SEND_START;
    } else if (v->state == JOB_RUNNING) {
        d->send = e->fresh ? SEND_START : SEND_NOTHING;
    } else {
        d->send = SEND_REFUSAL;
    }
}

static bool has_process(const struct supervisor_view *v)
{
    return v->attempt > 0 && v->condition >= ATTEMPT_LAUNCHED && v->condition < ATTEMPT_GONE;
}

static void tick(const struct supervisor_view *v, int64_t now_ms, struct supervisor_decision *d)
{
    if (!has_process(v)) {
        return;
    }
    int64_t age_ms = now_ms - v->since_ms;
    if (v->condition == ATTEMPT_ENDED) {
        d->kill = age_ms > SUPERVISOR_LEAVE_MS;
    } else if (v->state == JOB_STOPPING && !v->attached && v->condition == ATTEMPT_LAUNCHED) {
        d->kill = true; /* it has no ranks yet, and would only be told to leave */
    } else if (v->state == JOB_STOPPING && v->target == JOB_CANCELLED) {
        d->kill = age_ms >
                  (v->attached ? SUPERVISOR_GRACE_MS + SUPERVISOR_STOP_MS : SUPERVISOR_REATTACH_MS);
    } else if (v->state == JOB_STOPPING && now_ms - v->moved_ms > v->grace_ms &&
               supervisor_has_grace(v->target, v->cause, v->yields)) {
        d->kill = true;
        d->why_kill = "it has not saved and stopped within its grace (scheduler.grace_s): it is "
                      "killed";
    } else if (v->lease_ms && !v->attached && v->condition == ATTEMPT_STARTED &&
               age_ms > v->lease_ms + SUPERVISOR_LEASE_SLACK(v->lease_ms)) {
        d->kill = true;
        d->why_kill = "tandem-node has not been heard of and its lease is over: it is killed";
    } else if (v->state == JOB_STARTING) {
        d->kill = !v->attached && age_ms > SUPERVISOR_ATTACH_MS;
    } else if (v->state != JOB_RUNNING && v->state != JOB_STOPPING) {
        d->kill = true;
    }
}

static void cancel(const struct supervisor_view *v, const struct supervisor_event *e,
                   struct supervisor_decision *d)
{
    if (job_state_is_end(v->state)) {
        return; /* nothing left to cancel */
    }
    bool running = v->state == JOB_STARTING || v->state == JOB_RUNNING || v->state == JOB_STOPPING;
    if (!running) {
        move(d, JOB_CANCELLED, "cancelled", "cancelled by %s", e->user);
        return;
    }
    if (v->state == JOB_STOPPING && v->target == JOB_CANCELLED) {
        return;
    }
    move(d, JOB_STOPPING, "cancelled", "cancelled by %s", e->user);
    d->target = JOB_CANCELLED;
    d->send = v->attached ? SEND_CANCEL : SEND_NOTHING;
}

/* It stops for another reason: the way, the cause and the grace are the same, only the end is the
 * user's. */
static void take_over_stop(const struct supervisor_view *v, JobState target, const char *word,
                           const char *user, struct supervisor_decision *d)
{
    const char *cause = cause_of_others(v->cause);
    move(d, JOB_STOPPING, cause ? cause : word, "%s by %s", word, user);
    d->target = (int32_t)target;
    d->keeps_grace = true;
}

static void pause_job(const struct supervisor_view *v, const struct supervisor_event *e,
                      struct supervisor_decision *d)
{
    switch (v->state) {
    case JOB_PAUSED:
        return;
    case JOB_QUEUED:
        move(d, JOB_PAUSED, "paused", "paused by %s", e->user);
        return;
    case JOB_STARTING:
    case JOB_RUNNING:
        move(d, JOB_STOPPING, "paused", "paused by %s", e->user);
        d->target = JOB_PAUSED;
        d->send = v->attached ? SEND_STOP : SEND_NOTHING;
        return;
    case JOB_STOPPING:
        if (v->target == JOB_CANCELLED) {
            d->refusal = "it is being cancelled";
        } else if (v->target != JOB_PAUSED) {
            take_over_stop(v, JOB_PAUSED, "paused", e->user, d);
        }
        return;
    case JOB_HELD:
        d->refusal = "it is held and does not run; release it, or leave it held";
        return;
    default:
        d->refusal = "it has ended";
        return;
    }
}

static void resume(const struct supervisor_view *v, const struct supervisor_event *e,
                   struct supervisor_decision *d)
{
    switch (v->state) {
    case JOB_PAUSED:
    case JOB_FAILED:
    case JOB_CANCELLED:
        move(d, JOB_QUEUED, "paused-resume", "resumed by %s", e->user);
        d->restarts = 0;
        d->mark_step = v->step;
        return;
    case JOB_HELD:
        d->refusal = "it is held: release it";
        return;
    case JOB_STOPPING:
        if (v->target != JOB_QUEUED) {
            d->refusal = "it is still stopping; resume it once it has stopped";
        }
        return;
    case JOB_SUCCEEDED:
        d->refusal = "it has finished all its steps";
        return;
    default:
        return; /* queued or running already */
    }
}

static void hold(const struct supervisor_view *v, const struct supervisor_event *e,
                 struct supervisor_decision *d)
{
    if (v->state == JOB_QUEUED) {
        move(d, JOB_HELD, "held", "held by %s", e->user);
    } else if (v->state == JOB_STOPPING && v->target == JOB_QUEUED) {
        take_over_stop(v, JOB_HELD, "held", e->user, d);
    } else if (v->state != JOB_HELD && !(v->state == JOB_STOPPING && v->target == JOB_HELD)) {
        d->refusal = "only a job that waits in the queue can be held";
    }
}

static void release(const struct supervisor_view *v, const struct supervisor_event *e,
                    struct supervisor_decision *d)
{
    if (v->state == JOB_HELD) {
        move(d, JOB_QUEUED, "new", "released by %s", e->user);
    } else if (v->state == JOB_STOPPING && v->target == JOB_HELD) {
        d->refusal = "it is still stopping; release it once it has stopped";
    } else if (v->state != JOB_QUEUED) {
        d->refusal = "it is not held";
    }
}

static void stop_for_others(const struct supervisor_view *v, const struct supervisor_event *e,
                            struct supervisor_decision *d)
{
    bool limit = e->kind == SUPERVISE_LIMIT;
    const char *cause = limit                          ? SUPERVISOR_LIMITED
                        : e->kind == SUPERVISE_PREEMPT ? SUPERVISOR_PREEMPTED
                                                       : SUPERVISOR_DRAINED;
    if (v->state == JOB_STOPPING && !supervisor_has_grace(v->target, v->cause, v->yields)) {
        /* A pause that may take as long as a step does: from now on no longer than the grace. */
        move(d, JOB_STOPPING, cause, "%s", e->message ? e->message : "");
        d->target = v->target;
        return;
    }
    if (v->state != JOB_STARTING && v->state != JOB_RUNNING) {
        return; /* it has stopped, or stops already */
    }
    move(d, JOB_STOPPING, cause, "%s", e->message ? e->message : "");
    d->target = limit ? JOB_FAILED : JOB_QUEUED;
    d->send = v->attached ? SEND_STOP : SEND_NOTHING;
}

void supervisor_decide(const struct supervisor_view *v, const struct supervisor_event *e,
                       int64_t now_ms, struct supervisor_decision *d)
{
    memset(d, 0, sizeof *d);
    d->restarts = v->restarts;
    d->evictions = v->evictions;
    d->mark_step = v->mark_step;
    switch (e->kind) {
    case SUPERVISE_ATTACHED:
        attached(v, e, d);
        return;
    case SUPERVISE_ENDED:
    case SUPERVISE_LOST:
        ended(v, e, d);
        return;
    case SUPERVISE_TICK:
        tick(v, now_ms, d);
        return;
    case SUPERVISE_CANCEL:
        cancel(v, e, d);
        return;
    case SUPERVISE_PAUSE:
        pause_job(v, e, d);
        return;
    case SUPERVISE_RESUME:
        resume(v, e, d);
        return;
    case SUPERVISE_HOLD:
        hold(v, e, d);
        return;
    case SUPERVISE_RELEASE:
        release(v, e, d);
        return;
    case SUPERVISE_PREEMPT:
    case SUPERVISE_DRAIN:
    case SUPERVISE_LIMIT:
        stop_for_others(v, e, d);
        return;
    }
}
