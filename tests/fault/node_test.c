/* runtime/node/: gangs whose ranks end in every way that we could think of. Whatever they do, no
 * process of theirs is left, and the causes are told in words that are true. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "runtime/node/gang.h"
#include "runtime/node/proctree.h"
#include "runtime/node/ticket.h"

#define MOST 8

/* Of the next run, in place of what is usual here; 0 = that. */
static int64_t next_stopped_ms, next_abort_grace_ms, next_term_grace_ms;

struct run {
    char dir[64];
    struct gang *gang;
    int32_t num_ranks;
    int64_t num_metrics, last_step;
    int num_exits;
    ExitKind kind[MOST];
    int32_t code[MOST];
    bool retryable[MOST];
    char why[MOST][700];
    AttemptEnd end; /* strings: the gang's */
};

static void on_up(void *arg, int32_t rank, const RankUp *up)
{
    struct run *r = arg;
    (void)rank;
    if (up->body_case == RANK_UP__BODY_METRICS) {
        assert_int_equal(up->metrics->step, ++r->last_step);
        r->num_metrics++;
    }
}

static void on_exit_of_rank(void *arg, const RankExit *gone)
{
    struct run *r = arg;
    assert_in_range(gone->rank, 0, r->num_ranks - 1);
    assert_int_equal(r->kind[gone->rank], 0);
    r->num_exits++;
    r->kind[gone->rank] = gone->kind;
    r->code[gone->rank] = gone->code;
    r->retryable[gone->rank] = gone->retryable;
    snprintf(r->why[gone->rank], sizeof r->why[0], "%s", gone->message);
}

static void run_open_program(struct run *r, int32_t num_ranks, const char *program,
                             int64_t abort_grace_ms)
{
    *r = (struct run){.num_ranks = num_ranks, .end = ATTEMPT_END__INIT};
    snprintf(r->dir, sizeof r->dir, "/tmp/tandem-node-test-XXXXXX");
    assert_non_null(mkdtemp(r->dir));
    struct gang_options options = {
        .job_id = 7,
        .attempt = 1,
        .num_ranks = num_ranks,
        .shared_bytes = 65536,
        .program = program,
        .job_dir = r->dir,
        .log_dir = r->dir,
        .abort_grace_ms = next_abort_grace_ms ? next_abort_grace_ms : abort_grace_ms,
        .term_grace_ms = next_term_grace_ms ? next_term_grace_ms : 300,
        .stopped_ms = next_stopped_ms ? next_stopped_ms : 4000,
        .stalled_ms = 3000,
        .host = "host7",
        .log_head_bytes = 65536,
        .log_tail_bytes = 262144,
        .on_up = on_up,
        .on_exit = on_exit_of_rank,
        .arg = r,
    };
    next_stopped_ms = next_abort_grace_ms = next_term_grace_ms = 0;
    assert_int_equal(gang_new(&r->gang, &options, NULL), 0);
    RankPlacement places[MOST], *list[MOST];
    for (int i = 0; i < num_ranks; i++) {
        rank_placement__init(&places[i]);
        list[i] = &places[i];
    }
    Plan plan = PLAN__INIT;
    plan.n_placement = (size_t)num_ranks;
    plan.placement = list;
    Start start = START__INIT;
    start.plan = &plan;
    gang_start(r->gang, &start);
}

/* words: what each rank does. hasty: those that don't leave by themselves are told to soon. */
static void run_open(struct run *r, int32_t num_ranks, const char *const *words, bool hasty)
{
    for (int i = 0; i < MOST; i++) {
        char name[16];
        snprintf(name, sizeof name, "RANK_%u", (unsigned)i % 10);
        if (i < num_ranks) {
            setenv(name, words[i], 1);
        } else {
            unsetenv(name);
        }
    }
    run_open_program(r, num_ranks, TANDEM_BIN_DIR "/rank_helper", hasty ? 1500 : 20000);
}

static void run_once(struct run *r, bool listen)
{
    struct pollfd fds[2 * MOST];
    int64_t timeout_ms;
    int num = gang_poll_begin(r->gang, fds, listen, &timeout_ms);
    poll(fds, (nfds_t)num, timeout_ms < 0 || timeout_ms > 1000 ? 1000 : (int)timeout_ms);
    gang_poll_end(r->gang, fds, num);
}

