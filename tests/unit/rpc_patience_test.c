/* How long a client waits for a server that is there, but slow, and what it says of one that it
 * didn't reach. */
#include <errno.h>
#include <grpc/support/time.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "proto/rpc_why.h"
#include "tests/deadline.h"
#include "tests/unit/rpc_fixture.h"

enum { LEAP_S = 28 };

/* Core asks here what time it is; the library has no header for it. */
extern gpr_timespec (*gpr_now_impl)(gpr_clock_type type);
static _Atomic int leap_s;

static gpr_timespec leaping_now(gpr_clock_type type)
{
    struct timespec ts;
    clock_gettime(type == GPR_CLOCK_REALTIME ? CLOCK_REALTIME : CLOCK_MONOTONIC, &ts);
    int64_t more = type == GPR_CLOCK_REALTIME ? 0 : atomic_load(&leap_s);
    return (gpr_timespec){
        .tv_sec = ts.tv_sec + more, .tv_nsec = (int32_t)ts.tv_nsec, .clock_type = type};
}

static atomic_int num_again;

bool __real_rpc_why(const struct rpc_why_of *of, enum error_code code, const char *text,
                    struct error *err);
bool __wrap_rpc_why(const struct rpc_why_of *of, enum error_code code, const char *text,
                    struct error *err);
bool __wrap_rpc_why(const struct rpc_why_of *of, enum error_code code, const char *text,
                    struct error *err)
{
    bool again = __real_rpc_why(of, code, text, err);
    num_again += again;
    return again;
}

/* ---- a door that is opened when the test says so ------------------------------------------- */

struct door {
    char target[160];
    int fd; /* owned */
    struct sockaddr_un sa, server;
    int taken[4]; /* connections that wait behind it */
    int num_taken;
    pthread_t thread;
    bool opened;
    atomic_bool stop;
};

static struct sockaddr_un at_path(const char *path)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    assert_true(strlen(path) < sizeof sa.sun_path);
    memcpy(sa.sun_path, path, strlen(path));
    return sa;
}

static void make_door(struct door *d, const struct fixture *f, int backlog)
{
    *d = (struct door){.server = at_path(f->unix_target + 5)};
    snprintf(d->target, sizeof d->target, "unix:%s/door", f->dir);
    d->sa = at_path(d->target + 5);
    d->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_true(d->fd >= 0);
    assert_int_equal(bind(d->fd, (struct sockaddr *)&d->sa, sizeof d->sa), 0);
    assert_int_equal(listen(d->fd, backlog), 0);
}

static int dial(const struct sockaddr_un *sa)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    ASSERT(fd >= 0);
    if (connect(fd, (const struct sockaddr *)sa, sizeof *sa) != 0) {
        ASSERT(errno == EAGAIN);
        close(fd);
        return -1;
    }
    return fd;
}

/* What one of them has said goes to the other; false: one has gone. */
static bool pass_on(int from, int to)
{
    char bytes[4096];
    ssize_t n = recv(from, bytes, sizeof bytes, MSG_DONTWAIT);
    for (ssize_t sent = 0; n > 0 && sent < n;) {
        ssize_t k = send(to, bytes + sent, (size_t)(n - sent), MSG_NOSIGNAL);
        sent += k > 0 ? k : 0;
        if (k < 0 && errno != EAGAIN) {
            return false;
        }
    }
    return n > 0 || (n < 0 && errno == EAGAIN);
}

/* Takes a connection, once its client has said something. */
static void take(struct door *d)
{
    struct pollfd p = {.fd = d->fd, .events = POLLIN};
    assert_int_equal(poll(&p, 1, WAIT_MS), 1);
    p.fd = accept4(d->fd, NULL, NULL, SOCK_CLOEXEC);
    assert_true(p.fd >= 0);
    assert_int_equal(poll(&p, 1, WAIT_MS), 1);
    d->taken[d->num_taken++] = p.fd;
}

