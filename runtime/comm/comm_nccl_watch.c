/* The watchdog of a rank's NCCL communicators, and how they fail: see comm_nccl.h. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "runtime/comm/comm_nccl.h"

#define LOOK_MS 100
/* A peer's process is gone: tandem-node says whose and why, if it is given the time. */
#define REMOTE_GRACE_NS ((int64_t)2000000000)
/* Somebody is inside a call while the gang is aborted. */
#define STUCK_GRACE_NS ((int64_t)1000000000)

/* ---- failures ---- */

/* The first one counts. */
static void keep_reason(struct nccl_world *w, enum error_code code, const char *reason)
{
    pthread_mutex_lock(&w->wake_lock);
    if (!atomic_load(&w->has_failed)) {
        w->code = code;
        snprintf(w->reason, sizeof w->reason, "%s", reason);
        atomic_store(&w->has_failed, true);
    }
    pthread_mutex_unlock(&w->wake_lock);
}

void nccl_fail(struct nccl_world *w, enum error_code code, int32_t culprit, const char *reason)
{
    if (atomic_load(&w->has_failed)) {
        return;
    }
    if (w->board) {
        w->board->ops->abort(w->board, code, culprit, reason);
    }
    keep_reason(w, code, reason);
}

int nccl_failure(struct nccl_world *w, const char *doing, struct error *err)
{
    if (w->board && w->board->ops->aborted(w->board, doing, err)) {
        return -1;
    }
    if (!atomic_load(&w->has_failed)) {
        return error_set(err, ERR_ABORTED, "%s: the communicators are closed", doing);
    }
    return error_set(err, w->code, "%s: %s", doing, w->reason);
}

static bool is_asked_to_abort(struct nccl_world *w)
{
    pthread_mutex_lock(&w->wake_lock);
    bool asked = w->asked_to_abort;
    pthread_mutex_unlock(&w->wake_lock);
    return asked;
}

bool nccl_hear_abort(struct nccl_world *w)
{
    struct error why;
    if (atomic_load(&w->has_failed)) {
        return true;
    }
    if (w->board && w->board->ops->aborted(w->board, "", &why)) {
        keep_reason(w, why.code, strncmp(why.text, ": ", 2) == 0 ? why.text + 2 : why.text);
    } else if (is_asked_to_abort(w)) {
        keep_reason(w, ERR_ABORTED, w->asked_reason);
    }
    return atomic_load(&w->has_failed);
}

/* ---- marks ---- */

int nccl_pop_marks(struct nccl_comm *c, cudaError_t *error)
{
    *error = cudaSuccess;
    while (c->num > 0) {
        struct nccl_mark *m = &c->marks[c->first];
        *error = cudaEventQuery(m->ended);
        if (*error == cudaErrorNotReady) {
            cudaGetLastError();
            *error = cudaSuccess;
            return 0;
        }
        if (*error != cudaSuccess) {
            cudaGetLastError();
            return -1;
        }
        c->last = m->call;
        c->first = (c->first + 1) % NCCL_MARKS;
        c->num--;
    }
    return 0;
}

/* ---- looking ---- */

static void fail_device(struct nccl_comm *c, cudaError_t error)
{
    char reason[COMM_BOARD_REASON_MAX];
    snprintf(reason, sizeof reason, "rank %d: its device has failed: CUDA error %d (%s)",
             (int)c->w->base.rank, (int)error, cudaGetErrorName(error));
    nccl_fail(c->w, ERR_INTERNAL, c->w->base.rank, reason);
}

static void fail_deadline(struct nccl_comm *c, const struct comm_board_call *call)
{
    struct nccl_world *w = c->w;
    char reason[COMM_BOARD_REASON_MAX], text[NCCL_TEXT_MAX];
    double waited_s = (double)w->deadline_ns / 1e9;
    int32_t culprit = -1;
    if (c->line) {
        culprit = w->board->ops->blame(c->line, call, waited_s, reason, sizeof reason);
    } else {
        nccl_call_text(c, call, text, sizeof text);
        snprintf(reason, sizeof reason, "a rank did not come to %s within %.1f s", text, waited_s);
    }
    nccl_fail(w, ERR_DEADLINE_EXCEEDED, culprit, reason);
}

