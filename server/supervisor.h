/* What is to be done about a job when something happens to it: a pure function of the job, the
 * event and the clock. It moves nothing itself; the controller carries its decision out. */
#ifndef TANDEM_SERVER_SUPERVISOR_H
#define TANDEM_SERVER_SUPERVISOR_H

#include <stdbool.h>
#include <stdint.h>

#include "server/store/rows.h"

/* TERM to KILL of a cancelled gang; after that, how long tandem-node has to say that all are gone
 * before it is killed with all below it. */
#define SUPERVISOR_GRACE_MS 3000
#define SUPERVISOR_STOP_MS 5000
/* How long a started tandem-node has to attach. */
#define SUPERVISOR_ATTACH_MS 60000
/* How long tandem-node has to leave once it has said that its ranks are gone. */
#define SUPERVISOR_LEAVE_MS 10000
/* After a restart of the controller, how long a living tandem-node has to come back before a
 * cancel is carried out without it. */
#define SUPERVISOR_REATTACH_MS 5000

/* Causes of a stop that the user did not ask for; the same when it has stopped. */
#define SUPERVISOR_PREEMPTED "preempted"
#define SUPERVISOR_DRAINED "drained"
#define SUPERVISOR_LIMITED "time-limit"

/* tandem-node's lease may end this part of it later than ours, and its gang needs a moment to stop.
 */
#define SUPERVISOR_LEASE_SLACK(lease_ms) ((lease_ms) / 4)

struct supervisor_view {
    JobState state;
    int32_t target;      /* of STOPPING; 0 = none */
    const char *message; /* of the last move: who asked for the stop */
    int32_t attempt;     /* 0 = never started */
    enum attempt_condition condition;
    bool attached;
    int64_t lease_ms;  /* how long an attempt runs on unheard; 0 = for ever */
    int64_t since_ms;  /* when state or condition last changed, or the controller started */
    int64_t moved_ms;  /* when the state or its target last changed, or the controller started */
    int64_t grace_ms;  /* to save and stop for another, for a drain, at the time limit */
    const char *cause; /* of the last move */
    int32_t evictions;
    bool yields; /* another job waits for its devices, whatever it stops for by now */
    int32_t restarts;
    int64_t mark_step; /* farthest step at the last counted restart */
    int64_t step;      /* last reported */
    int64_t max_restarts, reset_after_steps;
    int64_t first_backoff_ms, max_backoff_ms;
};

enum supervisor_kind {
    SUPERVISE_ATTACHED, /* tandem-node says hello; fresh: it has no ranks yet */
    SUPERVISE_ENDED,    /* it says that its ranks are gone, and how */
    SUPERVISE_LOST,     /* it is known to be gone, and has not said so; or it couldn't be started;
                         * or it was killed and a process of it won't go */
    SUPERVISE_TICK,
    SUPERVISE_CANCEL,
    SUPERVISE_PAUSE,
    SUPERVISE_RESUME,
    SUPERVISE_HOLD,
    SUPERVISE_RELEASE,
    /* It is to stop at the next step boundary, with a checkpoint; message says why. Where it does
     * not run there is nothing to do. */
    SUPERVISE_PREEMPT, /* for another job; then it waits again */
    SUPERVISE_DRAIN,   /* off devices that are drained; then it waits again */
    SUPERVISE_LIMIT,   /* its time is over; then it has failed */
};

struct supervisor_event {
    enum supervisor_kind kind;
    bool fresh;                       /* ATTACHED */
    bool finished, paused, cancelled; /* ENDED */
    bool retryable;                   /* ENDED, LOST */
    bool counted;                     /* LOST: false = it costs no restart */
    const char *message;              /* ENDED, LOST, PREEMPT, DRAIN, LIMIT: in the user's words */
    const char *user;                 /* requests */
};

enum supervisor_send { SEND_NOTHING, SEND_START, SEND_STOP, SEND_CANCEL, SEND_REFUSAL };

struct supervisor_decision {
    const char *refusal; /* a request that can't be met, and why; else NULL */
    bool moves;
    JobState to;
    int32_t target;
    const char *cause;
    char message[512];
    int32_t restarts, evictions;
    int64_t mark_step;
    int64_t backoff_ms;
    bool keeps_grace;          /* the stop goes on: so does the time that it has for that */
    enum supervisor_send send; /* to tandem-node */
    bool kill;                 /* tandem-node and all below it, by the launcher */
    const char *why_kill;      /* for the job's events; NULL = they know */
};

/* Whether a job that stops is killed when its grace is over. A pause has the time that it needs,
 * unless others wait for the end of it, too: then the cause of the stop is theirs. */
bool supervisor_has_grace(int32_t target, const char *cause, bool yields);

void supervisor_decide(const struct supervisor_view *v, const struct supervisor_event *e,
                       int64_t now_ms, struct supervisor_decision *out);

#endif