/* Who has come and who comes is led to the server. */
static void *lead_in(void *arg)
{
    enum { MAX_FDS = 64 };
    struct door *d = arg;
    struct pollfd p[1 + MAX_FDS] = {{.fd = d->fd, .events = POLLIN}};
    nfds_t n = 1;
    while (!atomic_load(&d->stop)) {
        int fd =
            d->num_taken > 0 ? d->taken[--d->num_taken] : accept4(d->fd, NULL, NULL, SOCK_CLOEXEC);
        if (fd >= 0) {
            ASSERT(n + 1 < MAX_FDS);
            p[n++] = (struct pollfd){.fd = fd, .events = POLLIN};
            p[n++] = (struct pollfd){.fd = dial(&d->server), .events = POLLIN};
            ASSERT(p[n - 1].fd >= 0);
            continue;
        }
        for (nfds_t i = 1; i < n; i += 2) {
            if (p[i].fd >= 0 &&
                (!pass_on(p[i].fd, p[i + 1].fd) || !pass_on(p[i + 1].fd, p[i].fd))) {
                close(p[i].fd);
                close(p[i + 1].fd);
                p[i].fd = p[i + 1].fd = -1;
            }
        }
        poll(p, n, 10);
    }
    for (nfds_t i = 1; i < n; i++) {
        if (p[i].fd >= 0) {
            close(p[i].fd);
        }
    }
    return NULL;
}

static void open_door(struct door *d)
{
    assert_int_equal(pthread_create(&d->thread, NULL, lead_in, d), 0);
    d->opened = true;
}

static void remove_door(struct door *d)
{
    atomic_store(&d->stop, true);
    if (d->opened) {
        pthread_join(d->thread, NULL);
    }
    while (d->num_taken > 0) {
        close(d->taken[--d->num_taken]);
    }
    close(d->fd);
}

/* ---- who calls ----------------------------------------------------------------------------- */

struct visitor {
    pthread_t thread;
    struct rpc_channel *channel;
    int64_t deadline_ms;
    enum error_code code;
    char text[ERROR_TEXT_MAX];
};

static void *visit(void *arg)
{
    struct visitor *v = arg;
    v->code = rpc_get_job(v->channel, "a", v->deadline_ms, v->text);
    return NULL;
}

static void send_visitor(struct visitor *v, const char *target, int64_t deadline_ms)
{
    v->deadline_ms = deadline_ms;
    v->channel = rpc_dial(target, "user-token");
    assert_int_equal(pthread_create(&v->thread, NULL, visit, v), 0);
}

static void await_visitor(struct visitor *v)
{
    pthread_join(v->thread, NULL);
    rpc_channel_close(v->channel);
}

/* ---- tests --------------------------------------------------------------------------------- */

/* The kernel lets only so many wait at a socket file, and tells others to come again. A call does:
 * a server that stands still for a moment isn't away. */
static void call_waits_where_too_many_wait_already(void **state)
{
    struct fixture *f = *state;
    struct door d;
    int waiting[64], num = 0;
    make_door(&d, f, 1);
    while ((waiting[num] = dial(&d.sa)) >= 0) {
        num++;
        assert_true(num < 64);
    }
    struct visitor v;
    send_visitor(&v, d.target, WAIT_MS);
    WAIT_UNTIL(num_again > 0, "a look at the queue");
    for (int i = 0; i < num; i++) {
        close(waiting[i]);
    }
    open_door(&d);
    await_visitor(&v);
    remove_door(&d);
    if (v.code != ERR_OK) {
        fail_msg("%s", v.text);
    }
}

/* A call that has reached the server may have been heard; one that hasn't was not: the one says so,
 * the other that nobody answers there. */
