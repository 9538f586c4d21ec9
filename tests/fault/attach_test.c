/* tandem-node as a process, against a controller that the test plays: what goes up is numbered and
 * arrives exactly once whatever the stream does; what comes down is obeyed; nothing is left. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "proto/names.h"
#include "runtime/node/proctree.h"
#include "server/rpc/server.h"

#define MOST_UPS 4096
#define WAIT_MS 60000

/* What the controller has seen, and how it answers. */
struct controller {
    char dir[64], sock[96], target[112];
    struct server *server;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* Under lock. */
    WorkerUp *ups[MOST_UPS];            /* owned; those with a number, as they came */
    int num_ups, num_hellos, num_again; /* num_again: came a second time */
    int64_t acked_seq;
    bool hello_fresh;
    int64_t hello_acked;
    struct call *call; /* the live stream */
    /* Set before use. */
    int32_t num_ranks;
    bool mute; /* acknowledge nothing */
    int64_t lease_ms;
    int refuse_after; /* this many hellos are served, the next refused; -1 = all are served */
    int break_after;  /* breaks the stream after so many numbered messages; 0 = never */
    pid_t node;
};

/* ---- the controller ---------------------------------------------------------------------------
 */

static void send_down(struct controller *t, WorkerDown *down)
{
    down->has_attempt = 1;
    down->attempt = 2;
    pthread_mutex_lock(&t->lock);
    if (t->call) {
        call_send(t->call, &down->base);
    }
    pthread_mutex_unlock(&t->lock);
}

static void send_lease(struct controller *t)
{
    Lease lease = LEASE__INIT;
    lease.has_ttl_ms = 1;
    lease.ttl_ms = t->lease_ms;
    WorkerDown down = WORKER_DOWN__INIT;
    down.body_case = WORKER_DOWN__BODY_LEASE;
    down.lease = &lease;
    send_down(t, &down);
}

static void send_start(struct controller *t)
{
    RankPlacement place = RANK_PLACEMENT__INIT, *places[8];
    Plan plan = PLAN__INIT;
    Start start = START__INIT;
    for (int i = 0; i < 8; i++) {
        places[i] = &place;
    }
    plan.n_placement = (size_t)t->num_ranks;
    plan.placement = places;
    start.plan = &plan;
    WorkerDown down = WORKER_DOWN__INIT;
    down.body_case = WORKER_DOWN__BODY_START;
    down.start = &start;
    send_down(t, &down);
}

static void send_ack(struct controller *t, int64_t seq)
{
    Ack ack = ACK__INIT;
    ack.has_seq = 1;
    ack.seq = seq;
    WorkerDown down = WORKER_DOWN__INIT;
    down.body_case = WORKER_DOWN__BODY_ACK;
    down.ack = &ack;
    send_down(t, &down);
}

static void on_hello(struct controller *t, struct call *c, const Hello *hello)
{
    pthread_mutex_lock(&t->lock);
    t->num_hellos++;
    t->hello_fresh = hello->fresh;
    t->hello_acked = hello->acked_seq;
    bool refuse = t->refuse_after >= 0 && t->num_hellos > t->refuse_after;
    call_unref(t->call);
    t->call = call_ref(c);
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
    if (refuse) {
        call_fail(c, ERR_FAILED_PRECONDITION, "attempt 2 isn't the current one");
        return;
    }
    send_lease(t);
    if (hello->fresh) {
        send_start(t);
    }
}

static void on_numbered(struct controller *t, struct call *c, const WorkerUp *up)
{
    uint8_t *bytes = malloc(worker_up__get_packed_size(up));
    size_t len = worker_up__pack(up, bytes);
    bool do_break = false, is_next;
    pthread_mutex_lock(&t->lock);
    is_next = up->seq == (t->num_ups ? t->ups[t->num_ups - 1]->seq : 0) + 1;
    if (is_next && t->num_ups < MOST_UPS) {
        t->ups[t->num_ups++] = worker_up__unpack(NULL, len, bytes);
        do_break = t->break_after && t->num_ups % t->break_after == 0;
    } else {
        t->num_again++;
    }
    int64_t seq = up->seq;
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
    free(bytes);
    if (do_break) {
        call_fail(c, ERR_UNAVAILABLE, "broken on purpose");
    } else if (!t->mute) {
        send_ack(t, seq);
    }
}

