#include "runtime/node/gang.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "plan/plan.h"
#include "runtime/comm/comm_host.h"
#include "runtime/node/gang_state.h"
#include "runtime/node/pin.h"
#include "runtime/node/proctree.h"

_Static_assert(PLAN_HOST_MAX_RANKS == COMM_HOST_MAX_RANKS, "submit promises what a segment holds");

#define ABORT_GRACE_MS 500
#define TERM_GRACE_MS 1500
#define STOPPED_MS 20000
#define STALLED_MS 30000
#define SWEEP_MS 10000
#define LOOK_MS 1000
#define LOG_HEAD_BYTES ((int64_t)1 << 20)
#define LOG_TAIL_BYTES ((int64_t)64 << 20)

/* ---- new, free --------------------------------------------------------------------------------
 */

int gang_new(struct gang **out, const struct gang_options *options, struct error *err)
{
    if (options->num_ranks < 1 || options->num_ranks > COMM_HOST_MAX_RANKS) {
        return error_set(err, ERR_INVALID_ARGUMENT, "%d ranks on one host; at most %d can be",
                         (int)options->num_ranks, COMM_HOST_MAX_RANKS);
    }
    struct gang *g = calloc(1, sizeof *g);
    ASSERT(g);
    g->options = *options;
    if (!options->abort_grace_ms) {
        g->options.abort_grace_ms = ABORT_GRACE_MS;
    }
    if (!options->term_grace_ms) {
        g->options.term_grace_ms = TERM_GRACE_MS;
    }
    if (!options->stopped_ms) {
        g->options.stopped_ms = STOPPED_MS;
    }
    if (!options->stalled_ms) {
        g->options.stalled_ms = STALLED_MS;
    }
    if (!options->log_head_bytes) {
        g->options.log_head_bytes = LOG_HEAD_BYTES;
    }
    if (!options->log_tail_bytes) {
        g->options.log_tail_bytes = LOG_TAIL_BYTES;
    }
    g->options.program = strdup(options->program);
    g->options.job_dir = strdup(options->job_dir);
    g->options.log_dir = strdup(options->log_dir);
    g->options.host = strdup(options->host ? options->host : "this host");
    g->members = calloc((size_t)options->num_ranks, sizeof *g->members);
    ASSERT(g->options.program && g->options.job_dir && g->options.log_dir && g->members);
    for (int32_t i = 0; i < options->num_ranks; i++) {
        g->members[i].rank = i;
        g->members[i].fd = -1;
        g->members[i].pid_fd = -1;
    }
    g->segment_fd = -1;
    g->first_failed = -1;
    *out = g;
    return 0;
}

void gang_free(struct gang *g)
{
    if (!g) {
        return;
    }
    int num;
    if (g->num_running) {
        proctree_kill_all(SWEEP_MS, &num, NULL);
    }
    for (int32_t i = 0; i < g->options.num_ranks; i++) {
        if (g->members[i].fd >= 0) {
            close(g->members[i].fd);
        }
        if (g->members[i].pid_fd >= 0) {
            close(g->members[i].pid_fd);
        }
        link_decoder_free(g->members[i].decoder);
        buf_free(&g->members[i].out);
    }
    if (g->segment) {
        munmap(g->segment, g->segment_bytes);
    }
    if (g->segment_fd >= 0) {
        close(g->segment_fd);
    }
    free(g->members);
    free((void *)(uintptr_t)g->options.program);
    free((void *)(uintptr_t)g->options.job_dir);
    free((void *)(uintptr_t)g->options.log_dir);
    free((void *)(uintptr_t)g->options.host);
    free(g);
}

/* ---- ending -----------------------------------------------------------------------------------
 */

static void signal_all(struct gang *g, int sig)
{
    for (int32_t i = 0; i < g->options.num_ranks; i++) {
        struct gang_member *m = &g->members[i];
        if (m->pid) {
            m->sent_signal = sig;
            /* The group while its leader isn't reaped: so the number can't be another's. */
            kill(-m->pid, sig);
            kill(m->pid, sig);
        }
    }
}

/* A stopped process takes TERM only when it goes on. */
static void signal_stopped_on(const struct gang *g)
{
    for (int32_t i = 0; i < g->options.num_ranks; i++) {
        if (g->members[i].pid) {
            kill(-g->members[i].pid, SIGCONT);
        }
    }
}

