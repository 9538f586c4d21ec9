#include "process_gang.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/fs.h"
#include "runtime/comm/comm_host.h"
#include "runtime/link/link.h"
#include "tests/deadline.h"

#define DEADLINE_MS 600000

/* ---- starting ---------------------------------------------------------------------------------
 */

/* In the child. It dies with the test. */
static void become_rank(const struct process_gang *g, int rank, int link_fd)
{
    char number[16], log[600], schedule[64], program[600];
    snprintf(program, sizeof(program), "%s/tandem-rank",
             g->bin_dir != NULL ? g->bin_dir : TANDEM_BIN_DIR);
    snprintf(number, sizeof(number), "%d", rank);
    snprintf(log, sizeof(log), "%s/rank-%d.log", g->job_dir, rank);
    int null_fd = open("/dev/null", O_RDWR);
    int log_fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
    dup2(null_fd, STDIN_FILENO);
    dup2(log_fd, STDOUT_FILENO);
    dup2(log_fd, STDERR_FILENO);
    /* Above 4, so that neither overwrites the other. */
    int link_copy = fcntl(link_fd, F_DUPFD, 10), segment_copy = -1;
    if (g->segment_fd >= 0)
        segment_copy = fcntl(g->segment_fd, F_DUPFD, 10);
    dup2(link_copy, 3);
    if (segment_copy >= 0)
        dup2(segment_copy, 4);
    closefrom(segment_copy >= 0 ? 5 : 4);
    for (int i = 0; g->env != NULL && g->env[i] != NULL; i++)
        putenv((char *)(uintptr_t)g->env[i]);
    snprintf(schedule, sizeof(schedule), "%s,%lld", g->schedule != NULL ? g->schedule : "",
             (long long)g->seed + rank);
    if (g->schedule != NULL)
        setenv("CUSIM_SCHEDULE", schedule, 1);
    execl(program, "tandem-rank", "--rank", number, "--job", "7", NULL);
    _exit(127);
}

static void start_rank(struct process_gang *g, int rank)
{
    int pair[2];
    struct process_gang_rank *r = &g->ranks[rank];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    r->pid = fork();
    assert_true(r->pid >= 0);
    if (r->pid == 0)
        become_rank(g, rank, pair[1]);
    close(pair[1]);
    r->fd = pair[0];
    assert_int_equal(link_decoder_new(&r->decoder), 0);
}

static void send_down(struct process_gang_rank *r, const RankDown *down)
{
    struct buf frame = {0};
    assert_int_equal(link_frame(&frame, &down->base, NULL), 0);
    /* One that is gone hears nothing. */
    if (r->fd >= 0)
        fs_write_all(r->fd, frame.data, frame.len);
    buf_free(&frame);
}

void process_gang_command(struct process_gang *g, const RankDown *message)
{
    for (int i = 0; i < g->num_ranks; i++)
        send_down(&g->ranks[i], message);
}

static void send_start(struct process_gang *g, int rank)
{
    Start start = START__INIT;
    start.plan = (Plan *)g->plan;
    start.resume_dir = (char *)(uintptr_t)g->resume_dir;
    RankStart rank_start = RANK_START__INIT;
    rank_start.start = &start;
    rank_start.has_rank = rank_start.has_attempt = rank_start.has_job_id = 1;
    rank_start.rank = rank;
    rank_start.attempt = 1;
    rank_start.job_id = 7;
    rank_start.job_dir = (char *)(uintptr_t)g->job_dir;
    RankDown down = RANK_DOWN__INIT;
    down.body_case = RANK_DOWN__BODY_START;
    down.start = &rank_start;
    send_down(&g->ranks[rank], &down);
    if (g->stop_step == 0)
        return;
    StopAtStep stop = STOP_AT_STEP__INIT;
    stop.has_step = 1;
    stop.step = g->stop_step;
    down = (RankDown)RANK_DOWN__INIT;
    down.body_case = RANK_DOWN__BODY_STOP_AT_STEP;
    down.stop_at_step = &stop;
    send_down(&g->ranks[rank], &down);
}

