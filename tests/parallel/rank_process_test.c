/* tandem-rank as processes, the test in tandem-node's place: sockets, segment, deaths. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/fs.h"
#include "gang.h"
#include "runtime/comm/comm_host.h"
#include "tests/deadline.h"

#define NUM_RANKS 2
#define WAIT_MS 60000

struct process {
    pid_t pid;
    int fd; /* our end of the link; -1 once it is closed */
    struct link_decoder *decoder;
    int64_t steps; /* metrics heard, as far as there is room for */
    double loss[GANG_MAX_STEPS];
    bool done, paused;
    char fault[ERROR_TEXT_MAX];
};

struct crew {
    Plan *plan;
    char *dir;
    int segment_fd;
    struct process ranks[NUM_RANKS];
};

static void exec_rank(int rank, int link_fd, int segment_fd)
{
    char number[16];
    snprintf(number, sizeof(number), "%d", rank);
    int null_fd = open("/dev/null", O_RDWR);
    dup2(null_fd, STDIN_FILENO);
    /* Above 4, so that neither overwrites the other. */
    int link_copy = fcntl(link_fd, F_DUPFD, 10), segment_copy = fcntl(segment_fd, F_DUPFD, 10);
    dup2(link_copy, 3);
    dup2(segment_copy, 4);
    close(link_copy);
    close(segment_copy);
    execl(TANDEM_BIN_DIR "/tandem-rank", "tandem-rank", "--rank", number, "--job", "7", NULL);
    _exit(127);
}

static void start_process(struct crew *c, int rank)
{
    int pair[2];
    struct process *p = &c->ranks[rank];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    p->pid = fork();
    assert_true(p->pid >= 0);
    if (p->pid == 0)
        exec_rank(rank, pair[1], c->segment_fd);
    close(pair[1]);
    p->fd = pair[0];
    assert_int_equal(link_decoder_new(&p->decoder), 0);
}

static void send_down(struct process *p, const RankDown *down)
{
    size_t len = rank_down__get_packed_size(down);
    uint8_t *frame = malloc(len + 4);
    assert_non_null(frame);
    for (int i = 0; i < 4; i++)
        frame[i] = (uint8_t)(len >> (8 * i));
    rank_down__pack(down, frame + 4);
    assert_int_equal(fs_write_all(p->fd, frame, len + 4), 0);
    free(frame);
}

static void send_start(struct crew *c, int rank)
{
    Start start = START__INIT;
    start.plan = c->plan;
    RankStart rank_start = RANK_START__INIT;
    rank_start.start = &start;
    rank_start.has_rank = rank_start.has_attempt = rank_start.has_job_id = 1;
    rank_start.rank = rank;
    rank_start.attempt = 1;
    rank_start.job_id = 7;
    rank_start.job_dir = c->dir;
    RankDown down = RANK_DOWN__INIT;
    down.body_case = RANK_DOWN__BODY_START;
    down.start = &rank_start;
    send_down(&c->ranks[rank], &down);
}

static struct crew start_crew(int64_t steps)
{
    struct crew c = {0};
    struct error err = {0};
    struct gang_spec spec = {.golden = &golden_tiny, .data = NUM_RANKS, .steps = steps};
    c.plan = gang_plan(&spec);
    c.dir = gang_make_dir();
    assert_int_equal(
        comm_host_segment_new(NUM_RANKS, (size_t)c.plan->memory->shared_bytes, &c.segment_fd, &err),
        0);
    for (int i = 0; i < NUM_RANKS; i++)
        start_process(&c, i);
    for (int i = 0; i < NUM_RANKS; i++)
        send_start(&c, i);
    return c;
}

static void hear(struct process *p, const RankUp *up)
{
    if (up->body_case == RANK_UP__BODY_METRICS && p->steps < GANG_MAX_STEPS)
        p->loss[p->steps++] = up->metrics->loss;
    if (up->body_case == RANK_UP__BODY_DONE) {
        p->done = true;
        p->paused = up->done->paused;
    }
    if (up->body_case == RANK_UP__BODY_FAULT)
        snprintf(p->fault, sizeof(p->fault), "%s", up->fault->message);
}

static void read_link(struct process *p)
{
    uint8_t data[4096];
    struct error err = {0};
    ssize_t n = read(p->fd, data, sizeof(data));
    if (n <= 0) {
        close(p->fd);
        p->fd = -1;
        return;
    }
    assert_int_equal(link_decoder_feed(p->decoder, data, (size_t)n, &err), 0);
    const uint8_t *body;
    size_t len;
    while (link_decoder_next(p->decoder, &body, &len, &err) == 0 && body != NULL) {
        RankUp *up = rank_up__unpack(NULL, len, body);
        assert_non_null(up);
        hear(p, up);
        rank_up__free_unpacked(up, NULL);
    }
}