static void on_message(void *ctx, struct call *c, const ProtobufCMessage *message)
{
    struct controller *t = ctx;
    const WorkerUp *up = (const WorkerUp *)message;
    if (up->body_case == WORKER_UP__BODY_HELLO) {
        on_hello(t, c, up->hello);
    } else if (up->seq > 0) {
        on_numbered(t, c, up);
    }
}

static int authenticate(void *ctx, const char *bearer, bool unix_socket, const char *peer,
                        const struct method *method, struct caller *caller, struct error *err)
{
    (void)ctx;
    (void)unix_socket;
    (void)peer;
    if (method->access != METHOD_WORKER || !bearer || strcmp(bearer, "the-token") != 0) {
        return error_set(err, ERR_UNAUTHENTICATED, "unknown token");
    }
    *caller = (struct caller){.user = "", .role = "worker", .job_id = 7, .attempt = 2};
    return 0;
}

static const struct method methods[] = {
    {.path = "/tandem.v1.Worker/Attach",
     .kind = METHOD_BIDI,
     .access = METHOD_WORKER,
     .request = &worker_up__descriptor,
     .on_message = on_message},
    {.path = NULL},
};
static const struct method *const tables[] = {methods, NULL};

static void controller_serve(struct controller *t)
{
    const char *const listen[] = {t->target, NULL};
    struct server_options options = {
        .listen = listen, .tables = tables, .ctx = t, .authenticate = authenticate};
    struct error err = {0};
    if (server_new(&t->server, &options, &err) != 0 || server_start(t->server, &err) != 0) {
        fail_msg("%s", err.text);
    }
}

static void controller_leave(struct controller *t)
{
    server_stop(t->server, 1000);
    pthread_mutex_lock(&t->lock);
    call_unref(t->call);
    t->call = NULL;
    pthread_mutex_unlock(&t->lock);
    server_free(t->server);
}

/* ---- tandem-node ------------------------------------------------------------------------------
 */

static void write_ticket(struct controller *t, const char *token, int fd)
{
    uint8_t bytes[2048];
    LaunchTicket ticket = LAUNCH_TICKET__INIT;
    ticket.server = t->target;
    ticket.has_job_id = ticket.has_attempt = 1;
    ticket.job_id = 7;
    ticket.attempt = 2;
    ticket.token = (char *)(uintptr_t)token;
    ticket.job_dir = t->dir;
    ticket.bin_dir = t->dir;
    ticket.node = (char[]){"here"};
    assert_int_equal(fs_write_all(fd, bytes, launch_ticket__pack(&ticket, bytes)), 0);
}

static void node_start(struct controller *t, const char *token)
{
    int ticket[2];
    char log[96];
    assert_int_equal(pipe2(ticket, O_CLOEXEC), 0);
    snprintf(log, sizeof log, "%s/node.log", t->dir);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, log, O_WRONLY | O_CREAT | O_APPEND, 0600);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    posix_spawn_file_actions_adddup2(&actions, ticket[0], 3);
    char *argv[] = {(char[]){"tandem-node"}, NULL};
    assert_int_equal(
        posix_spawn(&t->node, TANDEM_BIN_DIR "/tandem-node", &actions, NULL, argv, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(ticket[0]);
    write_ticket(t, token, ticket[1]);
    close(ticket[1]);
}

static void begin(struct controller *t, int32_t num_ranks, const char *word0, const char *word1)
{
    *t = (struct controller){.num_ranks = num_ranks, .lease_ms = 600000, .refuse_after = -1};
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->changed, NULL);
    snprintf(t->dir, sizeof t->dir, "/tmp/tandem-attach-test-XXXXXX");
    assert_non_null(mkdtemp(t->dir));
    snprintf(t->sock, sizeof t->sock, "%s/d.sock", t->dir);
    snprintf(t->target, sizeof t->target, "unix:%s", t->sock);
    char path[96];
    snprintf(path, sizeof path, "%s/tandem-rank", t->dir);
    assert_int_equal(symlink(TANDEM_BIN_DIR "/rank_helper", path), 0);
    setenv("RANK_0", word0, 1);
    setenv("RANK_1", word1, 1);
}

