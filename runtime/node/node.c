#include "runtime/node/node.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/mailbox.h"
#include "proto/journal.h"
#include "runtime/comm/comm_host.h"
#include "runtime/comm/comm_provider.h"
#include "runtime/node/attach.h"
#include "runtime/node/gang.h"
#include "runtime/node/health.h"
#include "runtime/node/outbox.h"
#include "runtime/node/proctree.h"
#include "runtime/node/sweep.h"

/* About 600,000 steps' reports in memory where the disk takes none, else ten million on disk: then
 * the ranks have to wait. */
#define OUTBOX_MAX_BYTES ((size_t)64 << 20)
#define OUTBOX_WINDOW_BYTES ((size_t)8 << 20)
#define STOP_GRACE_MS 3000
/* Once told to stop: grace, sweep, and some time to be heard. */
#define STOP_MOST_MS 6000
#define GRACE_MOST_MS 600000
#define OWN_FDS 3

struct node {
    const LaunchTicket *ticket; /* borrowed */
    struct outbox *outbox;
    struct mailbox *mailbox;
    struct attach *attach;
    struct gang *gang;     /* NULL until Start */
    struct health *health; /* NULL: no GPUs */
    struct pollfd *fds;
    int signal_fd;
    int64_t stop_at_step; /* asked for before the gang ran; -1 = not */
    bool cancelled;
    bool has_comm_id, gave_comm_id; /* rank 0 has said one; the ranks were given one */
    bool ended;                     /* AttemptEnd is in the outbox, or nobody wants it */
    int64_t leave_by_ms; /* told to stop: whether or not anybody hears the end; 0 = not told */
    bool abandoned;      /* refused, or the lease is over: nobody listens any more */
    MemoryUse memory;    /* of the rank that takes most, so far */
    int32_t memory_rank;
    int32_t num_ranks;
    int32_t num_measured; /* ranks that have told theirs behind the first step */
    char reason[512];
};

/* ---- up ---------------------------------------------------------------------------------------
 */

static void take_memory(struct node *n, int32_t rank, const MemoryUse *use)
{
    if (use != NULL && use->process_bytes > n->memory.process_bytes) {
        n->memory = *use;
        n->memory_rank = rank;
    }
}

/* Kept with the job, beside what it was given its devices for. */
static void put_memory(struct node *n)
{
    char text[160];
    snprintf(text, sizeof text, "memory: planned %.1f MB a rank, used at most %.1f MB (rank %d)",
             (double)n->memory.planned_bytes / 1e6, (double)n->memory.process_bytes / 1e6,
             (int)n->memory_rank);
    log_info("%s", text);
    outbox_put_note(n->outbox, text);
}

static bool is_usable(const CommId *id)
{
    return id->has_id && id->id.len > 0 && id->id.len <= COMM_ID_MAX;
}

/* Once, from the rank that makes it. What it is stays unsaid. */
static void take_comm_id(struct node *n, int32_t rank, const CommId *id)
{
    if (rank != 0 || n->has_comm_id || !is_usable(id)) {
        log_warn("rank %d sent an id for communicators, which isn't taken: %s", (int)rank,
                 rank != 0        ? "rank 0 makes it"
                 : !is_usable(id) ? "it has no usable size"
                                  : "there is one already");
        return;
    }
    n->has_comm_id = true;
    outbox_put_comm_id(n->outbox, id);
}

/* It may come again after a broken stream. */
static void give_comm_id(struct node *n, CommId *id)
{
    outbox_comm_id_heard(n->outbox);
    if (!n->gang || n->gave_comm_id) {
        return;
    }
    if (!is_usable(id)) {
        log_warn("the controller sent an id for communicators that has no usable size");
        return;
    }
    RankDown down = RANK_DOWN__INIT;
    down.body_case = RANK_DOWN__BODY_COMM_ID;
    down.comm_id = id;
    gang_send(n->gang, &down);
    n->gave_comm_id = true;
}