/* Listens until rank 0 has sent its metrics of `steps` steps (0: until all links are closed). */
static void listen_until(struct crew *c, int64_t steps)
{
    int64_t end_ms = clock_mono_ms() + WAIT_MS;
    for (;;) {
        struct pollfd fds[NUM_RANKS];
        bool open = false;
        for (int i = 0; i < NUM_RANKS; i++) {
            fds[i] = (struct pollfd){.fd = c->ranks[i].fd, .events = POLLIN};
            open = open || c->ranks[i].fd >= 0;
        }
        if (!open || (steps > 0 && c->ranks[0].steps >= steps))
            return;
        int64_t left_ms = end_ms - clock_mono_ms();
        if (left_ms <= 0 || poll(fds, NUM_RANKS, (int)left_ms) <= 0)
            fail_msg("nothing more from the ranks within %d s", WAIT_MS / 1000);
        for (int i = 0; i < NUM_RANKS; i++)
            if (fds[i].revents != 0)
                read_link(&c->ranks[i]);
    }
}

/* Waits for the process; its wait status. */
static int reap(struct process *p)
{
    int status = 0;
    pid_t got = 0;
    WAIT_UNTIL((got = waitpid(p->pid, &status, WNOHANG)) != 0, "the end of process %d",
               (int)p->pid);
    assert_int_equal(got, p->pid);
    p->pid = 0;
    return status;
}

static void free_crew(struct crew *c)
{
    for (int i = 0; i < NUM_RANKS; i++) {
        struct process *p = &c->ranks[i];
        if (p->pid > 0) {
            kill(p->pid, SIGKILL);
            reap(p);
        }
        if (p->fd >= 0)
            close(p->fd);
        link_decoder_free(p->decoder);
    }
    close(c->segment_fd);
    gang_remove_dir(c->dir);
    plan__free_unpacked(c->plan, NULL);
}

static void assert_left_with(int status, int code)
{
    if (!WIFEXITED(status) || WEXITSTATUS(status) != code)
        fail_msg("wait status %#x, not exit code %d", (unsigned)status, code);
}

/* Processes compute what threads compute: the reference's curve. */
static void two_processes_follow_the_reference(void **state)
{
    (void)state;
    double want[GOLDEN_STEPS];
    golden_curve(&golden_tiny, "loss_f64", want);
    struct crew c = start_crew(GOLDEN_STEPS);
    listen_until(&c, 0);
    for (int i = 0; i < NUM_RANKS; i++) {
        assert_left_with(reap(&c.ranks[i]), 0);
        assert_true(c.ranks[i].done);
        assert_false(c.ranks[i].paused);
    }
    assert_int_equal(c.ranks[0].steps, GOLDEN_STEPS);
    assert_int_equal(c.ranks[1].steps, 0);
    for (int i = 0; i < GOLDEN_STEPS; i++)
        assert_true(fabs(c.ranks[0].loss[i] / want[i] - 1.0) < 1e-10);
    free_crew(&c);
}

static void a_stop_pauses_both_processes(void **state)
{
    (void)state;
    struct crew c = start_crew(1000000);
    listen_until(&c, 2);
    RankDown down = RANK_DOWN__INIT;
    StopAtStep stop = STOP_AT_STEP__INIT;
    down.body_case = RANK_DOWN__BODY_STOP_AT_STEP;
    down.stop_at_step = &stop;
    for (int i = 0; i < NUM_RANKS; i++)
        send_down(&c.ranks[i], &down);
    listen_until(&c, 0);
    for (int i = 0; i < NUM_RANKS; i++) {
        assert_left_with(reap(&c.ranks[i]), 0);
        assert_true(c.ranks[i].paused);
    }
    free_crew(&c);
}

/* Any rank dies -> the gang dies, and says whose death it was. */
static void a_killed_process_takes_the_other_with_it(void **state)
{
    (void)state;
    struct crew c = start_crew(1000000);
    listen_until(&c, 2);
    kill(c.ranks[1].pid, SIGKILL);
    int status = reap(&c.ranks[1]);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    struct stat st;
    assert_int_equal(fstat(c.segment_fd, &st), 0);
    void *segment =
        mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, c.segment_fd, 0);
    assert_true(segment != MAP_FAILED);
    comm_host_segment_abort(segment, 1, "rank 1 was killed by signal 9");
    listen_until(&c, 0);
    assert_left_with(reap(&c.ranks[0]), 1);
    assert_non_null(strstr(c.ranks[0].fault, "rank 1 was killed by signal 9"));
    munmap(segment, (size_t)st.st_size);
    free_crew(&c);
}

/* A rank doesn't outlive the one that listens to it. */
static void ranks_leave_when_their_link_is_closed(void **state)
{
    (void)state;
    struct crew c = start_crew(1000000);
    listen_until(&c, 1);
    for (int i = 0; i < NUM_RANKS; i++) {
        close(c.ranks[i].fd);
        c.ranks[i].fd = -1;
    }
    /* One of them may wait in a sum for the other: its deadline ends that, or we do. */
    int status = 0;
    pid_t first = 0;
    WAIT_UNTIL((first = waitpid(-1, &status, WNOHANG)) != 0, "the end of a rank whose link closed");
    assert_left_with(status, 1);
    for (int i = 0; i < NUM_RANKS; i++)
        if (c.ranks[i].pid == first)
            c.ranks[i].pid = 0;
    free_crew(&c);
}

int main(void)
{
    gang_quiet();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_processes_follow_the_reference),
        cmocka_unit_test(a_stop_pauses_both_processes),
        cmocka_unit_test(a_killed_process_takes_the_other_with_it),
        cmocka_unit_test(ranks_leave_when_their_link_is_closed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