static int node_wait(struct controller *t)
{
    int status, num_left;
    pid_t left[2];
    int64_t until = clock_mono_ms() + WAIT_MS;
    while (waitpid(t->node, &status, WNOHANG) == 0) {
        if (clock_mono_ms() > until) {
            char cat[128];
            snprintf(cat, sizeof cat, "cat %s/node.log >&2", t->dir);
            int rc = system(cat);
            fail_msg("tandem-node doesn't leave (%d)", rc);
        }
        clock_sleep_ms(2);
    }
    /* What the io threads wrote is ours to read from here on. */
    pthread_mutex_lock(&t->lock);
    pthread_mutex_unlock(&t->lock);
    /* Its orphans would be ours. */
    num_left = proctree_children(left, 2);
    assert_int_equal(num_left, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static void finish(struct controller *t)
{
    controller_leave(t);
    for (int i = 0; i < t->num_ups; i++) {
        worker_up__free_unpacked(t->ups[i], NULL);
    }
    pthread_cond_destroy(&t->changed);
    pthread_mutex_destroy(&t->lock);
    assert_int_equal(fs_remove_tree(t->dir, NULL), 0);
}

static void wait_for_ups(struct controller *t, int num_ups, int num_hellos)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += WAIT_MS / 1000;
    pthread_mutex_lock(&t->lock);
    int rc = 0;
    while (rc == 0 && (t->num_ups < num_ups || t->num_hellos < num_hellos)) {
        rc = pthread_cond_timedwait(&t->changed, &t->lock, &until);
    }
    int ups = t->num_ups, hellos = t->num_hellos;
    pthread_mutex_unlock(&t->lock);
    if (rc != 0) {
        fail_msg("%d messages and %d hellos came", ups, hellos);
    }
}

static void wait_for_log(struct controller *t, const char *name, const char *part)
{
    char path[128];
    int64_t until = clock_mono_ms() + WAIT_MS;
    snprintf(path, sizeof path, "%s/%s", t->dir, name);
    for (bool found = false; !found;) {
        char *text = NULL;
        size_t len;
        if (fs_read_file(path, 1 << 20, &text, &len, NULL) == 0) {
            found = strstr(text, part) != NULL;
        }
        free(text);
        assert_true(clock_mono_ms() < until);
        clock_sleep_ms(2);
    }
}

static const AttemptEnd *the_end(const struct controller *t)
{
    assert_true(t->num_ups > 0);
    const WorkerUp *up = t->ups[t->num_ups - 1];
    assert_int_equal(up->body_case, WORKER_UP__BODY_ATTEMPT_END);
    return up->attempt_end;
}

/* ---- tests ------------------------------------------------------------------------------------
 */

static void an_attempt_runs_and_reports_to_its_end(void **state)
{
    (void)state;
    struct controller t;
    begin(&t, 2, "talk 100", "done");
    controller_serve(&t);
    node_start(&t, "the-token");
    assert_int_equal(node_wait(&t), 0);
    /* 100 steps, two exits, the end. */
    assert_int_equal(t.num_ups, 103);
    assert_int_equal(t.num_again, 0);
    assert_true(the_end(&t)->finished);
    int64_t step = 0;
    for (int i = 0; i < t.num_ups; i++) {
        assert_int_equal(t.ups[i]->job_id, 7);
        if (t.ups[i]->body_case == WORKER_UP__BODY_METRICS) {
            assert_int_equal(t.ups[i]->metrics->step, ++step);
            assert_int_equal(t.ups[i]->metrics->attempt, 2);
        }
    }
    assert_int_equal(step, 100);
    finish(&t);
}

/* Streams break; what was reported arrives once and in order all the same. */
static void reports_survive_broken_streams(void **state)
{
    (void)state;
    struct controller t;
    begin(&t, 2, "talk 1000", "done");
    t.break_after = 150;
    controller_serve(&t);
    node_start(&t, "the-token");
    assert_int_equal(node_wait(&t), 0);
    assert_int_equal(t.num_ups, 1003);
    assert_true(t.num_hellos >= 6);
    assert_false(t.hello_fresh);
    assert_true(the_end(&t)->finished);
    finish(&t);
}

/* The ranks train on while the controller is away, and the new one hears all of it. */
static void a_restarted_controller_hears_what_it_missed(void **state)
{
    (void)state;
    struct controller t;
    begin(&t, 2, "talk 300", "then done");
    t.mute = true;
    controller_serve(&t);
    node_start(&t, "the-token");
    wait_for_ups(&t, 301, 1);
    controller_leave(&t);
    for (int i = 0; i < t.num_ups; i++) {
        worker_up__free_unpacked(t.ups[i], NULL);
    }
    t.num_ups = 0; /* it forgot what it hadn't acknowledged */
    t.mute = false;
    controller_serve(&t);
    wait_for_ups(&t, 301, 2);
    assert_false(t.hello_fresh);
    assert_int_equal(t.hello_acked, 0);
    StopAtStep stop = STOP_AT_STEP__INIT;
    WorkerDown down = WORKER_DOWN__INIT;
    down.body_case = WORKER_DOWN__BODY_STOP_AT_STEP;
    down.stop_at_step = &stop;
    send_down(&t, &down);
    assert_int_equal(node_wait(&t), 0);
    assert_int_equal(t.num_ups, 303);
    finish(&t);
}

/* A controller that isn't there yet is waited for. */
static void a_node_waits_for_its_controller(void **state)
{
    (void)state;
    struct controller t;
    begin(&t, 1, "done", "");
    node_start(&t, "the-token");
    clock_sleep_ms(200); /* long enough for some attempts that fail */
    controller_serve(&t);
    assert_int_equal(node_wait(&t), 0);
    assert_true(the_end(&t)->finished);
    finish(&t);
}

static void a_cancel_ends_the_gang_and_is_reported(void **state)
{
    (void)state;
    struct controller t;
    begin(&t, 2, "stubborn", "brood");
    controller_serve(&t);
    node_start(&t, "the-token");
    wait_for_log(&t, "logs/attempt-2/rank-0.log", "waiting");
    wait_for_log(&t, "logs/attempt-2/rank-1.log", "waiting");
    CancelAttempt cancel = CANCEL_ATTEMPT__INIT;
    cancel.has_grace_ms = 1;
    cancel.grace_ms = 100;
    cancel.reason = (char[]){"by ada"};
    WorkerDown down = WORKER_DOWN__INIT;
    down.body_case = WORKER_DOWN__BODY_CANCEL;
    down.cancel = &cancel;
    send_down(&t, &down);
    assert_int_equal(node_wait(&t), 0);
    const AttemptEnd *end = the_end(&t);
    assert_true(end->cancelled && !end->finished);
    assert_int_equal(end->first_failed_rank, -1);
    assert_string_equal(end->message, "cancelled: by ada");
    finish(&t);
}

static void a_refused_attempt_is_ended(void **state)
{
    (void)state;
    struct controller t;
    begin(&t, 2, "stubborn", "hang");
    t.refuse_after = 1;
    controller_serve(&t);
    node_start(&t, "the-token");
    wait_for_log(&t, "logs/attempt-2/rank-0.log", "waiting");
    pthread_mutex_lock(&t.lock);
    call_fail(t.call, ERR_UNAVAILABLE, "broken on purpose");
    pthread_mutex_unlock(&t.lock);
    assert_int_equal(node_wait(&t), 1);
    wait_for_log(&t, "node.log", "attempt 2 isn't the current one");
    wait_for_log(&t, "logs/attempt-2/rank-0.log", "the controller refuses this attempt");
    finish(&t);
}

static void a_wrong_token_starts_nothing(void **state)
{
    (void)state;
    struct controller t;
    begin(&t, 1, "hang", "");
    controller_serve(&t);
    node_start(&t, "another");
    assert_int_equal(node_wait(&t), 1);
    assert_int_equal(t.num_hellos, 0);
    finish(&t);
}

/* Without the controller's word the devices may be another's: the ranks must not go on. */
static void a_lease_that_runs_out_ends_the_gang(void **state)
{
    (void)state;
    struct controller t;
    begin(&t, 2, "hang", "stubborn");
    t.lease_ms = 500;
    controller_serve(&t);
    node_start(&t, "the-token");
    assert_int_equal(node_wait(&t), 1);
    wait_for_log(&t, "node.log", "the lease is over");
    finish(&t);
}

static void a_terminated_node_takes_its_gang_along(void **state)
{
    (void)state;
    struct controller t;
    begin(&t, 2, "hang", "brood");
    controller_serve(&t);
    node_start(&t, "the-token");
    wait_for_log(&t, "logs/attempt-2/rank-0.log", "waiting");
    wait_for_log(&t, "logs/attempt-2/rank-1.log", "waiting");
    assert_int_equal(kill(t.node, SIGTERM), 0);
    assert_int_equal(node_wait(&t), 0);
    assert_true(the_end(&t)->cancelled);
    assert_non_null(strstr(the_end(&t)->message, "SIGTERM"));
    finish(&t);
}

/* Nobody hears its report: it leaves all the same, soon. */
static void a_terminated_node_does_not_wait_for_a_lost_controller(void **state)
{
    (void)state;
    struct controller t;
    begin(&t, 2, "hang", "stubborn");
    controller_serve(&t);
    node_start(&t, "the-token");
    wait_for_log(&t, "logs/attempt-2/rank-1.log", "waiting");
    controller_leave(&t);
    assert_int_equal(kill(t.node, SIGTERM), 0);
    assert_int_equal(node_wait(&t), 1);
    controller_serve(&t);
    finish(&t);
}

/* The kernel does it: nobody is there to tell the ranks. */
static void ranks_die_with_a_killed_node(void **state)
{
    (void)state;
    struct controller t;
    int status;
    begin(&t, 2, "hang", "stubborn");
    controller_serve(&t);
    node_start(&t, "the-token");
    wait_for_log(&t, "logs/attempt-2/rank-0.log", "waiting");
    wait_for_log(&t, "logs/attempt-2/rank-1.log", "waiting");
    assert_int_equal(kill(t.node, SIGKILL), 0);
    /* We adopt its orphans: reaped here, or reaped already by nobody else. */
    for (int i = 0; i < 3; i++) {
        assert_true(wait(&status) > 0);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    }
    finish(&t);
}

int main(void)
{
    if (proctree_adopt_orphans(NULL) != 0) {
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_attempt_runs_and_reports_to_its_end),
        cmocka_unit_test(reports_survive_broken_streams),
        cmocka_unit_test(a_restarted_controller_hears_what_it_missed),
        cmocka_unit_test(a_node_waits_for_its_controller),
        cmocka_unit_test(a_cancel_ends_the_gang_and_is_reported),
        cmocka_unit_test(a_refused_attempt_is_ended),
        cmocka_unit_test(a_wrong_token_starts_nothing),
        cmocka_unit_test(a_lease_that_runs_out_ends_the_gang),
        cmocka_unit_test(a_terminated_node_takes_its_gang_along),
        cmocka_unit_test(a_terminated_node_does_not_wait_for_a_lost_controller),
        cmocka_unit_test(ranks_die_with_a_killed_node),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