static void on_up(void *arg, int32_t rank, const RankUp *message)
{
    struct node *n = arg;
    WorkerUp up = WORKER_UP__INIT;
    switch (message->body_case) {
    case RANK_UP__BODY_PROGRESS: {
        Progress progress = *message->progress;
        take_memory(n, rank, progress.memory);
        n->num_measured += progress.memory != NULL;
        if (progress.memory != NULL && n->num_measured == n->num_ranks && !n->ended) {
            put_memory(n);
        }
        progress.has_rank = 1;
        progress.rank = rank;
        outbox_put_progress(n->outbox, &progress);
        return;
    }
    case RANK_UP__BODY_METRICS:
        message->metrics->has_job_id = message->metrics->has_attempt = 1;
        message->metrics->job_id = n->ticket->job_id;
        message->metrics->attempt = n->ticket->attempt;
        up.body_case = WORKER_UP__BODY_METRICS;
        up.metrics = message->metrics;
        break;
    case RANK_UP__BODY_CHECKPOINT_DONE:
        up.body_case = WORKER_UP__BODY_CHECKPOINT_DONE;
        up.checkpoint_done = message->checkpoint_done;
        break;
    case RANK_UP__BODY_EXPORT_DONE:
        up.body_case = WORKER_UP__BODY_EXPORT_DONE;
        up.export_done = message->export_done;
        break;
    case RANK_UP__BODY_COMM_ID:
        take_comm_id(n, rank, message->comm_id);
        return;
    default:
        return;
    }
    outbox_put(n->outbox, &up);
}

static void on_exit_of_rank(void *arg, const RankExit *gone)
{
    struct node *n = arg;
    WorkerUp up = WORKER_UP__INIT;
    up.body_case = WORKER_UP__BODY_RANK_EXIT;
    up.rank_exit = (RankExit *)(uintptr_t)gone;
    log_info("rank %d: %s", (int)gone->rank, gone->message);
    outbox_put(n->outbox, &up);
}

/* ---- devices ---- */

static void on_device_event(void *arg, const DeviceEvent *e)
{
    struct node *n = arg;
    WorkerUp up = WORKER_UP__INIT;
    up.body_case = WORKER_UP__BODY_DEVICE_EVENT;
    up.device_event = (DeviceEvent *)(uintptr_t)e;
    outbox_put(n->outbox, &up);
}

static void on_device_note(void *arg, const char *words)
{
    struct node *n = arg;
    outbox_put_note(n->outbox, words);
}

static void on_other_child(void *arg, pid_t pid, int status)
{
    struct node *n = arg;
    health_gone(n->health, pid, status);
}

static void on_last_rank(void *arg, bool failed)
{
    struct node *n = arg;
    health_finish(n->health, failed && !n->cancelled);
}

static void put_end(struct node *n, AttemptEnd *end)
{
    WorkerUp up = WORKER_UP__INIT;
    up.body_case = WORKER_UP__BODY_ATTEMPT_END;
    up.attempt_end = end;
    end->has_cancelled = 1;
    end->cancelled = n->cancelled && !end->finished && !end->paused;
    log_info("attempt %d ended: %s", (int)n->ticket->attempt,
             end->finished ? "finished"
             : end->paused ? "paused"
                           : end->message);
    outbox_put(n->outbox, &up);
    n->ended = true;
}

/* It ends without a gang that could say how. */
static void end_early(struct node *n, const char *why, bool retryable)
{
    AttemptEnd end = ATTEMPT_END__INIT;
    end.message = (char *)(uintptr_t)why;
    end.has_retryable = 1;
    end.retryable = retryable;
    put_end(n, &end);
}

/* ---- start ------------------------------------------------------------------------------------
 */