static void enter_phase(struct gang *g, enum gang_phase phase)
{
    int64_t now = clock_mono_ms();
    g->phase = phase;
    switch (phase) {
    case GANG_RUNS:
        break;
    case GANG_ABORTED:
        g->next_phase_ms = now + g->options.abort_grace_ms;
        break;
    case GANG_TERMINATED:
        signal_all(g, SIGTERM);
        signal_stopped_on(g);
        g->next_phase_ms = now + g->kill_after_ms;
        break;
    case GANG_KILLED:
        signal_all(g, SIGKILL);
        g->next_phase_ms = now + 1000; /* again: one that was just forking */
        break;
    }
}

void gang_fail(struct gang *g, int32_t rank, const char *text)
{
    if (g->failed || g->phase != GANG_RUNS) {
        return;
    }
    g->failed = true;
    g->first_failed = rank;
    snprintf(g->failure, sizeof g->failure, "%s", text);
    int32_t culprit;
    char reason[512];
    if (g->segment && comm_host_segment_culprit(g->segment, &culprit, reason, sizeof reason)) {
        /* The ranks know better: the one that is missing says nothing. */
        if (culprit >= 0 && culprit != rank) {
            g->first_failed = culprit;
            snprintf(g->failure, sizeof g->failure, "%s", reason);
        }
    }
    bool is_named = strncmp(g->failure, "rank ", 5) == 0;
    if (g->first_failed >= 0 && !is_named) {
        snprintf(g->stop_reason, sizeof g->stop_reason, "rank %d: %.600s", (int)g->first_failed,
                 g->failure);
    } else {
        snprintf(g->stop_reason, sizeof g->stop_reason, "%s", g->failure);
    }
    log_error("job %lld attempt %d: %s", (long long)g->options.job_id, (int)g->options.attempt,
              g->stop_reason);
    if (g->segment) {
        comm_host_segment_abort(g->segment, rank, g->stop_reason);
    }
    g->kill_after_ms = g->options.term_grace_ms;
    enter_phase(g, GANG_ABORTED);
}

void gang_stop(struct gang *g, int64_t grace_ms, const char *reason)
{
    if (g->phase >= GANG_TERMINATED) {
        return;
    }
    if (g->phase == GANG_RUNS) {
        snprintf(g->stop_reason, sizeof g->stop_reason, "%s", reason);
    }
    g->kill_after_ms = grace_ms < 0 ? 0 : grace_ms;
    enter_phase(g, GANG_TERMINATED);
}

/* ---- starting ---------------------------------------------------------------------------------
 */

static int make_segment(struct gang *g, struct error *err)
{
    size_t area = g->options.shared_bytes > 0 ? (size_t)g->options.shared_bytes : 0;
    if (comm_host_segment_new(g->options.num_ranks, area, &g->segment_fd, err) != 0) {
        return -1;
    }
    g->segment_bytes = comm_host_segment_bytes(g->options.num_ranks, area);
    void *p = mmap(NULL, g->segment_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, g->segment_fd, 0);
    if (p == MAP_FAILED) {
        return error_errno(err, errno, "map the shared segment");
    }
    g->segment = p;
    return 0;
}

static int start_member(struct gang *g, struct gang_member *m, const Start *start,
                        struct error *err)
{
    int fds[2];
    if (link_decoder_new(&m->decoder) != 0 ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) {
        return error_errno(err, errno, "make a link");
    }
    m->fd = fds[0];
    char log_path[4096];
    gang_log_path(g, m->rank, log_path, sizeof log_path);
    struct gang_spawn s = {
        .program = g->options.program,
        .log_path = log_path,
        .job_id = g->options.job_id,
        .rank = m->rank,
        .link_fd = fds[1],
        .segment_fd = g->segment_fd,
        .pin = g->options.pins ? &g->options.pins[m->rank] : NULL,
    };
    int rc = gang_spawn(&s, &m->pid, err);
    close(fds[1]);
    if (rc != 0) {
        m->pid = 0;
        return -1;
    }
    /* Not SIGCHLD: a library's thread that doesn't block it would swallow it. */
    m->pid_fd = (int)syscall(SYS_pidfd_open, m->pid, 0);
    if (m->pid_fd < 0) {
        error_errno(err, errno, "watch pid %d", (int)m->pid);
        kill(m->pid, SIGKILL);
        waitpid(m->pid, NULL, 0);
        m->pid = 0;
        return -1;
    }
    g->num_running++;
    RankStart begin = RANK_START__INIT;
    begin.start = (Start *)(uintptr_t)start;
    begin.has_rank = begin.has_attempt = begin.has_job_id = 1;
    begin.rank = m->rank;
    begin.attempt = g->options.attempt;
    begin.job_id = g->options.job_id;
    begin.job_dir = (char *)(uintptr_t)g->options.job_dir;
    RankDown down = RANK_DOWN__INIT;
    down.body_case = RANK_DOWN__BODY_START;
    down.start = &begin;
    gang_queue(m, &down);
    return 0;
}