static void late_answer_is_told_from_no_server(void **state)
{
    struct fixture *f = *state;
    char text[ERROR_TEXT_MAX];
    struct rpc_channel *c = rpc_dial(f->target, "user-token");
    assert_int_equal(rpc_get_job(c, "a", WAIT_MS, text), ERR_OK);
    assert_int_equal(rpc_get_job(c, "never", 500, text), ERR_DEADLINE_EXCEEDED);
    assert_true(strstr(text, "within 0.5 s; it may still do what it was asked") ||
                strstr(text, "had passed on arrival")); /* as the server said, just then */
    rpc_channel_close(c);

    struct door d;
    make_door(&d, f, 16);
    c = rpc_dial(d.target, "user-token");
    assert_int_equal(rpc_get_job(c, "a", 50, text), ERR_UNAVAILABLE);
    assert_non_null(strstr(text, "no connection within 0.05 s"));
    rpc_channel_close(c);
    remove_door(&d);
}

static atomic_bool enough;

static bool has_had_enough(void)
{
    return atomic_load(&enough);
}

/* Who waits for a server that says nothing may give up: Ctrl-C of a command that catches it. */
static void who_gives_up_waits_no_longer(void **state)
{
    struct fixture *f = *state;
    struct error err;
    struct door d;
    make_door(&d, f, 16);
    struct visitor v = {.deadline_ms = WAIT_MS};
    const struct rpc_channel_options o = {
        .target = d.target, .token = "user-token", .has_given_up = has_had_enough};
    assert_int_equal(rpc_channel_open(&v.channel, &o, &err), 0);
    assert_int_equal(pthread_create(&v.thread, NULL, visit, &v), 0);
    take(&d);
    atomic_store(&enough, true);
    await_visitor(&v);
    remove_door(&d);
    assert_int_equal(v.code, ERR_CANCELLED);
}

/* Core's words for what befell a connection are for those who know core. */
static void reasons_are_said_in_words(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"keepalive watchdog timeout", "no sign of life"},
        {"failed to connect to all addresses; last error: UNKNOWN: unix:/x: connection attempt "
         "timed "
         "out before receiving SETTINGS frame",
         "no server answers at unix:/x: it took the connection, but said nothing"},
        {"failed to connect to all addresses; last error: UNKNOWN: unix:/x: No such file or "
         "directory",
         "no server answers at unix:/x: no such socket"}};
    struct rpc_target at;
    struct error err;
    assert_int_equal(rpc_target_parse(&at, "unix:/x", NULL, &err), 0);
    const struct rpc_why_of of = {.target = "unix:/x", .at = &at};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rpc_why(&of, ERR_UNAVAILABLE, cases[i][0], &err);
        assert_int_equal(err.code, ERR_UNAVAILABLE);
        if (!strstr(err.text, cases[i][1])) {
            fail_msg("%s", err.text);
        }
    }
}

/* A server on this host that takes a connection and is slow to greet, as it stands still or has
 * too much to do, is waited for until the call's own deadline. Core's time leaps: its timers see it
 * when the next one that it sleeps for is over. */
static void slow_greeting_is_waited_for(void **state)
{
    struct fixture *f = *state;
    struct door d;
    make_door(&d, f, 16);
    struct visitor patient, hasty, next;
    gpr_now_impl = leaping_now;
    send_visitor(&patient, d.target, WAIT_MS);
    send_visitor(&hasty, d.target, (LEAP_S - 3) * 1000);
    send_visitor(&next, d.target, 1000);
    for (int i = 0; i < 3; i++) {
        take(&d);
    }
    atomic_store(&leap_s, LEAP_S);
    await_visitor(&next);
    await_visitor(&hasty);
    assert_int_equal(hasty.code, ERR_UNAVAILABLE);
    if (!strstr(hasty.text, "no connection within 25 s")) {
        fail_msg("%s", hasty.text);
    }
    open_door(&d);
    await_visitor(&patient);
    remove_door(&d);
    if (patient.code != ERR_OK) {
        fail_msg("%s", patient.text);
    }
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, rpc_setup, rpc_teardown)
    const struct CMUnitTest tests[] = {
        T(call_waits_where_too_many_wait_already),
        T(late_answer_is_told_from_no_server),
        T(who_gives_up_waits_no_longer),
        T(reasons_are_said_in_words),
        T(slow_greeting_is_waited_for), /* the last: core's time stays as it is then */
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