static int make_gang(struct node *n, const Start *start, struct error *err)
{
    char program[PATH_MAX], log_dir[PATH_MAX];
    if (!start->plan || start->plan->n_placement < 1) {
        return error_set(err, ERR_INVALID_ARGUMENT, "the controller sent no usable plan");
    }
    if (!fs_join(program, sizeof program, n->ticket->bin_dir, "tandem-rank") ||
        snprintf(log_dir, sizeof log_dir, "%s/logs/attempt-%d", n->ticket->job_dir,
                 (int)n->ticket->attempt) >= (int)sizeof log_dir) {
        return error_set(err, ERR_INVALID_ARGUMENT, "%s: path is too long", n->ticket->job_dir);
    }
    if (fs_mkdirs(log_dir, 0770, err) != 0 || sweep_job(n->ticket->job_dir, err) != 0) {
        return -1;
    }
    struct gang_options options = {
        .job_id = n->ticket->job_id,
        .attempt = n->ticket->attempt,
        .num_ranks = start->plan->n_placement > COMM_HOST_MAX_RANKS
                         ? COMM_HOST_MAX_RANKS + 1
                         : (int32_t)start->plan->n_placement,
        .shared_bytes = start->plan->memory ? start->plan->memory->shared_bytes : 0,
        .program = program,
        .job_dir = n->ticket->job_dir,
        .log_dir = log_dir,
        .host = n->ticket->node,
        .on_up = on_up,
        .on_exit = on_exit_of_rank,
        .on_other = on_other_child,
        .on_last = on_last_rank,
        .arg = n,
    };
    struct health_options health = {
        .bin_dir = n->ticket->bin_dir,
        .plan = start->plan,
        .on_event = on_device_event,
        .on_note = on_device_note,
        .arg = n,
    };
    n->health = health_start(&health);
    options.pins = health_pins(n->health);
    if (gang_new(&n->gang, &options, err) != 0) {
        return -1;
    }
    n->num_ranks = options.num_ranks;
    n->fds = realloc(n->fds, (size_t)(OWN_FDS + gang_num_fds(n->gang)) * sizeof *n->fds);
    ASSERT(n->fds);
    return 0;
}

static void send_stop(struct node *n, int64_t step)
{
    StopAtStep stop = STOP_AT_STEP__INIT;
    stop.has_step = 1;
    stop.step = step;
    RankDown down = RANK_DOWN__INIT;
    down.body_case = RANK_DOWN__BODY_STOP_AT_STEP;
    down.stop_at_step = &stop;
    gang_send(n->gang, &down);
}

static void take_start(struct node *n, const Start *start)
{
    struct error err = {0};
    if (n->gang || n->ended) {
        return; /* said again after a broken stream */
    }
    if (make_gang(n, start, &err) != 0) {
        end_early(n, err.text,
                  err.code != ERR_INVALID_ARGUMENT && err.code != ERR_PERMISSION_DENIED);
        return;
    }
    log_info("job %lld attempt %d: starting %zu rank%s", (long long)n->ticket->job_id,
             (int)n->ticket->attempt, start->plan->n_placement,
             start->plan->n_placement == 1 ? "" : "s");
    gang_start(n->gang, start);
    if (n->stop_at_step >= 0) {
        send_stop(n, n->stop_at_step);
    }
}

/* ---- commands ---------------------------------------------------------------------------------
 */

static void stop(struct node *n, int64_t grace_ms, const char *reason)
{
    if (n->gang) {
        gang_stop(n->gang, grace_ms < GRACE_MOST_MS ? grace_ms : GRACE_MOST_MS, reason);
    } else if (!n->ended && !n->abandoned) {
        end_early(n, reason, true);
    }
}

static void take_cancel(struct node *n, const CancelAttempt *cancel)
{
    const char *reason = cancel->reason ? cancel->reason : "";
    bool said = strncmp(reason, "cancelled", strlen("cancelled")) == 0;
    snprintf(n->reason, sizeof n->reason, "%s%s%.400s", said ? "" : "cancelled",
             said || !reason[0] ? "" : ": ", reason);
    log_info("%s", n->reason);
    n->cancelled = true;
    stop(n, cancel->grace_ms, n->reason);
}

/* The controller won't have it, or can't be heard: the ranks must not go on. */
static void abandon(struct node *n, const char *why)
{
    if (n->abandoned) {
        return;
    }
    snprintf(n->reason, sizeof n->reason, "%s", why);
    log_error("job %lld attempt %d: %s", (long long)n->ticket->job_id, (int)n->ticket->attempt,
              why);
    n->abandoned = true;
    stop(n, 1000, n->reason);
    n->ended = n->ended || !n->gang;
}