static void run_to_end(struct run *r)
{
    int64_t until = clock_mono_ms() + 240000;
    while (!gang_is_gone(r->gang)) {
        assert_true(clock_mono_ms() < until);
        run_once(r, true);
    }
    gang_end(r->gang, &r->end);
    pid_t left[4];
    assert_int_equal(proctree_children(left, 4), 0);
}

static void run_close(struct run *r)
{
    gang_free(r->gang);
    assert_int_equal(fs_remove_tree(r->dir, NULL), 0);
}

static char *read_log(const struct run *r, int rank)
{
    char path[128], *text;
    size_t len;
    snprintf(path, sizeof path, "%s/rank-%d.log", r->dir, rank);
    assert_int_equal(fs_read_file(path, 1 << 20, &text, &len, NULL), 0);
    return text;
}

static void wait_for_file(struct run *r, const char *name, size_t bytes)
{
    char path[128];
    int64_t until = clock_mono_ms() + 30000;
    snprintf(path, sizeof path, "%s/%s", r->dir, name);
    for (;;) {
        char *text = NULL;
        size_t len = 0;
        if (fs_read_file(path, 1 << 20, &text, &len, NULL) == 0) {
            free(text);
        }
        if (len >= bytes) {
            return;
        }
        assert_true(clock_mono_ms() < until);
        run_once(r, true);
        clock_sleep_ms(2);
    }
}

/* The last line of a text that ends with a newline. */
static const char *last_line(const char *text)
{
    size_t n = strlen(text);
    assert_true(n > 0 && text[n - 1] == '\n');
    const char *p = text + n - 1;
    while (p > text && p[-1] != '\n') {
        p--;
    }
    return p;
}

static void expect_last_line(const struct run *r, int rank, const char *part)
{
    char *text = read_log(r, rank);
    const char *line = last_line(text);
    if (!strstr(line, part)) {
        fail_msg("rank %d's last line is: %s", rank, line);
    }
    free(text);
}

static void expect_why(const struct run *r, int rank, ExitKind kind, int32_t code, const char *part)
{
    if (r->kind[rank] != kind || r->code[rank] != code || !strstr(r->why[rank], part)) {
        fail_msg("rank %d: kind %d code %d: %s", rank, (int)r->kind[rank], (int)r->code[rank],
                 r->why[rank]);
    }
}

/* It leaves by itself for another that doesn't; where it is slow to, it is told to with that one. */
static void expect_left(const struct run *r, int rank, const char *part)
{
    expect_why(r, rank, EXIT_STOPPED, r->code[rank] == SIGTERM ? SIGTERM : 1, part);
}

static void send_stop(struct run *r, int64_t step)
{
    StopAtStep stop = STOP_AT_STEP__INIT;
    stop.has_step = 1;
    stop.step = step;
    RankDown down = RANK_DOWN__INIT;
    down.body_case = RANK_DOWN__BODY_STOP_AT_STEP;
    down.stop_at_step = &stop;
    gang_send(r->gang, &down);
}

/* ---- good ends --------------------------------------------------------------------------------
 */

static void a_gang_that_finishes_says_so(void **state)
{
    (void)state;
    struct run r;
    run_open(&r, 3, (const char *[]){"talk 5000", "done", "done"}, false);
    run_to_end(&r);
    assert_int_equal(r.num_exits, 3);
    assert_int_equal(r.num_metrics, 5000);
    expect_why(&r, 0, EXIT_OK, 0, "finished");
    assert_true(r.end.finished && !r.end.paused);
    assert_int_equal(r.end.first_failed_rank, -1);
    expect_last_line(&r, 1, "rank 1: finished");
    run_close(&r);
}

static void a_gang_stops_at_a_step_on_command(void **state)
{
    (void)state;
    struct run r;
    run_open(&r, 2, (const char *[]){"obey", "obey"}, false);
    send_stop(&r, 40);
    run_to_end(&r);
    assert_true(r.end.paused && !r.end.finished);
    expect_why(&r, 1, EXIT_OK, 0, "paused");
    run_close(&r);
}