static void look_for_errors(struct nccl_comm *c, int64_t now)
{
    ncclResult_t result = ncclSuccess;
    if (ncclCommGetAsyncError(c->nccl, &result) != ncclSuccess) {
        result = ncclInternalError;
    }
    if (result == ncclSuccess || result == ncclInProgress) {
        return;
    }
    if (result == ncclRemoteError && c->w->board) {
        c->remote_since_ns = c->remote_since_ns ? c->remote_since_ns : now;
        if (now - c->remote_since_ns < REMOTE_GRACE_NS) {
            return;
        }
    }
    char text[NCCL_TEXT_MAX], doing[NCCL_TEXT_MAX + 32];
    struct error err;
    const struct comm_board_call *call = c->num > 0 ? &c->marks[c->first].call : &c->last;
    nccl_call_text(c, call, text, sizeof text);
    snprintf(doing, sizeof doing, "rank %d: %s", (int)c->w->base.rank, text);
    nccl_error(&err, c->nccl, result, doing);
    nccl_fail(c->w, err.code, -1, err.text);
}

/* How far has its device come? */
static void look_at(struct nccl_comm *c, int64_t now)
{
    cudaError_t error;
    if (nccl_pop_marks(c, &error) != 0) {
        fail_device(c, error);
        return;
    }
    struct nccl_mark *head = c->num > 0 ? &c->marks[c->first] : NULL;
    bool inside = head && cudaEventQuery(head->begun) == cudaSuccess;
    cudaGetLastError();
    const struct comm_board_call *call = inside ? &head->call : &c->last;
    if (c->line && (inside != c->was_inside || call->turn != c->inside_turn)) {
        c->w->board->ops->show(c->line, call, inside);
    }
    if (inside && (!c->was_inside || call->turn != c->inside_turn)) {
        c->inside_since_ns = now;
    }
    c->was_inside = inside;
    c->inside_turn = call->turn;
    look_for_errors(c, now);
    if (inside && now - c->inside_since_ns > c->w->deadline_ns) {
        fail_deadline(c, call);
    }
}

/* All show first how far they came: then whoever is missing is so in what is seen now. */
static void look(struct nccl_world *w)
{
    int64_t now = clock_mono_ns();
    for (struct nccl_comm *c = w->comms; c && !atomic_load(&w->has_failed); c = c->next) {
        look_at(c, now);
    }
}

/* ---- the end ---- */

/* A communicator that a call is stuck inside must not be freed under it: it is revoked, which makes
 * the call return; that then waits for wake_lock. Older NCCL can only abort, call or not. Returns
 * whether it has the lock. */
static bool free_who_is_stuck(struct nccl_world *w)
{
#if NCCL_VERSION_CODE >= 22809
    pthread_mutex_lock(&w->wake_lock);
    if (w->is_held && w->latest->nccl) {
        ncclCommRevoke(w->latest->nccl, 0);
    }
    pthread_mutex_unlock(&w->wake_lock);
    return pthread_mutex_lock(&w->lock) == 0;
#else
    return pthread_mutex_trylock(&w->lock) == 0;
#endif
}

/* Streams first hear that they have failed, then they go on. All at once: freeing one waits for the
 * device, which another may hold. */
static void abort_all(struct nccl_world *w)
{
    for (struct nccl_comm *c = w->comms; c; c = c->next) {
        cudaError_t error;
        char text[NCCL_TEXT_MAX];
        struct error err;
        bool at_work = nccl_pop_marks(c, &error) != 0 || c->num > 0 || c->was_captured;
        if (at_work && c->stream) {
            nccl_call_text(c, c->num > 0 ? &c->marks[c->first].call : &c->last, text, sizeof text);
            nccl_failure(w, text, &err);
            cuda_stream_fail(w->dev, c->stream, &err);
        }
    }
    ncclGroupStart();
    for (struct nccl_comm *c = w->comms; c; c = c->next) {
        if (c->nccl) {
            ncclCommAbort(c->nccl);
            c->nccl = NULL;
        }
    }
    ncclGroupEnd();
}

