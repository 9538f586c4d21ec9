#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/fault/attach_bench.h"
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "runtime/node/proctree.h"

/* ---- the controller ---------------------------------------------------------------------------
 */

void send_down(struct controller *t, WorkerDown *down)
{
    down->has_attempt = 1;
    down->attempt = 2;
    pthread_mutex_lock(&t->lock);
    if (t->call) {
        call_send(t->call, &down->base);
    }
    pthread_mutex_unlock(&t->lock);
}

void send_lease(struct controller *t)
{
    Lease lease = LEASE__INIT;
    lease.has_ttl_ms = 1;
    lease.ttl_ms = t->lease_ms;
    WorkerDown down = WORKER_DOWN__INIT;
    down.body_case = WORKER_DOWN__BODY_LEASE;
    down.lease = &lease;
    send_down(t, &down);
}

void send_start(struct controller *t)
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

void send_ack(struct controller *t, int64_t seq)
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

static void on_id(struct controller *t, struct call *c, CommId *id)
{
    pthread_mutex_lock(&t->lock);
    bool is_lost = t->num_ids++ < t->num_ids_lost;
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
    if (is_lost) {
        call_fail(c, ERR_UNAVAILABLE, "broken on purpose");
        return;
    }
    WorkerDown down = WORKER_DOWN__INIT;
    down.body_case = WORKER_DOWN__BODY_COMM_ID;
    down.comm_id = id;
    send_down(t, &down);
    send_down(t, &down);
}

static void on_message(void *ctx, struct call *c, const ProtobufCMessage *message)
{
    struct controller *t = ctx;
    const WorkerUp *up = (const WorkerUp *)message;
    if (up->body_case == WORKER_UP__BODY_HELLO) {
        on_hello(t, c, up->hello);
    } else if (up->body_case == WORKER_UP__BODY_COMM_ID) {
        on_id(t, c, up->comm_id);
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

void controller_serve(struct controller *t)
{
    const char *const listen[] = {t->target, NULL};
    struct server_options options = {
        .listen = listen, .tables = tables, .ctx = t, .authenticate = authenticate};
    struct error err = {0};
    if (server_new(&t->server, &options, &err) != 0 || server_start(t->server, &err) != 0) {
        fail_msg("%s", err.text);
    }
}

void controller_leave(struct controller *t)
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

void node_start(struct controller *t, const char *token)
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

void begin(struct controller *t, int32_t num_ranks, const char *word0, const char *word1)
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

int node_wait(struct controller *t)
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

void finish(struct controller *t)
{
    controller_leave(t);
    for (int i = 0; i < t->num_ups; i++) {
        worker_up__free_unpacked(t->ups[i], NULL);
    }
    pthread_cond_destroy(&t->changed);
    pthread_mutex_destroy(&t->lock);
    assert_int_equal(fs_remove_tree(t->dir, NULL), 0);
}

void wait_for_ups(struct controller *t, int num_ups, int num_hellos)
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

void wait_for_log(struct controller *t, const char *name, const char *part)
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

const AttemptEnd *the_end(const struct controller *t)
{
    assert_true(t->num_ups > 0);
    const WorkerUp *up = t->ups[t->num_ups - 1];
    assert_int_equal(up->body_case, WORKER_UP__BODY_ATTEMPT_END);
    return up->attempt_end;
}