/* While the controller is away and the outbox is full, ranks wait: nothing is lost. */
static void ranks_wait_while_nobody_listens(void **state)
{
    (void)state;
    struct run r;
    run_open(&r, 1, (const char *[]){"talk 100000"}, false);
    int64_t until = clock_mono_ms() + 300;
    while (clock_mono_ms() < until) {
        struct pollfd fds[2];
        int64_t timeout_ms;
        int num = gang_poll_begin(r.gang, fds, false, &timeout_ms);
        poll(fds, (nfds_t)num, 20);
        gang_poll_end(r.gang, fds, num);
    }
    assert_int_equal(r.num_metrics, 0);
    assert_false(gang_is_gone(r.gang));
    run_to_end(&r);
    assert_int_equal(r.num_metrics, 100000);
    assert_true(r.end.finished);
    run_close(&r);
}

/* ---- bad ends ---------------------------------------------------------------------------------
 */

/* The kernel's OOM killer, an admin's kill -9: it must be plain that it wasn't us. */
static void a_killed_rank_is_told_from_one_that_we_killed(void **state)
{
    (void)state;
    struct run r;
    next_term_grace_ms = 4000; /* for the one that takes its TERM: it may be slow to do so */
    run_open(&r, 3, (const char *[]){"hang", "then kill 9", "stubborn"}, true);
    wait_for_file(&r, "rank-0.log", 7);
    wait_for_file(&r, "rank-2.log", 7);
    send_stop(&r, 1);
    run_to_end(&r);
    expect_why(&r, 1, EXIT_SIGNAL, 9, "killed by signal 9 (SIGKILL), not by Tandem: ");
    expect_why(&r, 0, EXIT_STOPPED, 15,
               "stopped by Tandem with signal 15 (SIGTERM): rank 1: killed");
    expect_why(&r, 2, EXIT_STOPPED, 9, "stopped by Tandem with signal 9 (SIGKILL): rank 1: killed");
    assert_false(r.end.finished);
    assert_int_equal(r.end.first_failed_rank, 1);
    assert_true(r.end.retryable);
    assert_non_null(strstr(r.end.message, "rank 1: killed by signal 9 (SIGKILL)"));
    expect_last_line(&r, 1, "rank 1: killed by signal 9 (SIGKILL), not by Tandem: ");
    expect_last_line(&r, 0,
                     "rank 0: stopped by Tandem with signal 15 (SIGTERM): rank 1: killed by");
    run_close(&r);
}

