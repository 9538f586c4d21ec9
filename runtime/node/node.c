#include "runtime/node/node.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "proto/journal.h"
#include "runtime/node/node_state.h"
#include "runtime/node/proctree.h"
#include "runtime/node/sweep.h"

/* About 600,000 steps' reports in memory where the disk takes none, else ten million on disk: then
 * the ranks have to wait. */
#define OUTBOX_MAX_BYTES ((size_t)64 << 20)
#define OUTBOX_WINDOW_BYTES ((size_t)8 << 20)
#define STOP_GRACE_MS 3000
/* Once told to stop: grace, sweep, and some time to be heard. */
#define STOP_MOST_MS 6000

/* ---- the loop ---------------------------------------------------------------------------------
 */

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
        node_stop(n, STOP_GRACE_MS, n->reason);
    }
}

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
        num_gang =
            gang_poll_begin(n->gang, n->fds + NODE_OWN_FDS, !outbox_is_full(n->outbox), &gang_ms);
        timeout_ms = gang_ms >= 0 && gang_ms < timeout_ms ? gang_ms : timeout_ms;
    }
    if (poll(n->fds, (nfds_t)(NODE_OWN_FDS + num_gang), (int)timeout_ms) < 0 && errno != EINTR) {
        log_error("poll: %s", strerror(errno));
    }
    struct pollfd *gang_fds = n->fds + NODE_OWN_FDS;
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
    node_take_mail(n);
}

/* ---- the end ----------------------------------------------------------------------------------
 */

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
        node_abandon(n, "the lease is over: no word from the controller");
    }
    char why[512];
    if (!n->abandoned && outbox_is_broken(n->outbox, why, sizeof why)) {
        node_abandon(n, why);
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
        node_put_end(n, &end);
    }
    if (n->ended && gone && n->leave_by_ms && clock_mono_ms() >= n->leave_by_ms) {
        node_abandon(n, "told to stop, and nobody hears the report");
    }
    return n->ended && gone && (n->abandoned || outbox_is_settled(n->outbox));
}

/* ---- all of it --------------------------------------------------------------------------------
 */

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
    n->fds = calloc(NODE_OWN_FDS, sizeof *n->fds);
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