/* ---- the thread ---- */

/* false: it is to stop. */
static bool sleep_a_while(struct nccl_world *w)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += LOOK_MS * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&w->wake_lock);
    int rc = 0;
    while (!w->stop && !(w->asked_to_abort && !atomic_load(&w->has_failed)) && rc == 0) {
        rc = pthread_cond_timedwait(&w->wake, &w->wake_lock, &until);
    }
    bool stop = w->stop;
    pthread_mutex_unlock(&w->wake_lock);
    return !stop;
}

/* Somebody may be inside a call, even for long. */
static bool lock_soon(struct nccl_world *w)
{
    for (int i = 0; i < LOOK_MS / 2; i++) {
        if (pthread_mutex_trylock(&w->lock) == 0) {
            return true;
        }
        clock_sleep_ms(1);
    }
    return false;
}

/* No event tells of a call that doesn't come back: it may have to connect to a peer first. So this
 * rank counts as inside of it. */
static struct comm_board_line *look_at_held(struct nccl_world *w, struct comm_board_call *call)
{
    struct comm_board_line *line = NULL;
    pthread_mutex_lock(&w->wake_lock); /* as long as it stays inside */
    struct nccl_comm *c = w->latest;
    if (w->is_held && c->line) {
        line = c->line;
        *call = w->latest_call;
        w->board->ops->show(line, call, true);
        c->was_inside = true;
        c->inside_turn = call->turn;
        c->inside_since_ns = clock_mono_ns();
    }
    pthread_mutex_unlock(&w->wake_lock);
    return line;
}

static void fail_stuck(struct nccl_world *w, struct comm_board_line *line,
                       const struct comm_board_call *call)
{
    char reason[COMM_BOARD_REASON_MAX];
    double waited_s = (double)w->deadline_ns / 1e9;
    int32_t culprit = -1;
    if (line) {
        culprit = w->board->ops->blame(line, call, waited_s, reason, sizeof reason);
    } else {
        snprintf(reason, sizeof reason, "rank %d was held inside a call of NCCL for %.1f s",
                 (int)w->base.rank, waited_s);
    }
    nccl_fail(w, ERR_DEADLINE_EXCEEDED, culprit, reason);
}

static void *watch(void *arg)
{
    struct nccl_world *w = arg;
    int64_t stuck_since = 0;
    cuda_use(w->dev, NULL);
    while (sleep_a_while(w)) {
        bool aborted = nccl_hear_abort(w), has_lock = true;
        int64_t now = clock_mono_ns();
        if (!lock_soon(w)) {
            struct comm_board_call call;
            struct comm_board_line *line = look_at_held(w, &call);
            stuck_since = stuck_since ? stuck_since : now;
            int64_t grace = aborted ? STUCK_GRACE_NS : w->deadline_ns;
            if (now - stuck_since < grace) {
                continue;
            }
            fail_stuck(w, line, &call);
            has_lock = free_who_is_stuck(w);
        } else if (!aborted) {
            stuck_since = 0;
            look(w);
        }
        bool failed = atomic_load(&w->has_failed);
        if (failed) {
            abort_all(w);
        }
        if (has_lock) {
            pthread_mutex_unlock(&w->lock);
        }
        if (failed) {
            break;
        }
    }
    return NULL;
}

int nccl_watch(struct nccl_world *w, struct error *err)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are the rank's own thread's */
    int rc = pthread_create(&w->thread, NULL, watch, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    w->has_thread = rc == 0;
    return rc == 0 ? 0 : error_errno(err, rc, "start NCCL's watchdog");
}

void nccl_wake(struct nccl_world *w)
{
    pthread_mutex_lock(&w->wake_lock);
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->wake_lock);
}

void nccl_unwatch(struct nccl_world *w)
{
    if (w->has_thread) {
        pthread_mutex_lock(&w->wake_lock);
        w->stop = true;
        pthread_cond_signal(&w->wake);
        pthread_mutex_unlock(&w->wake_lock);
        pthread_join(w->thread, NULL);
        w->has_thread = false;
    }
}