static void exits_are_told_in_words(void **state)
{
    (void)state;
    static const struct {
        const char *word, *text;
        ExitKind kind;
        int32_t code;
    } cases[] = {
        {"kill 11", "killed by signal 11 (SIGSEGV): ", EXIT_SIGNAL, 11},
        {"kill 15", "killed by signal 15 (SIGTERM), not by Tandem: someone's kill", EXIT_SIGNAL,
         15},
        {"kill 6", "killed by signal 6 (SIGABRT): ", EXIT_SIGNAL, 6},
        {"exit 3", "left with code 3, without a word of why", EXIT_CODE, 3},
        {"exit 137", "left with code 137, as a shell reports signal 9 (SIGKILL)", EXIT_CODE, 137},
        {"exit 0", "left with code 0 before it was done", EXIT_CODE, 0},
        {"fault", "data/train.bin: not a token file", EXIT_CODE, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct run r;
        run_open(&r, 2, (const char *[]){"meet", cases[i].word}, false);
        run_to_end(&r);
        expect_why(&r, 1, cases[i].kind, cases[i].code, cases[i].text);
        /* The other's collective fails at once, in the name of the first. */
        expect_why(&r, 0, EXIT_STOPPED, 1, "barrier: rank 1: ");
        assert_int_equal(r.end.first_failed_rank, 1);
        assert_int_equal(r.end.retryable, strcmp(cases[i].word, "fault") != 0);
        assert_non_null(strstr(r.end.message, cases[i].text));
        run_close(&r);
    }
}

/* A rank that hangs says nothing: the others' deadline blames it, and the end says so. On a machine
 * that stands still for as long, one of those that live is missed just as rightly; then once more.
 */
static void a_hanging_rank_is_the_one_to_blame(void **state)
{
    (void)state;
    struct run r;
    for (int tries = 5;; tries--) {
        next_stopped_ms = 600000;
        next_abort_grace_ms = next_term_grace_ms = 4000;
        run_open(&r, 3, (const char *[]){"meet 2000", "meet 2000", "kill 19"}, true);
        run_to_end(&r);
        if (r.end.first_failed_rank == 2 || tries == 0) {
            break;
        }
        run_close(&r);
    }
    assert_int_equal(r.end.first_failed_rank, 2);
    assert_string_equal(r.end.message, "rank 2 did not come to barrier within 2.0 s");
    expect_left(&r, 0, "rank 2 did not come to barrier");
    expect_why(&r, 2, EXIT_STOPPED, 15, "stopped by Tandem");
    run_close(&r);
}

/* A single rank has no peer whose deadline could find it. */
static void a_stopped_rank_is_named_though_it_has_no_peers(void **state)
{
    (void)state;
    struct run r;
    run_open(&r, 1, (const char *[]){"kill 19"}, true);
    run_to_end(&r);
    assert_int_equal(r.end.first_failed_rank, 0);
    assert_non_null(strstr(r.end.message, "rank 0: stood still for"));
    assert_non_null(strstr(r.end.message, "SIGSTOP"));
    assert_true(r.end.retryable);
    run_close(&r);
}

/* A memory cgroup of our own with a limit, of either version; false: not here. */
static bool make_small_group(char *dir, size_t size)
{
    char line[512];
    FILE *f = fopen("/proc/self/cgroup", "re");
    bool made = false;
    while (f && !made && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        const char *v1 = strstr(line, ":memory:");
        if (!v1 && strncmp(line, "0::", 3) != 0) {
            continue;
        }
        char path[700];
        snprintf(dir, size, "/sys/fs/cgroup%s%s/tandem-test-%d", v1 ? "/memory" : "",
                 v1 ? v1 + 8 : line + 3, (int)getpid());
        snprintf(path, sizeof path, "%s/memory.%s", dir, v1 ? "limit_in_bytes" : "max");
        int fd = mkdir(dir, 0700) == 0 ? open(path, O_WRONLY | O_CLOEXEC) : -1;
        made = fd >= 0 && write(fd, "67108864", 8) == 8;
        if (fd >= 0) {
            close(fd);
        }
        if (!made) {
            rmdir(dir);
        }
    }
    if (f) {
        fclose(f);
    }
    return made;
}

/* (26) The kernel's own kill is told from a person's. */
static void a_rank_that_ran_out_of_memory_is_told_from_one_that_someone_killed(void **state)
{
    (void)state;
    struct run r;
    char group[600], procs[700];
    run_open(&r, 1, (const char *[]){"kill 9"}, true);
    run_to_end(&r);
    expect_why(&r, 0, EXIT_SIGNAL, 9, "not by Tandem: ");
    bool knows = strstr(r.why[0], "someone's kill: the kernel's OOM killer has not struck") != NULL;
    assert_true(knows || strstr(r.why[0], "GiB"));
    run_close(&r);
    if (!make_small_group(group, sizeof group)) {
        print_message("SKIPPED: may make no memory cgroup here\n");
        return;
    }
    snprintf(procs, sizeof procs, "%s/cgroup.procs", group);
    setenv("EAT_PROCS", procs, 1);
    run_open(&r, 1, (const char *[]){"eat"}, true);
    run_to_end(&r);
    int64_t until = clock_mono_ms() + 30000;
    while (rmdir(group) != 0 && clock_mono_ms() < until) {
        clock_sleep_ms(5);
    }
    expect_why(&r, 0, EXIT_SIGNAL, 9, "out of memory: the kernel's OOM killer struck");
    run_close(&r);
}

/* ---- logs -------------------------------------------------------------------------------------
 */

/* (27) A rank that talks without end doesn't fill the disk: what it said first and last stays, each
 * byte where it was. */
static void the_middle_of_a_long_log_is_dropped_and_offsets_stay(void **state)
{
    (void)state;
    struct run r;
    struct stat st = {0};
    char path[128];
    run_open(&r, 1, (const char *[]){"chat 250000"}, false);
    snprintf(path, sizeof path, "%s/rank-0.log", r.dir);
    int64_t until = clock_mono_ms() + 30000;
    while (st.st_size < 4000000 || st.st_blocks * 512 > 1000000) {
        assert_true(clock_mono_ms() < until);
        run_once(&r, true);
        stat(path, &st);
    }
    send_stop(&r, 1);
    run_to_end(&r);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    char line[64];
    static const int kept[] = {0, 4095, 250000 - 16384, 249999};
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        assert_int_equal(fseek(f, 16L * kept[i], SEEK_SET), 0);
        assert_non_null(fgets(line, sizeof line, f));
        assert_int_equal(atoi(line + 5), kept[i]);
    }
    assert_int_equal(fseek(f, 16L * 100000, SEEK_SET), 0);
    assert_int_equal(fgetc(f), 0);
    fclose(f);
    run_close(&r);
}