static void tell_exit(struct gang *g, const struct gang_member *m)
{
    RankExit gone = RANK_EXIT__INIT;
    gone.has_rank = gone.has_kind = gone.has_code = gone.has_retryable = gone.has_step = 1;
    gone.rank = m->rank;
    gone.kind = m->kind;
    gone.code = m->code;
    gone.message = (char *)(uintptr_t)m->why;
    gone.retryable = !m->is_final;
    gone.step = m->step;
    g->options.on_exit(g->options.arg, &gone);
}

/* A host may be split into named nodes. */
static void name_hosts(struct gang *g, const Plan *plan)
{
    for (int32_t i = 0; i < g->options.num_ranks; i++) {
        const char *host = g->options.host;
        if (plan && (size_t)i < plan->n_placement && plan->placement[i]->node) {
            host = plan->placement[i]->node;
        }
        snprintf(g->members[i].host, sizeof g->members[i].host, "%s", host);
    }
}

void gang_start(struct gang *g, const Start *start)
{
    struct error err = {0};
    gang_oom_read(&g->oom_before);
    name_hosts(g, start->plan);
    g->moved_ms = clock_mono_ms();
    g->num_steps_before = start->resume_step;
    if (g->options.num_ranks > 1 && make_segment(g, &err) != 0) {
        gang_fail(g, -1, err.text);
        return;
    }
    for (int32_t i = 0; i < g->options.num_ranks; i++) {
        struct gang_member *m = &g->members[i];
        if (start_member(g, m, start, &err) != 0) {
            m->gone = true;
            m->kind = EXIT_SPAWN;
            m->is_final = err.code == ERR_NOT_FOUND || err.code == ERR_PERMISSION_DENIED;
            snprintf(m->why, sizeof m->why, "%.600s", err.text);
            tell_exit(g, m);
            gang_fail(g, m->rank, m->why);
            return;
        }
    }
}

/* ---- reaping ----------------------------------------------------------------------------------
 */

/* Behind the cause of a death in the middle of the run: where, and in what it is missed. */
static void say_where(const struct gang *g, struct gang_member *m)
{
    char waits[GANG_WAITS_MAX];
    size_t len = strlen(m->why);
    gang_waited_for(g, m->rank, waits, sizeof waits);
    snprintf(m->why + len, sizeof m->why - len, "; on %s after step %lld%s", m->host,
             (long long)m->step, waits);
}

static void member_gone(struct gang *g, struct gang_member *m, int status)
{
    char log_path[4096];
    /* What it said last counts: why it failed, that it was done. */
    gang_receive(g, m, 1 << 20);
    if (m->fd >= 0) {
        close(m->fd);
        m->fd = -1;
    }
    if (m->pid_fd >= 0) {
        close(m->pid_fd);
        m->pid_fd = -1;
    }
    m->pid = 0;
    m->gone = true;
    g->num_running--;
    gang_cause(m, status, g->phase == GANG_RUNS ? "" : g->stop_reason,
               m->faulted && g->first_failed == m->rank, &g->oom_before);
    if (g->phase == GANG_RUNS && m->kind == EXIT_SIGNAL) {
        say_where(g, m);
    }
    gang_log_path(g, m->rank, log_path, sizeof log_path);
    gang_cause_log(log_path, m);
    tell_exit(g, m);
    if (m->kind != EXIT_OK) {
        gang_fail(g, m->rank, m->why);
    }
}

