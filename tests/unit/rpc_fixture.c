#include "tests/unit/rpc_fixture.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/fs.h"

/* What the server calls, it calls on a thread of its own: there stands ASSERT, not cmocka. */

static int still_allowed(void *ctx, const struct caller *caller, const struct method *method,
                         struct error *err)
{
    struct fixture *f = ctx;
    ASSERT(method->access == METHOD_VIEWER || method->access == METHOD_WORKER);
    return f->token_revoked && strcmp(caller->user, "token") == 0
               ? error_set(err, ERR_UNAUTHENTICATED, "the token was revoked")
               : 0;
}

int rpc_authenticate(void *ctx, const char *bearer, bool unix_socket, const char *peer,
                     const struct method *method, struct caller *caller, struct error *err)
{
    struct fixture *f = ctx;
    f->num_authenticated++;
    ASSERT(strcmp(peer, unix_socket ? "unix" : "loopback") == 0);
    if (method->access == METHOD_WORKER && bearer && strcmp(bearer, "worker-token") == 0) {
        *caller = (struct caller){.user = "", .role = "worker", .job_id = 7, .attempt = 2};
        return 0;
    }
    if (method->access == METHOD_VIEWER && unix_socket && !bearer) {
        *caller = (struct caller){.user = "socket", .tenant = "default", .role = "admin"};
        return 0;
    }
    if (method->access == METHOD_VIEWER && bearer && strcmp(bearer, "user-token") == 0) {
        *caller = (struct caller){.user = "token", .tenant = "default", .role = "admin"};
        if (f->revoke_while_asked) {
            f->token_revoked = true;
            server_recheck(f->server);
        }
        return 0;
    }
    return error_set(err, ERR_UNAUTHENTICATED, "unknown token");
}

static void on_get(void *ctx, struct call *c, const ProtobufCMessage *message)
{
    struct fixture *f = ctx;
    const GetJobRequest *q = (const GetJobRequest *)message;
    f->num_messages++;
    Job job = JOB__INIT;
    job.has_id = 1;
    job.id = 42;
    job.name = q->job;
    job.user = (char *)(uintptr_t)call_caller(c)->user;
    if (q->job && strcmp(q->job, "missing") == 0) {
        call_fail(c, ERR_NOT_FOUND, "no job \"%s\"", q->job);
    } else if (q->job && strcmp(q->job, "verbose") == 0) {
        char text[ERROR_TEXT_MAX];
        memset(text, '%', sizeof text);
        memcpy(text + sizeof text - 3, "\xC3\xA9", 3);
        call_fail(c, ERR_FAILED_PRECONDITION, "%s", text);
    } else if (q->job && strcmp(q->job, "garbled") == 0) {
        call_fail(c, ERR_FAILED_PRECONDITION, "caf\xC3\xA9 \xFF 100%% \n end");
    } else if (q->job && strcmp(q->job, "big") == 0) {
        char *text = calloc(1, CALL_MESSAGE_MAX_BYTES + 1);
        memset(text, 'x', CALL_MESSAGE_MAX_BYTES);
        job.message = text;
        call_reply(c, &job.base);
        free(text);
    } else if (q->job && strcmp(q->job, "never") == 0) {
        pthread_mutex_lock(&f->lock);
        call_unref(f->unanswered);
        f->unanswered = call_ref(c);
        pthread_mutex_unlock(&f->lock);
    } else {
        call_reply(c, &job.base);
    }
}

static void on_watch(void *ctx, struct call *c, const ProtobufCMessage *message)
{
    struct fixture *f = ctx;
    (void)message;
    WatchReply hello = WATCH_REPLY__INIT;
    pthread_mutex_lock(&f->lock);
    f->watchers[f->num_watchers++] = call_ref(c);
    call_send(c, &hello.base);
    pthread_mutex_unlock(&f->lock);
}

static void on_attach(void *ctx, struct call *c, const ProtobufCMessage *message)
{
    struct fixture *f = ctx;
    const WorkerUp *up = (const WorkerUp *)message;
    f->num_messages++;
    Ack ack = ACK__INIT;
    ack.has_seq = 1;
    ack.seq = up->seq;
    WorkerDown down = WORKER_DOWN__INIT;
    down.has_attempt = 1;
    down.attempt = call_caller(c)->attempt;
    down.body_case = WORKER_DOWN__BODY_ACK;
    down.ack = &ack;
    if (up->seq == HOLD_AT) {
        call_hold(c, true);
        pthread_mutex_lock(&f->lock);
        f->watchers[f->num_watchers++] = call_ref(c);
        pthread_mutex_unlock(&f->lock);
    }
    call_send(c, &down.base);
}

static void on_half_close(void *ctx, struct call *c)
{
    struct fixture *f = ctx;
    f->num_half_closed++;
    call_finish(c);
}

static void on_closed(void *ctx, struct call *c)
{
    struct fixture *f = ctx;
    (void)c;
    f->num_closed++;
}