/* (28) A rank that computes for ever, far below any collective's deadline: named by rank, host,
 * collective and step. */
static void a_rank_that_is_busy_for_ever_is_named(void **state)
{
    (void)state;
    struct run r;
    next_abort_grace_ms = 4000; /* for those that leave by themselves */
    run_open(&r, 3, (const char *[]){"train 100", "train 100", "train 100 busy 20"}, true);
    run_to_end(&r);
    assert_int_equal(r.end.first_failed_rank, 2);
    if (!strstr(r.end.message,
                "rank 2: has not come to barrier (call 20) on host7 in step 20 for ") ||
        !strstr(r.end.message, "s: it is busy in its own code")) {
        fail_msg("%s", r.end.message);
    }
    assert_true(r.end.retryable);
    assert_int_equal(r.num_metrics, 19);
    expect_left(&r, 0, "barrier: rank 2: has not come to barrier");
    run_close(&r);
}

/* The deadline follows the run: once a step has taken long, another may take longer still. */
static void a_run_with_long_steps_is_left_alone(void **state)
{
    (void)state;
    struct run r;
    run_open(&r, 2, (const char *[]){"train 30", "train 30 slow 10 700 20 4400"}, true);
    run_to_end(&r);
    assert_true(r.end.finished);
    assert_int_equal(r.num_metrics, 30);
    run_close(&r);
}

/* (28) Stopped among several: the collective that they wait in is named with it. */
static void a_stopped_rank_is_named_with_what_the_others_wait_in(void **state)
{
    (void)state;
    struct run r;
    run_open(&r, 2, (const char *[]){"train 1000000000", "train 1000000000"}, true);
    int64_t until = clock_mono_ms() + 60000;
    while (r.num_metrics < 5) {
        assert_true(clock_mono_ms() < until);
        run_once(&r, true);
    }
    pid_t pids[4];
    assert_int_equal(proctree_children(pids, 4), 2);
    pid_t second = pids[0] > pids[1] ? pids[0] : pids[1];
    kill(second, SIGSTOP);
    run_to_end(&r);
    assert_non_null(strstr(r.end.message, ": stood still for"));
    assert_non_null(strstr(r.end.message, " on host7 after step"));
    assert_non_null(strstr(r.end.message, "; the others wait for it in barrier (call "));
    run_close(&r);
}

static void a_program_that_is_not_there_fails_for_good(void **state)
{
    (void)state;
    struct run r;
    run_open_program(&r, 2, "/nonexistent/tandem-rank", 1500);
    run_to_end(&r);
    assert_int_equal(r.num_exits, 1);
    expect_why(&r, 0, EXIT_SPAWN, 0, "/nonexistent/tandem-rank");
    assert_false(r.end.retryable);
    assert_int_equal(r.end.first_failed_rank, 0);
    run_close(&r);
}

/* ---- nothing is left --------------------------------------------------------------------------
 */

static int read_pids(const struct run *r, int rank, pid_t *pids, int max)
{
    char path[128];
    snprintf(path, sizeof path, "%s/brood-%d", r->dir, rank);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    int num = 0;
    while (num < max && fscanf(f, "%d", &pids[num]) == 1) {
        num++;
    }
    fclose(f);
    return num;
}

/* All five have written their line. */
static void wait_for_brood(struct run *r, int rank)
{
    pid_t pids[16];
    char name[32];
    int64_t until = clock_mono_ms() + 30000;
    snprintf(name, sizeof name, "brood-%d", rank);
    wait_for_file(r, name, 1);
    while (read_pids(r, rank, pids, 16) < 5) {
        assert_true(clock_mono_ms() < until);
        run_once(r, true);
        clock_sleep_ms(2);
    }
}