/* Ranks, and orphans that became ours. */
static void reap(struct gang *g)
{
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        int32_t i = 0;
        while (i < g->options.num_ranks && g->members[i].pid != pid) {
            i++;
        }
        if (i < g->options.num_ranks) {
            member_gone(g, &g->members[i], status);
        } else if (g->options.on_other) {
            g->options.on_other(g->options.arg, pid, status);
        }
    }
}

/* The ranks are gone; whatever they started goes now. */
static void sweep(struct gang *g)
{
    struct error err;
    int num = 0;
    if (proctree_kill_all(SWEEP_MS, &num, &err) != 0) {
        log_error("processes that ranks started: %s", err.text);
    }
    if (num) {
        log_warn("killed %d process%s that ranks had left behind", num, num == 1 ? "" : "es");
    }
    g->swept = true;
}

/* ---- the owner's loop -------------------------------------------------------------------------
 */

int gang_num_fds(const struct gang *g)
{
    return 2 * g->options.num_ranks;
}

int gang_poll_begin(struct gang *g, struct pollfd *fds, bool listen, int64_t *timeout_ms)
{
    int32_t n = g->options.num_ranks;
    if (!listen) {
        g->moved_ms = clock_mono_ms(); /* they may have to wait for us */
    }
    for (int32_t i = 0; i < n; i++) {
        const struct gang_member *m = &g->members[i];
        short events = (short)((listen ? POLLIN : 0) | (m->out.len ? POLLOUT : 0));
        fds[i] = (struct pollfd){.fd = m->pid_fd, .events = POLLIN};
        fds[n + i] = (struct pollfd){.fd = events ? m->fd : -1, .events = events};
    }
    *timeout_ms = -1;
    if (g->num_running) {
        int64_t next = g->next_look_ms;
        if (g->phase != GANG_RUNS && g->next_phase_ms < next) {
            next = g->next_phase_ms;
        }
        int64_t left = next - clock_mono_ms();
        *timeout_ms = left < 0 ? 0 : left;
    }
    if (g->num_running == 0) {
        *timeout_ms = 0;
    }
    return 2 * n;
}

/* What nobody tells us. */
static void look_around(struct gang *g)
{
    int64_t now = clock_mono_ms();
    if (now >= g->next_look_ms) {
        g->next_look_ms = now + (g->options.stopped_ms < LOOK_MS ? g->options.stopped_ms : LOOK_MS);
        gang_look_for_stopped(g);
        gang_look_for_stalled(g);
        gang_trim_logs(g);
    }
}

void gang_poll_end(struct gang *g, const struct pollfd *fds, int num)
{
    int32_t n = g->options.num_ranks;
    ASSERT(num == 2 * n);
    for (int32_t i = 0; i < n; i++) {
        struct gang_member *m = &g->members[i];
        if (fds[n + i].revents & POLLOUT) {
            gang_flush(m);
        }
        if (fds[n + i].revents & (POLLIN | POLLHUP | POLLERR)) {
            gang_receive(g, m, 4);
        }
    }
    reap(g);
    look_around(g);
    if (g->phase != GANG_RUNS && g->num_running && clock_mono_ms() >= g->next_phase_ms) {
        enter_phase(g, g->phase == GANG_ABORTED ? GANG_TERMINATED : GANG_KILLED);
    }
    if (g->num_running == 0 && !g->swept) {
        if (g->options.on_last) {
            g->options.on_last(g->options.arg, g->failed);
        }
        sweep(g);
    }
}

bool gang_is_gone(const struct gang *g)
{
    return g->num_running == 0 && g->swept;
}

void gang_end(const struct gang *g, AttemptEnd *end)
{
    bool all_ok = !g->failed, any_paused = false;
    for (int32_t i = 0; i < g->options.num_ranks; i++) {
        all_ok = all_ok && g->members[i].gone && g->members[i].kind == EXIT_OK;
        any_paused |= g->members[i].paused;
    }
    end->has_first_failed_rank = end->has_finished = end->has_paused = end->has_retryable = 1;
    end->first_failed_rank = g->first_failed;
    end->finished = all_ok && !any_paused;
    end->paused = all_ok && any_paused;
    end->message = (char *)(uintptr_t)(all_ok ? NULL : g->stop_reason);
    end->retryable = g->first_failed < 0 || !g->members[g->first_failed].is_final;
}