const struct method rpc_test_methods[] = {
    {"/tandem.v1.Jobs/Get", METHOD_UNARY, METHOD_VIEWER, &tandem__v1__get_job_request__descriptor,
     on_get, NULL, on_closed},
    {"/tandem.v1.Jobs/Watch", METHOD_SERVER_STREAM, METHOD_VIEWER,
     &tandem__v1__watch_request__descriptor, on_watch, NULL, on_closed},
    {"/tandem.v1.Worker/Attach", METHOD_BIDI, METHOD_WORKER, &tandem__v1__worker_up__descriptor,
     on_attach, on_half_close, on_closed},
    {0},
};

void rpc_start_server(struct fixture *f, const char *listen)
{
    char shared[160];
    snprintf(shared, sizeof shared, "%s-shared", f->unix_target);
    const char *addresses[] = {listen, f->unix_target, shared, NULL};
    const struct method *tables[] = {rpc_test_methods, NULL};
    struct server_options o = {.listen = addresses,
                               .num_trusted = 2,
                               .tables = tables,
                               .ctx = f,
                               .authenticate = rpc_authenticate,
                               .still_allowed = still_allowed};
    struct error err;
    if (server_new(&f->server, &o, &err) || server_start(f->server, &err)) {
        fail_msg("%s", err.text);
    }
    snprintf(f->target, sizeof f->target, "127.0.0.1:%d", server_port(f->server, 0));
}

int rpc_start_kept_server(struct fixture *f, char address[64])
{
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof sa;
    int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&sa, sizeof sa), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&sa, &len), 0);
    snprintf(address, 64, "127.0.0.1:%d", ntohs(sa.sin_port));
    server_free(f->server);
    rpc_start_server(f, address);
    return fd;
}

int rpc_setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    pthread_mutex_init(&f->lock, NULL);
    snprintf(f->dir, sizeof f->dir, "/tmp/rpc_test.XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    snprintf(f->unix_target, sizeof f->unix_target, "unix:%s/sock", f->dir);
    rpc_start_server(f, "127.0.0.1:0");
    *state = f;
    return 0;
}

void rpc_drop_watchers(struct fixture *f)
{
    pthread_mutex_lock(&f->lock);
    for (int i = 0; i < f->num_watchers; i++) {
        call_unref(f->watchers[i]);
    }
    f->num_watchers = 0;
    call_unref(f->unanswered);
    f->unanswered = NULL;
    pthread_mutex_unlock(&f->lock);
}

int rpc_teardown(void **state)
{
    struct fixture *f = *state;
    server_free(f->server);
    rpc_drop_watchers(f);
    fs_remove_tree(f->dir, NULL);
    pthread_mutex_destroy(&f->lock);
    free(f);
    return 0;
}

struct rpc_channel *rpc_dial(const char *target, const char *token)
{
    struct rpc_channel *c;
    struct error err;
    struct rpc_channel_options o = {.target = target, .token = token};
    if (rpc_channel_open(&c, &o, &err)) {
        fail_msg("%s", err.text);
    }
    return c;
}

enum error_code rpc_get_job(struct rpc_channel *c, const char *job, int64_t deadline_ms,
                            char text[ERROR_TEXT_MAX])
{
    GetJobRequest q = GET_JOB_REQUEST__INIT;
    q.job = (char *)(uintptr_t)job;
    ProtobufCMessage *reply;
    struct error err;
    if (rpc_call(c, "/tandem.v1.Jobs/Get", &q.base, &tandem__v1__job__descriptor, &reply,
                 deadline_ms, &err)) {
        snprintf(text, ERROR_TEXT_MAX, "%s", err.text);
        return err.code;
    }
    Job *j = (Job *)reply;
    snprintf(text, ERROR_TEXT_MAX, "%s", j->user);
    assert_int_equal(j->id, 42);
    assert_string_equal(j->name, job);
    protobuf_c_message_free_unpacked(reply, NULL);
    return ERR_OK;
}

int rpc_num_watchers(struct fixture *f)
{
    pthread_mutex_lock(&f->lock);
    int n = f->num_watchers;
    pthread_mutex_unlock(&f->lock);
    return n;
}

struct rpc_stream *rpc_open_watch(struct rpc_channel *c)
{
    WatchRequest q = WATCH_REQUEST__INIT;
    struct rpc_stream *s;
    assert_int_equal(rpc_stream_open(c, "/tandem.v1.Jobs/Watch", &q.base, &s, NULL), 0);
    return s;
}

struct call *rpc_watcher(struct fixture *f, int i)
{
    pthread_mutex_lock(&f->lock);
    assert_true(i < f->num_watchers);
    struct call *c = f->watchers[i];
    pthread_mutex_unlock(&f->lock);
    return c;
}

int rpc_recv_watch(struct rpc_stream *s, int64_t timeout_ms, struct error *err)
{
    ProtobufCMessage *m;
    int r = rpc_stream_recv(s, &tandem__v1__watch_reply__descriptor, &m, timeout_ms, err);
    if (r == 1) {
        protobuf_c_message_free_unpacked(m, NULL);
    }
    return r;
}

enum error_code rpc_call_path(struct rpc_channel *c, const char *path, struct error *err)
{
    GetJobRequest q = GET_JOB_REQUEST__INIT;
    ProtobufCMessage *reply;
    if (rpc_call(c, path, &q.base, &tandem__v1__job__descriptor, &reply, WAIT_MS, err)) {
        return err->code;
    }
    protobuf_c_message_free_unpacked(reply, NULL);
    return ERR_OK;
}