static void take_event(struct node *n, const struct attach_event *e)
{
    char why[600];
    RankDown down = RANK_DOWN__INIT;
    if (!e->command) {
        snprintf(why, sizeof why, "the controller refuses this attempt: %s", e->refusal);
        abandon(n, why);
        return;
    }
    switch (e->command->body_case) {
    case WORKER_DOWN__BODY_START:
        take_start(n, e->command->start);
        break;
    case WORKER_DOWN__BODY_CHECKPOINT:
        down.body_case = RANK_DOWN__BODY_CHECKPOINT;
        down.checkpoint = e->command->checkpoint;
        if (n->gang) {
            gang_send(n->gang, &down);
        }
        break;
    case WORKER_DOWN__BODY_STOP_AT_STEP:
        n->stop_at_step = e->command->stop_at_step->step;
        if (n->gang) {
            send_stop(n, n->stop_at_step);
        }
        break;
    case WORKER_DOWN__BODY_COMM_ID:
        give_comm_id(n, e->command->comm_id);
        break;
    case WORKER_DOWN__BODY_CANCEL:
        take_cancel(n, e->command->cancel);
        break;
    default:
        break;
    }
}

static void take_mail(struct node *n)
{
    struct mailbox_node *node = mailbox_take(n->mailbox, 0);
    while (node) {
        struct attach_event *e = (struct attach_event *)node;
        node = node->next;
        take_event(n, e);
        attach_event_free(e);
    }
}

static void take_signal(struct node *n)
{
    struct signalfd_siginfo info;
    while (read(n->signal_fd, &info, sizeof info) == (ssize_t)sizeof info) {
        const char *name = sigabbrev_np((int)info.ssi_signo);
        snprintf(n->reason, sizeof n->reason, "tandem-node was told to stop (SIG%s)",
                 name ? name : "?");
        log_info("%s", n->reason);
        n->cancelled = true;
        n->leave_by_ms = n->leave_by_ms ? n->leave_by_ms : clock_mono_ms() + STOP_MOST_MS;
        stop(n, STOP_GRACE_MS, n->reason);
    }
}

/* ---- the loop ---------------------------------------------------------------------------------
 */

static void wait_once(struct node *n)
{
    int64_t timeout_ms = attach_lease_left_ms(n->attach), gang_ms = -1;
    int num_gang = 0;
    timeout_ms = timeout_ms < 0 || n->abandoned ? 60000 : timeout_ms;
    if (n->leave_by_ms) {
        int64_t left = n->leave_by_ms - clock_mono_ms();
        timeout_ms = left > 0 ? left : 100;
    }
    timeout_ms = timeout_ms < 60000 ? timeout_ms : 60000;
    n->fds[0] = (struct pollfd){.fd = mailbox_fd(n->mailbox), .events = POLLIN};
    n->fds[1] = (struct pollfd){.fd = n->signal_fd, .events = POLLIN};
    n->fds[2] = (struct pollfd){.fd = health_fd(n->health), .events = POLLIN};
    if (n->gang && !gang_is_gone(n->gang)) {
        num_gang = gang_poll_begin(n->gang, n->fds + OWN_FDS, !outbox_is_full(n->outbox), &gang_ms);
        timeout_ms = gang_ms >= 0 && gang_ms < timeout_ms ? gang_ms : timeout_ms;
    }
    if (poll(n->fds, (nfds_t)(OWN_FDS + num_gang), (int)timeout_ms) < 0 && errno != EINTR) {
        log_error("poll: %s", strerror(errno));
    }
    struct pollfd *gang_fds = n->fds + OWN_FDS;
    if (n->fds[2].revents) {
        health_take(n->health);
    }
    health_tick(n->health);
    if (num_gang) {
        gang_poll_end(n->gang, gang_fds, num_gang);
    }
    if (n->fds[1].revents & POLLIN) {
        take_signal(n);
    }
    take_mail(n);
}

/* A job that ends here may never start again: what a killed save left goes now. */
static void sweep(const struct node *n)
{
    struct error err = {0};
    if (sweep_job(n->ticket->job_dir, &err) != 0) {
        log_warn("unfinished files stay until the next start: %s", err.text);
    }
}