/* ---- listening --------------------------------------------------------------------------------
 */

/* What the controller does: from rank 0 to all. */
static void hand_id_on(struct process_gang *g, CommId *id)
{
    RankDown down = RANK_DOWN__INIT;
    down.body_case = RANK_DOWN__BODY_COMM_ID;
    down.comm_id = id;
    process_gang_command(g, &down);
}

static void hear(struct process_gang *g, struct process_gang_rank *r, const RankUp *up)
{
    switch (up->body_case) {
    case RANK_UP__BODY_METRICS:
        assert_ptr_equal(r, &g->ranks[0]);
        if (g->num_steps == GANG_MAX_STEPS)
            break; /* of a run that the test ends, as soon as it comes to it */
        g->first_step = g->num_steps == 0 ? up->metrics->step : g->first_step;
        assert_int_equal(up->metrics->step, g->first_step + g->num_steps);
        g->steps[g->num_steps++] = *up->metrics;
        if (g->on_step != NULL)
            g->on_step(g, up->metrics);
        break;
    case RANK_UP__BODY_CHECKPOINT_DONE:
        assert_true(g->num_checkpoints < GANG_MAX_CHECKPOINTS);
        g->checkpoint_steps[g->num_checkpoints] = up->checkpoint_done->step;
        snprintf(g->checkpoints[g->num_checkpoints++], sizeof(g->checkpoints[0]), "%s",
                 up->checkpoint_done->dir);
        break;
    case RANK_UP__BODY_EXPORT_DONE:
        snprintf(g->export_dir, sizeof(g->export_dir), "%s", up->export_done->dir);
        break;
    case RANK_UP__BODY_PROGRESS:
        if (r == &g->ranks[0] && up->progress->memory != NULL)
            g->memory = *up->progress->memory;
        break;
    case RANK_UP__BODY_COMM_ID:
        hand_id_on(g, up->comm_id);
        break;
    case RANK_UP__BODY_FAULT:
        snprintf(r->fault, sizeof(r->fault), "%s", up->fault->message);
        break;
    case RANK_UP__BODY_DONE:
        r->done = true;
        r->paused = up->done->paused;
        break;
    default:
        break;
    }
}

static void read_link(struct process_gang *g, struct process_gang_rank *r)
{
    uint8_t data[4096];
    const uint8_t *body;
    size_t len;
    ssize_t n = read(r->fd, data, sizeof(data));
    if (n <= 0) {
        close(r->fd);
        r->fd = -1;
        return;
    }
    assert_int_equal(link_decoder_feed(r->decoder, data, (size_t)n, NULL), 0);
    while (link_decoder_next(r->decoder, &body, &len, NULL) == 0 && body != NULL) {
        RankUp *up = rank_up__unpack(NULL, len, body);
        assert_non_null(up);
        hear(g, r, up);
        rank_up__free_unpacked(up, NULL);
    }
}

/* ---- the end ----------------------------------------------------------------------------------
 */

/* The link is closed: the process has left or is about to. The others hear why before it is reaped:
 * from then on NCCL, too, can see that a process is gone, but not whose and how. */