/* Sessions of their own, parents that left, TERM ignored: they go all the same. */
static void no_descendant_survives_a_cancel(void **state)
{
    (void)state;
    struct run r;
    pid_t pids[16];
    run_open(&r, 3, (const char *[]){"brood", "stubborn", "hang"}, false);
    wait_for_brood(&r, 0);
    wait_for_file(&r, "rank-1.log", 7);
    gang_stop(r.gang, 200, "cancelled: not needed any more");
    run_to_end(&r);
    int num = read_pids(&r, 0, pids, 16);
    assert_int_equal(num, 5);
    for (int i = 0; i < num; i++) {
        assert_int_equal(kill(pids[i], 0), -1);
        assert_int_equal(errno, ESRCH);
    }
    expect_why(&r, 1, EXIT_STOPPED, 9, "stopped by Tandem with signal 9 (SIGKILL): cancelled: not");
    expect_last_line(&r, 1, "stopped by Tandem with signal 9 (SIGKILL): cancelled: not needed");
    assert_false(r.end.finished);
    assert_int_equal(r.end.first_failed_rank, -1);
    assert_string_equal(r.end.message, "cancelled: not needed any more");
    run_close(&r);
}

static void freeing_a_gang_kills_it(void **state)
{
    (void)state;
    struct run r;
    pid_t pids[16];
    run_open(&r, 2, (const char *[]){"brood", "stubborn"}, false);
    wait_for_brood(&r, 0);
    int num = read_pids(&r, 0, pids, 16);
    run_close(&r);
    for (int i = 0; i < num; i++) {
        assert_int_equal(kill(pids[i], 0), -1);
    }
    assert_int_equal(proctree_children(pids, 16), 0);
}

/* ---- ticket -----------------------------------------------------------------------------------
 */

static int read_ticket(const LaunchTicket *t, size_t cut, LaunchTicket **out, struct error *err)
{
    uint8_t bytes[1024];
    int fds[2];
    size_t len = launch_ticket__pack(t, bytes) - cut;
    assert_int_equal(pipe(fds), 0);
    assert_int_equal(fs_write_all(fds[1], bytes, len), 0);
    close(fds[1]);
    int rc = ticket_read(fds[0], out, err);
    close(fds[0]);
    return rc;
}

static void a_ticket_is_read_whole_or_refused(void **state)
{
    (void)state;
    LaunchTicket t = LAUNCH_TICKET__INIT, *got;
    struct error err;
    t.server = (char[]){"unix:/tmp/x.sock"};
    t.has_job_id = t.has_attempt = 1;
    t.job_id = 7;
    t.attempt = 1;
    t.token = (char[]){"secret"};
    t.job_dir = (char[]){"/data/jobs/7"};
    t.bin_dir = (char[]){"/usr/libexec"};
    assert_int_equal(read_ticket(&t, 0, &got, &err), 0);
    assert_string_equal(got->token, "secret");
    launch_ticket__free_unpacked(got, NULL);
    assert_int_equal(read_ticket(&t, 3, &got, &err), -1);
    t.job_dir = (char[]){"jobs/7"};
    assert_int_equal(read_ticket(&t, 0, &got, &err), -1);
    assert_non_null(strstr(err.text, "job_dir"));
    assert_null(strstr(err.text, "secret"));
}

int main(void)
{
    struct error err;
    if (proctree_adopt_orphans(&err) != 0) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_gang_that_finishes_says_so),
        cmocka_unit_test(a_gang_stops_at_a_step_on_command),
        cmocka_unit_test(ranks_wait_while_nobody_listens),
        cmocka_unit_test(a_killed_rank_is_told_from_one_that_we_killed),
        cmocka_unit_test(exits_are_told_in_words),
        cmocka_unit_test(a_hanging_rank_is_the_one_to_blame),
        cmocka_unit_test(a_stopped_rank_is_named_though_it_has_no_peers),
        cmocka_unit_test(a_rank_that_ran_out_of_memory_is_told_from_one_that_someone_killed),
        cmocka_unit_test(the_middle_of_a_long_log_is_dropped_and_offsets_stay),
        cmocka_unit_test(a_rank_that_is_busy_for_ever_is_named),
        cmocka_unit_test(a_run_with_long_steps_is_left_alone),
        cmocka_unit_test(a_stopped_rank_is_named_with_what_the_others_wait_in),
        cmocka_unit_test(a_program_that_is_not_there_fails_for_good),
        cmocka_unit_test(no_descendant_survives_a_cancel),
        cmocka_unit_test(freeing_a_gang_kills_it),
        cmocka_unit_test(a_ticket_is_read_whole_or_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