static bool is_over(struct node *n)
{
    if (!n->abandoned && attach_lease_left_ms(n->attach) <= 0) {
        abandon(n, "the lease is over: no word from the controller");
    }
    char why[512];
    if (!n->abandoned && outbox_is_broken(n->outbox, why, sizeof why)) {
        abandon(n, why);
    }
    bool gone = !n->gang || gang_is_gone(n->gang);
    if (n->gang && gone && !n->ended) {
        AttemptEnd end = ATTEMPT_END__INIT;
        sweep(n);
        gang_end(n->gang, &end);
        char message[1200];
        if (end.message && !n->cancelled) {
            snprintf(message, sizeof message, "%s%.700s", health_cause(n->health), end.message);
            end.message = message;
        }
        put_end(n, &end);
    }
    if (n->ended && gone && n->leave_by_ms && clock_mono_ms() >= n->leave_by_ms) {
        abandon(n, "told to stop, and nobody hears the report");
    }
    return n->ended && gone && (n->abandoned || outbox_is_settled(n->outbox));
}

static void wake(void *arg)
{
    mailbox_wake(arg);
}

static int open_outbox(struct node *n, struct error *err)
{
    char dir[PATH_MAX];
    if (snprintf(dir, sizeof dir, "%s/logs/attempt-%d/" JOURNAL_FOLDER, n->ticket->job_dir,
                 (int)n->ticket->attempt) >= (int)sizeof dir) {
        return error_set(err, ERR_INVALID_ARGUMENT, "%s: path is too long", n->ticket->job_dir);
    }
    struct outbox_options options = {.job_id = n->ticket->job_id,
                                     .attempt = n->ticket->attempt,
                                     .max_bytes = OUTBOX_MAX_BYTES,
                                     .window_bytes = OUTBOX_WINDOW_BYTES,
                                     .dir = dir,
                                     .disk_bytes = JOURNAL_BYTES_MAX,
                                     .wake = wake,
                                     .arg = n->mailbox};
    return outbox_new(&n->outbox, &options, err);
}

static int open_all(struct node *n, struct error *err)
{
    sigset_t stop_set;
    sigemptyset(&stop_set);
    sigaddset(&stop_set, SIGTERM);
    sigaddset(&stop_set, SIGINT);
    sigaddset(&stop_set, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &stop_set, NULL);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a file that may not grow is an error that has a name */
    n->signal_fd = signalfd(-1, &stop_set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (n->signal_fd < 0) {
        return error_errno(err, errno, "watch for signals");
    }
    n->fds = calloc(OWN_FDS, sizeof *n->fds);
    ASSERT(n->fds);
    if (proctree_adopt_orphans(err) != 0) {
        return -1;
    }
    if (mailbox_new(&n->mailbox) != 0) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "out of memory");
    }
    if (open_outbox(n, err) != 0) {
        return -1;
    }
    return attach_start(&n->attach, n->ticket, n->outbox, n->mailbox, err);
}

static void close_all(struct node *n)
{
    attach_stop(n->attach);
    if (n->mailbox) {
        struct mailbox_node *node = mailbox_take(n->mailbox, 0);
        while (node) {
            struct attach_event *e = (struct attach_event *)node;
            node = node->next;
            attach_event_free(e);
        }
    }
    gang_free(n->gang);
    health_free(n->health);
    outbox_free(n->outbox);
    mailbox_free(n->mailbox);
    free(n->fds);
    if (n->signal_fd >= 0) {
        close(n->signal_fd);
    }
}

int node_run(const LaunchTicket *ticket)
{
    struct node n = {.ticket = ticket, .signal_fd = -1, .stop_at_step = -1};
    struct error err = {0};
    int rc = open_all(&n, &err);
    if (rc != 0) {
        log_error("job %lld attempt %d: %s", (long long)ticket->job_id, (int)ticket->attempt,
                  err.text);
    }
    while (rc == 0 && !is_over(&n)) {
        wait_once(&n);
    }
    bool well = rc == 0 && !n.abandoned;
    close_all(&n);
    return well ? 0 : 1;
}