static void reap(struct process_gang *g, int rank)
{
    struct process_gang_rank *r = &g->ranks[rank];
    siginfo_t info = {0};
    WAIT_UNTIL(waitid(P_PID, (id_t)r->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
                   info.si_pid == r->pid,
               "the end of rank %d's process", rank);
    if (info.si_code != CLD_EXITED || info.si_status != 0) {
        char how[32];
        snprintf(how, sizeof(how), "%s %d", info.si_code == CLD_EXITED ? "code" : "signal",
                 info.si_status);
        gang_abort(g->segment_fd, rank, how);
    }
    assert_int_equal(waitpid(r->pid, &r->status, 0), r->pid);
    r->pid = 0;
}

static struct process_gang *running; /* for the end of a test that fails half-way */

static void close_gang(struct process_gang *g)
{
    for (int i = 0; i < g->num_ranks; i++) {
        struct process_gang_rank *r = &g->ranks[i];
        if (r->pid > 0) {
            kill(r->pid, SIGKILL);
            waitpid(r->pid, &r->status, 0);
            r->pid = 0;
        }
        if (r->fd >= 0)
            close(r->fd);
        r->fd = -1;
        link_decoder_free(r->decoder);
        r->decoder = NULL;
    }
    if (g->segment_fd >= 0)
        close(g->segment_fd);
    g->segment_fd = -1;
    running = NULL;
}

static void close_running(void)
{
    if (running != NULL)
        close_gang(running);
}

static void hear_all(struct process_gang *g)
{
    int64_t end_ms = clock_mono_ms() + (g->deadline_ms > 0 ? g->deadline_ms : DEADLINE_MS);
    for (;;) {
        struct pollfd fds[GANG_MAX_RANKS];
        int num_open = 0;
        for (int i = 0; i < g->num_ranks; i++) {
            fds[i] = (struct pollfd){.fd = g->ranks[i].fd, .events = POLLIN};
            num_open += g->ranks[i].fd >= 0;
        }
        int64_t left_ms = end_ms - clock_mono_ms();
        if (num_open == 0 || left_ms <= 0)
            return; /* who is still there then is killed */
        if (poll(fds, (nfds_t)g->num_ranks, (int)left_ms) <= 0)
            continue;
        for (int i = 0; i < g->num_ranks; i++) {
            if (fds[i].revents != 0)
                read_link(g, &g->ranks[i]);
            if (fds[i].fd >= 0 && g->ranks[i].fd < 0)
                reap(g, i);
        }
    }
}

void process_gang_run(struct process_gang *g)
{
    static bool registered;
    struct error err = {0};
    if (!registered)
        assert_int_equal(atexit(close_running), 0);
    registered = true;
    close_running();
    signal(SIGPIPE, SIG_IGN);
    g->num_ranks = (int)g->plan->mesh->num_ranks;
    assert_true(g->num_ranks <= GANG_MAX_RANKS);
    g->segment_fd = -1;
    for (int i = 0; i < g->num_ranks; i++)
        g->ranks[i] = (struct process_gang_rank){.fd = -1};
    if (g->num_ranks > 1 &&
        comm_host_segment_new(g->num_ranks, (size_t)g->plan->memory->shared_bytes, &g->segment_fd,
                              &err) != 0)
        fail_msg("%s", err.text);
    running = g;
    for (int i = 0; i < g->num_ranks; i++)
        start_rank(g, i);
    for (int i = 0; i < g->num_ranks; i++)
        send_start(g, i);
    hear_all(g);
    close_gang(g);
}

static void print_log(const struct process_gang *g, int rank)
{
    char path[600], *text;
    size_t len;
    snprintf(path, sizeof(path), "%s/rank-%d.log", g->job_dir, rank);
    if (fs_read_file(path, 1 << 20, &text, &len, NULL) != 0)
        return;
    size_t from = len > 3000 ? len - 3000 : 0;
    fprintf(stderr, "---- rank %d:\n%.*s\n", rank, (int)(len - from), text + from);
    free(text);
}

void process_gang_run_well(struct process_gang *g, const char *what)
{
    process_gang_run(g);
    bool well = true;
    for (int i = 0; i < g->num_ranks; i++)
        well = well && g->ranks[i].status == 0 && g->ranks[i].done;
    for (int i = 0; i < g->num_ranks && !well; i++)
        print_log(g, i);
    for (int i = 0; i < g->num_ranks; i++)
        if (g->ranks[i].status != 0 || !g->ranks[i].done)
            fail_msg("%s: rank %d left with status %#x: %s", what, i, (unsigned)g->ranks[i].status,
                     g->ranks[i].fault);
}
