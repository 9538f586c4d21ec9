/* The server's and the client's side of gRPC against each other, over real sockets on loopback. */
#include <arpa/inet.h>
#include <errno.h>
#include <grpc/compression.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpc/support/time.h>
#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/fs.h"
#include "proto/names.h"
#include "proto/rpc_client.h"
#include "server/rpc/server.h"
#include "tandem/v1/health.pb-c.h"
#include "tandem/v1/reflection.pb-c.h"

/* ---- a small server ------------------------------------------------------------------------ */

enum { MAX_KEPT = 1024, WAIT_MS = 20000, HOLD_AT = 100000 };

struct fixture {
    struct server *server;
    char target[64];
    char dir[64];
    char unix_target[128];
    pthread_mutex_t lock;
    struct call *watchers[MAX_KEPT]; /* owned references; guarded by lock */
    int num_watchers;
    struct call *unanswered; /* owned reference; guarded by lock */
    atomic_int num_closed;
    atomic_int num_messages;
    atomic_int num_half_closed;
    atomic_int num_authenticated;
    atomic_bool token_revoked;
    atomic_bool revoke_while_asked; /* the token is revoked in the middle of the next look-up */
};

static int still_allowed(void *ctx, const struct caller *caller, const struct method *method,
                         struct error *err)
{
    struct fixture *f = ctx;
    assert_true(method->access == METHOD_VIEWER || method->access == METHOD_WORKER);
    return f->token_revoked && strcmp(caller->user, "token") == 0
               ? error_set(err, ERR_UNAUTHENTICATED, "the token was revoked")
               : 0;
}

static int authenticate(void *ctx, const char *bearer, bool unix_socket, const char *peer,
                        const struct method *method, struct caller *caller, struct error *err)
{
    struct fixture *f = ctx;
    f->num_authenticated++;
    assert_string_equal(peer, unix_socket ? "unix" : "loopback");
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
    pthread_mutex_lock(&f->lock);
    f->watchers[f->num_watchers++] = call_ref(c);
    pthread_mutex_unlock(&f->lock);
    WatchReply hello = WATCH_REPLY__INIT;
    call_send(c, &hello.base);
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
    call_send(c, &down.base);
    if (up->seq == HOLD_AT) {
        call_hold(c, true);
        pthread_mutex_lock(&f->lock);
        f->watchers[f->num_watchers++] = call_ref(c);
        pthread_mutex_unlock(&f->lock);
    }
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

static const struct method test_methods[] = {
    {"/tandem.v1.Jobs/Get", METHOD_UNARY, METHOD_VIEWER, &tandem__v1__get_job_request__descriptor,
     on_get, NULL, on_closed},
    {"/tandem.v1.Jobs/Watch", METHOD_SERVER_STREAM, METHOD_VIEWER,
     &tandem__v1__watch_request__descriptor, on_watch, NULL, on_closed},
    {"/tandem.v1.Worker/Attach", METHOD_BIDI, METHOD_WORKER, &tandem__v1__worker_up__descriptor,
     on_attach, on_half_close, on_closed},
    {0},
};

static void start_server(struct fixture *f, const char *listen)
{
    char shared[160];
    snprintf(shared, sizeof shared, "%s-shared", f->unix_target);
    const char *addresses[] = {listen, f->unix_target, shared, NULL};
    const struct method *tables[] = {test_methods, NULL};
    struct server_options o = {.listen = addresses,
                               .num_trusted = 2,
                               .tables = tables,
                               .ctx = f,
                               .authenticate = authenticate,
                               .still_allowed = still_allowed};
    struct error err;
    if (server_new(&f->server, &o, &err) || server_start(f->server, &err)) {
        fail_msg("%s", err.text);
    }
    snprintf(f->target, sizeof f->target, "127.0.0.1:%d", server_port(f->server, 0));
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    pthread_mutex_init(&f->lock, NULL);
    snprintf(f->dir, sizeof f->dir, "/tmp/rpc_test.XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    snprintf(f->unix_target, sizeof f->unix_target, "unix:%s/sock", f->dir);
    start_server(f, "127.0.0.1:0");
    *state = f;
    return 0;
}

static void drop_watchers(struct fixture *f)
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

static int teardown(void **state)
{
    struct fixture *f = *state;
    server_free(f->server);
    drop_watchers(f);
    fs_remove_tree(f->dir, NULL);
    pthread_mutex_destroy(&f->lock);
    free(f);
    return 0;
}

/* ---- helpers ------------------------------------------------------------------------------- */

static struct rpc_channel *dial(const char *target, const char *token)
{
    struct rpc_channel *c;
    struct error err;
    struct rpc_channel_options o = {.target = target, .token = token};
    if (rpc_channel_open(&c, &o, &err)) {
        fail_msg("%s", err.text);
    }
    return c;
}

/* The code; on ERR_OK *user_or_text holds the caller's name as the server saw it. */
static enum error_code get_job(struct rpc_channel *c, const char *job, int64_t deadline_ms,
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

#define await(cond)                                                                                \
    do {                                                                                           \
        int64_t until_ = clock_mono_ms() + WAIT_MS;                                                \
        while (!(cond)) {                                                                          \
            assert_true(clock_mono_ms() < until_);                                                 \
            clock_sleep_ms(1);                                                                     \
        }                                                                                          \
    } while (0)

static int num_watchers(struct fixture *f)
{
    pthread_mutex_lock(&f->lock);
    int n = f->num_watchers;
    pthread_mutex_unlock(&f->lock);
    return n;
}

static struct rpc_stream *open_watch(struct rpc_channel *c)
{
    WatchRequest q = WATCH_REQUEST__INIT;
    struct rpc_stream *s;
    assert_int_equal(rpc_stream_open(c, "/tandem.v1.Jobs/Watch", &q.base, &s, NULL), 0);
    return s;
}

static struct call *watcher(struct fixture *f, int i)
{
    pthread_mutex_lock(&f->lock);
    assert_true(i < f->num_watchers);
    struct call *c = f->watchers[i];
    pthread_mutex_unlock(&f->lock);
    return c;
}

static int recv_watch(struct rpc_stream *s, int64_t timeout_ms, struct error *err)
{
    ProtobufCMessage *m;
    int r = rpc_stream_recv(s, &tandem__v1__watch_reply__descriptor, &m, timeout_ms, err);
    if (r == 1) {
        protobuf_c_message_free_unpacked(m, NULL);
    }
    return r;
}

/* ---- unary --------------------------------------------------------------------------------- */

/* A call carries its request there and its reply back, over TCP and over the socket file; the
 * handler knows who calls. */
static void unary_call_is_answered(void **state)
{
    struct fixture *f = *state;
    char text[ERROR_TEXT_MAX];
    struct rpc_channel *c = dial(f->target, "user-token");
    assert_int_equal(get_job(c, "a", WAIT_MS, text), ERR_OK);
    assert_string_equal(text, "token");
    rpc_channel_close(c);
    c = dial(f->unix_target, NULL);
    assert_int_equal(get_job(c, "b", WAIT_MS, text), ERR_OK);
    assert_string_equal(text, "socket");
    rpc_channel_close(c);
}

/* A handler's failure reaches the client as code and sentence. */
static void failure_keeps_code_and_text(void **state)
{
    struct fixture *f = *state;
    char text[ERROR_TEXT_MAX];
    struct rpc_channel *c = dial(f->target, "user-token");
    assert_int_equal(get_job(c, "missing", WAIT_MS, text), ERR_NOT_FOUND);
    assert_string_equal(text, "no job \"missing\"");
    rpc_channel_close(c);
}

/* A status that is long, or no valid UTF-8, still arrives under its own code: core would turn an
 * over-large one into RESOURCE_EXHAUSTED. */
static void status_text_is_cut_and_cleaned(void **state)
{
    struct fixture *f = *state;
    char text[ERROR_TEXT_MAX];
    struct rpc_channel *c = dial(f->target, "user-token");
    assert_int_equal(get_job(c, "verbose", WAIT_MS, text), ERR_FAILED_PRECONDITION);
    assert_true(strlen(text) > 900);
    assert_int_equal(get_job(c, "garbled", WAIT_MS, text), ERR_FAILED_PRECONDITION);
    assert_string_equal(text, "caf\xC3\xA9 ? 100% \n end");
    rpc_channel_close(c);
}

/* A reply over the limit that every client takes fails in words. */
static void over_large_reply_fails_in_words(void **state)
{
    struct fixture *f = *state;
    char text[ERROR_TEXT_MAX];
    struct rpc_channel *c = dial(f->target, "user-token");
    assert_int_equal(get_job(c, "big", WAIT_MS, text), ERR_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(text, "ask for less"));
    rpc_channel_close(c);
}

/* A request over the limit is refused before any handler sees it. */
static void over_large_request_is_refused(void **state)
{
    struct fixture *f = *state;
    char out[ERROR_TEXT_MAX];
    struct rpc_channel *c = dial(f->target, "user-token");
    char *text = malloc(CALL_MESSAGE_MAX_BYTES + 1);
    memset(text, 'x', CALL_MESSAGE_MAX_BYTES);
    text[CALL_MESSAGE_MAX_BYTES] = 0;
    assert_int_equal(get_job(c, text, WAIT_MS, out), ERR_RESOURCE_EXHAUSTED);
    assert_int_equal(f->num_messages, 0);
    free(text);
    rpc_channel_close(c);
}

/* A deadline ends the call at the client, and the server's handler is told. */
static void deadline_ends_the_call_on_both_sides(void **state)
{
    struct fixture *f = *state;
    char text[ERROR_TEXT_MAX];
    struct rpc_channel *c = dial(f->target, "user-token");
    assert_int_equal(get_job(c, "never", 200, text), ERR_DEADLINE_EXCEEDED);
    await(f->num_closed == 1);
    pthread_mutex_lock(&f->lock);
    assert_true(call_is_over(f->unanswered));
    Job job = JOB__INIT;
    call_reply(f->unanswered, &job.base); /* too late: nothing happens */
    call_fail(f->unanswered, ERR_INTERNAL, "late");
    pthread_mutex_unlock(&f->lock);
    rpc_channel_close(c);
}

/* Nobody without the right token gets as far as a handler; a user's token opens no worker's
 * method, a worker's no user's. */
static void wrong_token_is_refused(void **state)
{
    struct fixture *f = *state;
    char text[ERROR_TEXT_MAX];
    const char *const bad[] = {NULL, "", "user-tokem", "user-token2", "worker-token"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct rpc_channel *c = dial(f->target, bad[i]);
        assert_int_equal(get_job(c, "a", WAIT_MS, text), ERR_UNAUTHENTICATED);
        assert_string_equal(text, "unknown token");
        rpc_channel_close(c);
    }
    struct rpc_channel *c = dial(f->target, "user-token");
    struct rpc_stream *s;
    struct error err;
    ProtobufCMessage *m;
    rpc_stream_open(c, "/tandem.v1.Worker/Attach", NULL, &s, NULL);
    assert_int_equal(rpc_stream_recv(s, &tandem__v1__worker_down__descriptor, &m, WAIT_MS, &err),
                     -1);
    assert_int_equal(err.code, ERR_UNAUTHENTICATED);
    rpc_stream_close(s);
    rpc_channel_close(c);
    assert_int_equal(f->num_messages, 0);
    assert_int_equal(f->num_closed, 0);
}

/* A socket file that isn't among the trusted ones lets nobody in without a token. */
static void other_socket_file_needs_a_token(void **state)
{
    struct fixture *f = *state;
    char text[ERROR_TEXT_MAX], shared[160];
    snprintf(shared, sizeof shared, "%s-shared", f->unix_target);
    struct rpc_channel *c = dial(shared, NULL);
    assert_int_equal(get_job(c, "a", WAIT_MS, text), ERR_UNAUTHENTICATED);
    rpc_channel_close(c);
    c = dial(shared, "user-token");
    assert_int_equal(get_job(c, "a", WAIT_MS, text), ERR_OK);
    assert_string_equal(text, "token");
    rpc_channel_close(c);
}

/* Who loses a right loses its open streams, with the reason; others keep theirs. */
static void lost_right_ends_open_streams(void **state)
{
    struct fixture *f = *state;
    struct error err;
    struct rpc_channel *c = dial(f->target, "user-token"), *other = dial(f->unix_target, NULL);
    struct rpc_stream *s = open_watch(c), *kept = open_watch(other);
    assert_int_equal(recv_watch(s, WAIT_MS, &err), 1);
    assert_int_equal(recv_watch(kept, WAIT_MS, &err), 1);
    assert_int_equal(server_recheck(f->server), 0);
    f->token_revoked = true;
    assert_int_equal(server_recheck(f->server), 1);
    assert_int_equal(recv_watch(s, WAIT_MS, &err), -1);
    assert_int_equal(err.code, ERR_UNAUTHENTICATED);
    assert_string_equal(err.text, "the token was revoked");
    await(f->num_closed == 1);
    assert_int_equal(server_recheck(f->server), 0);
    WatchReply hello = WATCH_REPLY__INIT;
    await(num_watchers(f) == 2);
    for (int i = 0; i < 2; i++) {
        call_send(watcher(f, i), &hello.base);
    }
    assert_int_equal(recv_watch(kept, WAIT_MS, &err), 1);
    rpc_stream_close(s);
    rpc_stream_close(kept);
    rpc_channel_close(c);
    rpc_channel_close(other);
}

/* A right that is lost between the look at the table and the opening of the stream is lost. */
static void right_lost_while_a_stream_opens_is_noticed(void **state)
{
    struct fixture *f = *state;
    struct error err;
    struct rpc_channel *c = dial(f->target, "user-token");
    f->revoke_while_asked = true;
    struct rpc_stream *s = open_watch(c);
    assert_int_equal(recv_watch(s, WAIT_MS, &err), -1);
    assert_int_equal(err.code, ERR_UNAUTHENTICATED);
    assert_int_equal(num_watchers(f), 0);
    rpc_stream_close(s);
    rpc_channel_close(c);
}

/* A reader that takes nothing can't keep its stream by that. */
static void lost_right_ends_a_stream_that_is_stuck(void **state)
{
    struct fixture *f = *state;
    struct rpc_channel *c = dial(f->target, "user-token");
    struct rpc_stream *s = open_watch(c);
    await(num_watchers(f) == 1);
    char *text = calloc(1, 1 << 20);
    memset(text, 'x', (1 << 20) - 1);
    Job job = JOB__INIT;
    job.message = text;
    WatchReply reply = WATCH_REPLY__INIT;
    reply.job = &job;
    while (call_send(watcher(f, 0), &reply.base)) {
    }
    f->token_revoked = true;
    await((server_recheck(f->server), f->num_closed == 1));
    free(text);
    rpc_stream_close(s);
    rpc_channel_close(c);
}

/* A method that nobody has said a word about who may call it isn't served. */
static void method_without_a_right_is_refused(void **state)
{
    (void)state;
    const struct method forgotten[] = {{"/tandem.v1.Jobs/Get", METHOD_UNARY, METHOD_NOBODY,
                                        &tandem__v1__get_job_request__descriptor, on_get, NULL,
                                        NULL},
                                       {0}};
    const char *addresses[] = {"127.0.0.1:0", NULL};
    const struct method *tables[] = {forgotten, NULL};
    struct server_options o = {.listen = addresses, .tables = tables, .authenticate = authenticate};
    struct server *s;
    struct error err;
    assert_int_equal(server_new(&s, &o, &err), -1);
    assert_non_null(strstr(err.text, "Jobs/Get"));
}

static enum error_code call_path(struct rpc_channel *c, const char *path, struct error *err)
{
    GetJobRequest q = GET_JOB_REQUEST__INIT;
    ProtobufCMessage *reply;
    if (rpc_call(c, path, &q.base, &tandem__v1__job__descriptor, &reply, WAIT_MS, err)) {
        return err->code;
    }
    protobuf_c_message_free_unpacked(reply, NULL);
    return ERR_OK;
}

/* What is in the contract but not built says so by name; the rest is unknown. */
static void missing_methods_are_named(void **state)
{
    struct fixture *f = *state;
    struct error err;
    struct rpc_channel *c = dial(f->target, "user-token");
    assert_int_equal(call_path(c, "/tandem.v1.Jobs/Hold", &err), ERR_UNIMPLEMENTED);
    assert_string_equal(err.text, "Jobs.Hold is not built yet");
    assert_int_equal(call_path(c, "/tandem.v1.Jobs/Fly", &err), ERR_UNIMPLEMENTED);
    assert_string_equal(err.text, "unknown method /tandem.v1.Jobs/Fly");
    assert_int_equal(call_path(c, "/", &err), ERR_UNIMPLEMENTED);
    char longer[400];
    memset(longer, 'a', sizeof longer);
    memcpy(longer, "/x/", 3);
    longer[sizeof longer - 1] = 0;
    assert_int_equal(call_path(c, longer, &err), ERR_UNIMPLEMENTED);
    rpc_channel_close(c);
}

/* Bytes that are no message of the method, a string that is no UTF-8 and an unknown enum number
 * are refused before the handler. */
static void malformed_messages_are_refused(void **state)
{
    struct fixture *f = *state;
    struct error err;
    ProtobufCMessage *reply;
    struct rpc_channel *c = dial(f->target, "user-token");
    /* Job's field 1 is a number, GetJobRequest's a string. */
    Job j = JOB__INIT;
    j.has_id = 1;
    j.id = 1;
    assert_int_equal(rpc_call(c, "/tandem.v1.Jobs/Get", &j.base, &tandem__v1__job__descriptor,
                              &reply, WAIT_MS, &err),
                     -1);
    assert_int_equal(err.code, ERR_INVALID_ARGUMENT);
    GetJobRequest q = GET_JOB_REQUEST__INIT;
    q.job = (char[]){"\xFF\xFE"};
    assert_int_equal(rpc_call(c, "/tandem.v1.Jobs/Get", &q.base, &tandem__v1__job__descriptor,
                              &reply, WAIT_MS, &err),
                     -1);
    assert_int_equal(err.code, ERR_INVALID_ARGUMENT);
    assert_int_equal(f->num_messages, 0);
    rpc_channel_close(c);
}

/* A gzip'ed message, small on the wire and large unpacked, gets nowhere near a handler. */
static void compressed_messages_are_refused(void **state)
{
    struct fixture *f = *state;
    GetJobRequest q = GET_JOB_REQUEST__INIT;
    char *zeros = malloc(CALL_MESSAGE_MAX_BYTES);
    memset(zeros, 'x', CALL_MESSAGE_MAX_BYTES);
    zeros[CALL_MESSAGE_MAX_BYTES - 64] = 0;
    q.job = zeros;
    grpc_init();
    grpc_arg gzip = {.type = GRPC_ARG_INTEGER,
                     .key = (char[]){GRPC_COMPRESSION_CHANNEL_DEFAULT_ALGORITHM}};
    gzip.value.integer = GRPC_COMPRESS_GZIP;
    grpc_channel_args args = {1, &gzip};
    grpc_channel_credentials *creds = grpc_insecure_credentials_create();
    grpc_channel *channel = grpc_channel_create(f->target, creds, &args);
    grpc_channel_credentials_release(creds);
    grpc_completion_queue *cq = grpc_completion_queue_create_for_next(NULL);
    grpc_call *call = grpc_channel_create_call(
        channel, NULL, GRPC_PROPAGATE_DEFAULTS, cq,
        grpc_slice_from_static_string("/tandem.v1.Jobs/Get"), NULL,
        gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(WAIT_MS, GPR_TIMESPAN)),
        NULL);
    grpc_slice slice = grpc_slice_malloc(get_job_request__get_packed_size(&q));
    get_job_request__pack(&q, GRPC_SLICE_START_PTR(slice));
    grpc_byte_buffer *out = grpc_raw_byte_buffer_create(&slice, 1), *in = NULL;
    grpc_metadata token = {grpc_slice_from_static_string("authorization"),
                           grpc_slice_from_static_string("Bearer user-token"),
                           {{NULL, NULL, NULL, NULL}}};
    grpc_metadata_array headers, trailers;
    grpc_metadata_array_init(&headers);
    grpc_metadata_array_init(&trailers);
    grpc_status_code status = GRPC_STATUS_OK;
    grpc_slice details = grpc_empty_slice();
    grpc_op ops[6] = {
        {.op = GRPC_OP_SEND_INITIAL_METADATA},  {.op = GRPC_OP_SEND_MESSAGE},
        {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT}, {.op = GRPC_OP_RECV_INITIAL_METADATA},
        {.op = GRPC_OP_RECV_MESSAGE},           {.op = GRPC_OP_RECV_STATUS_ON_CLIENT}};
    ops[0].data.send_initial_metadata.count = 1;
    ops[0].data.send_initial_metadata.metadata = &token;
    ops[1].data.send_message.send_message = out;
    ops[3].data.recv_initial_metadata.recv_initial_metadata = &headers;
    ops[4].data.recv_message.recv_message = &in;
    ops[5].data.recv_status_on_client.trailing_metadata = &trailers;
    ops[5].data.recv_status_on_client.status = &status;
    ops[5].data.recv_status_on_client.status_details = &details;
    assert_int_equal(grpc_call_start_batch(call, ops, 6, &status, NULL), GRPC_CALL_OK);
    grpc_completion_queue_next(cq, gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
    assert_int_equal(status, GRPC_STATUS_UNIMPLEMENTED);
    assert_int_equal(f->num_messages, 0);
    assert_null(in);
    grpc_slice_unref(details);
    grpc_slice_unref(slice);
    grpc_byte_buffer_destroy(out);
    grpc_metadata_array_destroy(&headers);
    grpc_metadata_array_destroy(&trailers);
    grpc_call_unref(call);
    grpc_channel_destroy(channel);
    grpc_completion_queue_shutdown(cq);
    grpc_completion_queue_next(cq, gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
    grpc_completion_queue_destroy(cq);
    grpc_shutdown();
    free(zeros);
}

/* A raw connection to the server. */
static int connect_raw(const struct fixture *f)
{
    struct sockaddr_in sa = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)server_port(f->server, 0)),
                             .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&sa, sizeof sa), 0);
    return fd;
}

/* Connections that say nothing, half a greeting, or nonsense keep nobody else from being served,
 * and nonsense is hung up on. */
static void strange_connections_disturb_nobody(void **state)
{
    struct fixture *f = *state;
    enum { N = 100 };
    static const char *const says[] = {
        "", "PRI * HTTP/2.0\r\n", "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\x00\x00\x00\x00\x00\x00 nonsense"};
    int fds[N];
    for (int i = 0; i < N; i++) {
        const char *text = says[i % 4];
        fds[i] = connect_raw(f);
        assert_int_equal(fs_write_all(fds[i], text, strlen(text)), 0);
    }
    char text[ERROR_TEXT_MAX];
    struct rpc_channel *c = dial(f->target, "user-token");
    for (int i = 0; i < 20; i++) {
        assert_int_equal(get_job(c, "a", WAIT_MS, text), ERR_OK);
    }
    rpc_channel_close(c);
    struct timeval limit = {.tv_sec = WAIT_MS / 1000};
    setsockopt(fds[2], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    char byte[512];
    ssize_t n;
    while ((n = read(fds[2], byte, sizeof byte)) > 0) {
    }
    assert_true(n == 0 || errno == ECONNRESET);
    for (int i = 0; i < N; i++) {
        close(fds[i]);
    }
}

/* More connections than there are descriptors: those beyond the limit are turned away, the headroom
 * stays free, and once they are gone everybody is served again. (Core's own listener would stay
 * dead for ever.) */
static void running_out_of_descriptors_heals(void **state)
{
    struct fixture *f = *state;
    enum { N = 300, LIMIT = 256 };
    struct rlimit before, low;
    getrlimit(RLIMIT_NOFILE, &before);
    char text[ERROR_TEXT_MAX];
    struct rpc_channel *old = dial(f->target, "user-token");
    assert_int_equal(get_job(old, "a", WAIT_MS, text), ERR_OK);
    int fds[N], num = 0;
    low = before;
    low.rlim_cur = LIMIT;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    /* Both ends are in this process: each connection takes two. */
    while (num < N) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0) {
            break;
        }
        struct sockaddr_in sa = {.sin_family = AF_INET,
                                 .sin_port = htons((uint16_t)server_port(f->server, 0)),
                                 .sin_addr = {htonl(INADDR_LOOPBACK)}};
        fds[num++] = fd;
        assert_int_equal(connect(fd, (struct sockaddr *)&sa, sizeof sa), 0);
    }
    assert_true(num > LIMIT / 4);
    assert_int_equal(get_job(old, "a", WAIT_MS, text), ERR_OK);
    for (int i = 0; i < num; i++) {
        close(fds[i]);
    }
    struct rpc_channel *c = dial(f->target, "user-token");
    await(get_job(c, "a", WAIT_MS, text) == ERR_OK);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    rpc_channel_close(c);
    rpc_channel_close(old);
}

struct caller_thread {
    pthread_t thread;
    struct rpc_channel *channel;
    int failures;
};

static void *call_often(void *arg)
{
    struct caller_thread *t = arg;
    for (int i = 0; i < 5; i++) {
        char text[ERROR_TEXT_MAX];
        GetJobRequest q = GET_JOB_REQUEST__INIT;
        q.job = (char[]){"a"};
        ProtobufCMessage *reply;
        struct error err = {0};
        if (rpc_call(t->channel, "/tandem.v1.Jobs/Get", &q.base, &tandem__v1__job__descriptor,
                     &reply, WAIT_MS, &err)) {
            snprintf(text, sizeof text, "%s", err.text);
            t->failures++;
        } else {
            protobuf_c_message_free_unpacked(reply, NULL);
        }
    }
    return NULL;
}

/* 200 calls in flight on one channel are all answered. */
static void two_hundred_calls_at_once_are_answered(void **state)
{
    struct fixture *f = *state;
    enum { N = 200 };
    static struct caller_thread t[N];
    struct rpc_channel *c = dial(f->target, "user-token");
    for (int i = 0; i < N; i++) {
        t[i] = (struct caller_thread){.channel = c};
        assert_int_equal(pthread_create(&t[i].thread, NULL, call_often, &t[i]), 0);
    }
    for (int i = 0; i < N; i++) {
        pthread_join(t[i].thread, NULL);
        assert_int_equal(t[i].failures, 0);
    }
    assert_int_equal(f->num_messages, 5 * N);
    rpc_channel_close(c);
}

/* ---- streams ------------------------------------------------------------------------------- */

/* What the server sends arrives in order; recv's timeout leaves the stream as it was; the
 * server's end comes behind everything queued. */
static void server_stream_arrives_in_order_and_ends(void **state)
{
    struct fixture *f = *state;
    struct error err;
    struct rpc_channel *c = dial(f->target, "user-token");
    struct rpc_stream *s = open_watch(c);
    assert_int_equal(recv_watch(s, WAIT_MS, &err), 1);
    assert_int_equal(recv_watch(s, 20, &err), -1);
    assert_int_equal(err.code, ERR_DEADLINE_EXCEEDED);
    struct call *w = watcher(f, 0);
    for (int64_t i = 1; i <= 100; i++) {
        StepMetrics step = STEP_METRICS__INIT;
        step.has_step = 1;
        step.step = i;
        WatchReply r = WATCH_REPLY__INIT;
        r.metrics = &step;
        assert_true(call_send(w, &r.base));
    }
    call_finish(w);
    WatchReply late = WATCH_REPLY__INIT;
    assert_false(call_send(w, &late.base));
    for (int64_t i = 1; i <= 100; i++) {
        ProtobufCMessage *m;
        assert_int_equal(
            rpc_stream_recv(s, &tandem__v1__watch_reply__descriptor, &m, WAIT_MS, &err), 1);
        assert_int_equal(((WatchReply *)m)->metrics->step, i);
        protobuf_c_message_free_unpacked(m, NULL);
    }
    assert_int_equal(recv_watch(s, WAIT_MS, &err), 0);
    assert_int_equal(recv_watch(s, WAIT_MS, &err), 0);
    rpc_stream_close(s);
    await(f->num_closed == 1);
    rpc_channel_close(c);
}

/* A watcher that doesn't read loses messages, which are counted; the queue stays bounded and
 * others notice nothing. */
static void slow_reader_loses_messages_not_memory(void **state)
{
    struct fixture *f = *state;
    struct error err;
    struct rpc_channel *c = dial(f->target, "user-token");
    struct rpc_stream *slow = open_watch(c);
    await(num_watchers(f) == 1);
    struct rpc_channel *c2 = dial(f->target, "user-token");
    struct rpc_stream *quick = open_watch(c2);
    assert_int_equal(recv_watch(quick, WAIT_MS, &err), 1);
    struct call *w = watcher(f, 0), *q = watcher(f, 1);
    char *text = malloc(65536);
    memset(text, 'x', 65535);
    text[65535] = 0;
    Event e = EVENT__INIT;
    e.message = text;
    WatchReply r = WATCH_REPLY__INIT;
    r.event = &e;
    struct call_packed *p = call_pack(&r.base);
    int sent = 0;
    while (call_send_packed(w, p)) {
        assert_true(++sent < 10000);
        assert_true(call_send_packed(q, p));
        assert_int_equal(recv_watch(quick, WAIT_MS, &err), 1);
    }
    for (int i = 0; i < 10; i++) {
        assert_false(call_send_packed(w, p));
    }
    assert_int_equal(call_dropped(w), 11);
    assert_int_equal(call_dropped(q), 0);
    assert_true(call_queued(w) <= CALL_QUEUE_MAX);
    /* What was taken arrives once the reader wakes up: the hello, and all that was sent. */
    call_finish(w);
    for (int i = 0; i < sent + 1; i++) {
        assert_int_equal(recv_watch(slow, WAIT_MS, &err), 1);
    }
    assert_int_equal(recv_watch(slow, WAIT_MS, &err), 0);
    call_packed_free(p);
    free(text);
    rpc_stream_close(slow);
    rpc_stream_close(quick);
    rpc_channel_close(c);
    rpc_channel_close(c2);
}

static void *cancel_soon(void *arg)
{
    clock_sleep_ms(20);
    rpc_stream_cancel(arg);
    return NULL;
}

/* Cancelling from another thread wakes a blocked reader, and the server is told. */
static void cancel_wakes_the_reader(void **state)
{
    struct fixture *f = *state;
    struct error err;
    struct rpc_channel *c = dial(f->target, "user-token");
    struct rpc_stream *s = open_watch(c);
    assert_int_equal(recv_watch(s, WAIT_MS, &err), 1);
    pthread_t t;
    pthread_create(&t, NULL, cancel_soon, s);
    assert_int_equal(recv_watch(s, -1, &err), -1);
    assert_int_equal(err.code, ERR_CANCELLED);
    pthread_join(t, NULL);
    rpc_stream_close(s);
    await(f->num_closed == 1);
    assert_true(call_is_over(watcher(f, 0)));
    rpc_channel_close(c);
}

static struct rpc_stream *attach(struct rpc_channel *c)
{
    struct rpc_stream *s;
    assert_int_equal(rpc_stream_open(c, "/tandem.v1.Worker/Attach", NULL, &s, NULL), 0);
    return s;
}

static int send_seq(struct rpc_stream *s, int64_t seq, struct error *err)
{
    WorkerUp up = WORKER_UP__INIT;
    up.has_seq = 1;
    up.seq = seq;
    return rpc_stream_send(s, &up.base, err);
}

/* The seq of the next Ack, 0 at the end, -1 on error. */
static int64_t recv_ack(struct rpc_stream *s, struct error *err)
{
    ProtobufCMessage *m;
    int r = rpc_stream_recv(s, &tandem__v1__worker_down__descriptor, &m, WAIT_MS, err);
    if (r != 1) {
        return r;
    }
    WorkerDown *d = (WorkerDown *)m;
    assert_int_equal(d->attempt, 2);
    int64_t seq = d->ack->seq;
    protobuf_c_message_free_unpacked(m, NULL);
    return seq;
}

/* A bidi stream carries both ways; half-closing lets the server finish. */
static void bidi_stream_answers_each_and_half_closes(void **state)
{
    struct fixture *f = *state;
    struct error err;
    struct rpc_channel *c = dial(f->target, "worker-token");
    struct rpc_stream *s = attach(c);
    for (int64_t i = 1; i <= 50; i++) {
        assert_int_equal(send_seq(s, i, &err), 0);
        assert_int_equal(recv_ack(s, &err), i);
    }
    assert_int_equal(rpc_stream_half_close(s, &err), 0);
    assert_int_equal(recv_ack(s, &err), 0);
    rpc_stream_close(s);
    await(f->num_closed == 1);
    assert_int_equal(f->num_half_closed, 1);
    rpc_channel_close(c);
}

static void *send_many(void *arg)
{
    int64_t n = 0;
    while (n < 2000 && send_seq(arg, n + 1, NULL) == 0) {
        n++;
    }
    return (void *)(intptr_t)n;
}

/* One thread may send while another receives. */
static void one_thread_sends_while_another_receives(void **state)
{
    struct fixture *f = *state;
    struct error err;
    struct rpc_channel *c = dial(f->target, "worker-token");
    struct rpc_stream *s = attach(c);
    pthread_t t;
    pthread_create(&t, NULL, send_many, s);
    int64_t last = 0;
    while (last < 2000) {
        int64_t seq = recv_ack(s, &err);
        assert_true(seq > last);
        last = seq;
    }
    void *sent;
    pthread_join(t, &sent);
    assert_int_equal((intptr_t)sent, 2000);
    rpc_stream_close(s);
    rpc_channel_close(c);
}

/* While a call is held, the client's messages wait and no handler is called; all of them arrive
 * once it is released. */
static void held_call_reads_no_more(void **state)
{
    struct fixture *f = *state;
    struct error err;
    struct rpc_channel *c = dial(f->target, "worker-token");
    struct rpc_stream *s = attach(c);
    for (int64_t i = 0; i <= 50; i++) {
        assert_int_equal(send_seq(s, HOLD_AT + i, &err), 0);
    }
    assert_int_equal(recv_ack(s, &err), HOLD_AT);
    /* Behind a reply on the same connection, what was sent before is at the server. */
    assert_int_equal(call_path(c, "/tandem.v1.Jobs/Fly", &err), ERR_UNIMPLEMENTED);
    assert_true(f->num_messages <= 2);
    call_hold(watcher(f, 0), false);
    for (int64_t i = 1; i <= 50; i++) {
        assert_int_equal(recv_ack(s, &err), HOLD_AT + i);
    }
    rpc_stream_close(s);
    rpc_channel_close(c);
}

/* Once the other end has gone, sends fail and don't hang. */
static void sending_on_a_dead_stream_fails(void **state)
{
    struct fixture *f = *state;
    struct error err;
    struct rpc_channel *c = dial(f->target, "worker-token");
    struct rpc_stream *s = attach(c);
    assert_int_equal(send_seq(s, 1, &err), 0);
    assert_int_equal(recv_ack(s, &err), 1);
    rpc_stream_cancel(s);
    assert_int_equal(recv_ack(s, &err), -1);
    assert_int_equal(send_seq(s, 2, &err), -1);
    rpc_stream_close(s);
    await(f->num_closed == 1);
    rpc_channel_close(c);
}

/* A stream that ends before its first message is an error, and no handler hears of it. */
static void empty_bidi_stream_is_refused(void **state)
{
    struct fixture *f = *state;
    struct error err;
    struct rpc_channel *c = dial(f->target, "worker-token");
    struct rpc_stream *s = attach(c);
    rpc_stream_half_close(s, &err);
    assert_int_equal(recv_ack(s, &err), -1);
    assert_int_equal(err.code, ERR_INVALID_ARGUMENT);
    rpc_stream_close(s);
    rpc_channel_close(c);
    assert_int_equal(f->num_half_closed, 0);
    assert_int_equal(f->num_closed, 0);
}

/* ---- the end of the server ----------------------------------------------------------------- */

/* Stopping is prompt with idle clients, open watchers, one that doesn't read, and a unary call
 * that nobody answers; watchers are told why. */
static void stop_is_prompt_with_open_streams(void **state)
{
    struct fixture *f = *state;
    struct error err;
    struct rpc_channel *idle = dial(f->target, "user-token");
    char text[ERROR_TEXT_MAX];
    assert_int_equal(get_job(idle, "a", WAIT_MS, text), ERR_OK);
    struct rpc_channel *c = dial(f->target, "user-token");
    struct rpc_stream *watch[20];
    for (int i = 0; i < 20; i++) {
        watch[i] = open_watch(c);
        assert_int_equal(recv_watch(watch[i], WAIT_MS, &err), 1);
    }
    struct rpc_channel *c2 = dial(f->target, "user-token");
    struct rpc_stream *stuck = open_watch(c2);
    await(num_watchers(f) == 21);
    char *big = malloc(1 << 20);
    memset(big, 'x', (1 << 20) - 1);
    big[(1 << 20) - 1] = 0;
    Event e = EVENT__INIT;
    e.message = big;
    WatchReply r = WATCH_REPLY__INIT;
    r.event = &e;
    while (call_send(watcher(f, 20), &r.base)) {
    }
    free(big);
    int64_t before = clock_mono_ms();
    server_stop(f->server, 60000);
    assert_true(clock_mono_ms() - before < 30000);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(recv_watch(watch[i], WAIT_MS, &err), -1);
        assert_int_equal(err.code, ERR_UNAVAILABLE);
        assert_string_equal(err.text, "server is shutting down");
        rpc_stream_close(watch[i]);
    }
    assert_int_equal(f->num_closed, 22);
    rpc_stream_close(stuck);
    rpc_channel_close(c);
    rpc_channel_close(c2);
    rpc_channel_close(idle);
}

static void *call_never(void *arg)
{
    char text[ERROR_TEXT_MAX];
    return (void *)(intptr_t)get_job(arg, "never", WAIT_MS, text);
}

/* A unary call may be answered within the grace; after it, it ends anyway. */
static void stop_cuts_unanswered_calls_after_the_grace(void **state)
{
    struct fixture *f = *state;
    struct rpc_channel *c = dial(f->target, "user-token");
    pthread_t t;
    pthread_create(&t, NULL, call_never, c);
    await(f->num_messages == 1);
    server_stop(f->server, 50);
    void *code;
    pthread_join(t, &code);
    assert_true((intptr_t)code != ERR_OK);
    rpc_channel_close(c);
}

/* A client finds a server that came back; until then it is told that nobody answers. */
static void client_finds_the_server_again(void **state)
{
    struct fixture *f = *state;
    char text[ERROR_TEXT_MAX], address[64];
    struct rpc_channel *c = dial(f->target, "user-token");
    assert_int_equal(get_job(c, "a", WAIT_MS, text), ERR_OK);
    snprintf(address, sizeof address, "%s", f->target);
    server_free(f->server);
    f->server = NULL;
    assert_int_equal(get_job(c, "a", WAIT_MS, text), ERR_UNAVAILABLE);
    if (!strstr(text, address)) {
        fail_msg("%s", text);
    }
    start_server(f, address);
    await(get_job(c, "a", WAIT_MS, text) == ERR_OK);
    rpc_channel_close(c);
}

static void *start_late(void *arg)
{
    struct fixture *f = arg;
    clock_sleep_ms(50);
    char address[64];
    snprintf(address, sizeof address, "%s", f->target);
    start_server(f, address);
    return NULL;
}

/* wait_ready: a call that is made before the server is up waits for it. */
static void waiting_call_outlasts_a_late_server(void **state)
{
    struct fixture *f = *state;
    char text[ERROR_TEXT_MAX];
    server_free(f->server);
    f->server = NULL;
    struct rpc_channel *c;
    struct rpc_channel_options o = {.target = f->target, .token = "user-token", .wait_ready = true};
    assert_int_equal(rpc_channel_open(&c, &o, NULL), 0);
    pthread_t t;
    pthread_create(&t, NULL, start_late, f);
    assert_int_equal(get_job(c, "a", WAIT_MS, text), ERR_OK);
    pthread_join(t, NULL);
    rpc_channel_close(c);
}

/* ---- listening ----------------------------------------------------------------------------- */

static enum error_code try_listen(struct fixture *f, const char *address, struct error *err)
{
    const char *addresses[] = {address, NULL};
    const struct method *tables[] = {test_methods, NULL};
    struct server_options o = {
        .listen = addresses, .tables = tables, .ctx = f, .authenticate = authenticate};
    struct server *s;
    if (server_new(&s, &o, err)) {
        return err->code;
    }
    server_free(s);
    return ERR_OK;
}

/* Plain text stays on this host: without a certificate nothing but loopback and socket files is
 * listened on. */
static void without_tls_only_local_addresses_are_listened_on(void **state)
{
    struct fixture *f = *state;
    struct error err;
    assert_int_equal(try_listen(f, "0.0.0.0:0", &err), ERR_FAILED_PRECONDITION);
    assert_int_equal(try_listen(f, "[::]:0", &err), ERR_FAILED_PRECONDITION);
    assert_int_equal(try_listen(f, "10.0.0.1:7000", &err), ERR_FAILED_PRECONDITION);
    assert_non_null(strstr(err.text, "TLS"));
    const char *const bad[] = {"",
                               "example.org:7000",
                               ":",
                               "7000",
                               "127.0.0.1:",
                               "127.0.0.1:70000",
                               "127.0.0.1:x",
                               "::1:7000",
                               "unix:relative",
                               "127.0.0.1:-1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(try_listen(f, bad[i], &err), ERR_INVALID_ARGUMENT);
    }
    char longer[200] = "unix:/";
    memset(longer + 6, 'a', 150);
    assert_int_equal(try_listen(f, longer, &err), ERR_INVALID_ARGUMENT);
    assert_int_equal(try_listen(f, "localhost:0", &err), ERR_OK);
}

/* Two servers never share an address in silence. */
static void taken_address_is_refused(void **state)
{
    struct fixture *f = *state;
    struct error err;
    assert_int_not_equal(try_listen(f, f->target, &err), ERR_OK);
    assert_non_null(strstr(err.text, "in use"));
    assert_int_equal(try_listen(f, f->unix_target, &err), ERR_ALREADY_EXISTS);
    assert_non_null(strstr(err.text, "another server"));
    char text[ERROR_TEXT_MAX];
    struct rpc_channel *c = dial(f->unix_target, NULL);
    assert_int_equal(get_job(c, "a", WAIT_MS, text), ERR_OK);
    rpc_channel_close(c);
}

/* A socket file that a killed server left is replaced, and only its owner may open it; another
 * kind of file is left alone. */
static void stale_socket_is_replaced(void **state)
{
    struct fixture *f = *state;
    struct error err;
    char path[128], target[160];
    snprintf(path, sizeof path, "%s/stale", f->dir);
    snprintf(target, sizeof target, "unix:%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    memcpy(sa.sun_path, path, strlen(path));
    assert_int_equal(bind(fd, (struct sockaddr *)&sa, sizeof sa), 0);
    close(fd);
    assert_int_equal(try_listen(f, target, &err), ERR_OK);
    struct stat st;
    assert_int_equal(stat(f->unix_target + 5, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);

    snprintf(path, sizeof path, "%s/file", f->dir);
    snprintf(target, sizeof target, "unix:%s", path);
    assert_int_equal(fs_write_atomic(path, "x", 1, 0600, &err), 0);
    assert_int_equal(try_listen(f, target, &err), ERR_ALREADY_EXISTS);
    assert_true(fs_exists(path));
}

/* A mistyped address is said at once, and nothing is tried with it. */
static void client_refuses_what_is_no_address(void **state)
{
    (void)state;
    const char *const bad[] = {"nonsense", "host:", "host:x", "::1:7", "http://10.0.0.1:7", ":7"};
    struct error err;
    struct rpc_channel *c;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct rpc_channel_options o = {.target = bad[i]};
        assert_int_equal(rpc_channel_open(&c, &o, &err), -1);
        assert_int_equal(err.code, ERR_INVALID_ARGUMENT);
    }
}

/* ---- health and reflection ----------------------------------------------------------------- */

static int check_health(struct rpc_channel *c, const char *service, struct error *err)
{
    Grpc__Health__V1__HealthCheckRequest q = GRPC__HEALTH__V1__HEALTH_CHECK_REQUEST__INIT;
    q.service = (char *)(uintptr_t)service;
    ProtobufCMessage *m;
    if (rpc_call(c, "/grpc.health.v1.Health/Check", &q.base,
                 &grpc__health__v1__health_check_response__descriptor, &m, WAIT_MS, err)) {
        return -1;
    }
    int status = (int)((Grpc__Health__V1__HealthCheckResponse *)m)->status;
    protobuf_c_message_free_unpacked(m, NULL);
    return status;
}

/* Health needs no token, knows its services, and a watcher hears of each change. */
static void health_tells_what_is_serving(void **state)
{
    struct fixture *f = *state;
    struct error err;
    struct rpc_channel *c = dial(f->target, NULL);
    assert_int_equal(check_health(c, NULL, &err), 1);
    assert_int_equal(check_health(c, "tandem.v1.Jobs", &err), 1);
    assert_int_equal(check_health(c, "no.such.Service", &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    Grpc__Health__V1__HealthCheckRequest q = GRPC__HEALTH__V1__HEALTH_CHECK_REQUEST__INIT;
    struct rpc_stream *s;
    rpc_stream_open(c, "/grpc.health.v1.Health/Watch", &q.base, &s, NULL);
    const int expected[] = {1, 2, 1};
    for (int i = 0; i < 3; i++) {
        if (i > 0) {
            server_set_serving(f->server, i == 2);
        }
        ProtobufCMessage *m;
        assert_int_equal(rpc_stream_recv(s, &grpc__health__v1__health_check_response__descriptor,
                                         &m, WAIT_MS, &err),
                         1);
        assert_int_equal(((Grpc__Health__V1__HealthCheckResponse *)m)->status, expected[i]);
        protobuf_c_message_free_unpacked(m, NULL);
    }
    rpc_stream_close(s);
    rpc_channel_close(c);
    assert_int_equal(f->num_authenticated, 0);
}

typedef Grpc__Reflection__V1alpha__ServerReflectionRequest ReflectionRequest;
typedef Grpc__Reflection__V1alpha__ServerReflectionResponse ReflectionResponse;
#define ASKS(field) GRPC__REFLECTION__V1ALPHA__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_##field
#define SAYS(field) GRPC__REFLECTION__V1ALPHA__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_##field

static ReflectionResponse *reflect(struct rpc_stream *s, ReflectionRequest *q)
{
    struct error err;
    ProtobufCMessage *m;
    assert_int_equal(rpc_stream_send(s, &q->base, &err), 0);
    assert_int_equal(
        rpc_stream_recv(s, &grpc__reflection__v1alpha__server_reflection_response__descriptor, &m,
                        WAIT_MS, &err),
        1);
    return (ReflectionResponse *)m;
}

static size_t num_files_of_symbol(struct rpc_stream *s, const char *symbol)
{
    ReflectionRequest q = GRPC__REFLECTION__V1ALPHA__SERVER_REFLECTION_REQUEST__INIT;
    q.message_request_case = ASKS(FILE_CONTAINING_SYMBOL);
    q.file_containing_symbol = (char *)(uintptr_t)symbol;
    ReflectionResponse *r = reflect(s, &q);
    size_t n = r->message_response_case == SAYS(FILE_DESCRIPTOR_RESPONSE)
                   ? r->file_descriptor_response->n_file_descriptor_proto
                   : 0;
    protobuf_c_message_free_unpacked(&r->base, NULL);
    return n;
}

/* A client that knows nothing learns the services and their files, imports included. */
static void reflection_knows_every_service_and_symbol(void **state)
{
    struct fixture *f = *state;
    struct error err;
    struct rpc_channel *c = dial(f->target, NULL);
    struct rpc_stream *s;
    rpc_stream_open(c, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", NULL, &s,
                    NULL);
    ReflectionRequest q = GRPC__REFLECTION__V1ALPHA__SERVER_REFLECTION_REQUEST__INIT;
    q.message_request_case = ASKS(LIST_SERVICES);
    q.list_services = (char[]){""};
    ReflectionResponse *r = reflect(s, &q);
    assert_int_equal(r->message_response_case, SAYS(LIST_SERVICES_RESPONSE));
    assert_true(r->list_services_response->n_service >= 9);
    bool found = false;
    for (size_t i = 0; i < r->list_services_response->n_service; i++) {
        const char *name = r->list_services_response->service[i]->name;
        found = found || strcmp(name, "tandem.v1.Worker") == 0;
    }
    assert_true(found);
    protobuf_c_message_free_unpacked(&r->base, NULL);

    assert_int_equal(num_files_of_symbol(s, "tandem.v1.Jobs"), 1);
    assert_int_equal(num_files_of_symbol(s, "tandem.v1.Jobs.Submit"), 1);
    assert_int_equal(num_files_of_symbol(s, "tandem.v1.JobSpec"), 1);
    assert_int_equal(num_files_of_symbol(s, "tandem.v1.JobSpec.name"), 1);
    assert_int_equal(num_files_of_symbol(s, "tandem.v1.JobState"), 1);
    assert_int_equal(num_files_of_symbol(s, "grpc.health.v1.HealthCheckResponse.ServingStatus"), 1);
    assert_int_equal(num_files_of_symbol(s, "tandem.v1.Plans"), 3);
    assert_int_equal(num_files_of_symbol(s, "tandem.v1.Nothing"), 0);
    assert_int_equal(num_files_of_symbol(s, ""), 0);

    q.message_request_case = ASKS(FILE_BY_FILENAME);
    q.file_by_filename = (char[]){"tandem/v1/jobs.proto"};
    r = reflect(s, &q);
    assert_int_equal(r->message_response_case, SAYS(FILE_DESCRIPTOR_RESPONSE));
    protobuf_c_message_free_unpacked(&r->base, NULL);

    assert_int_equal(rpc_stream_half_close(s, &err), 0);
    ProtobufCMessage *m;
    assert_int_equal(
        rpc_stream_recv(s, &grpc__reflection__v1alpha__server_reflection_response__descriptor, &m,
                        WAIT_MS, &err),
        0);
    rpc_stream_close(s);
    rpc_channel_close(c);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(unary_call_is_answered),
        T(failure_keeps_code_and_text),
        T(status_text_is_cut_and_cleaned),
        T(over_large_reply_fails_in_words),
        T(over_large_request_is_refused),
        T(deadline_ends_the_call_on_both_sides),
        T(wrong_token_is_refused),
        T(other_socket_file_needs_a_token),
        T(lost_right_ends_open_streams),
        T(right_lost_while_a_stream_opens_is_noticed),
        T(lost_right_ends_a_stream_that_is_stuck),
        T(method_without_a_right_is_refused),
        T(missing_methods_are_named),
        T(malformed_messages_are_refused),
        T(compressed_messages_are_refused),
        T(strange_connections_disturb_nobody),
        T(running_out_of_descriptors_heals),
        T(two_hundred_calls_at_once_are_answered),
        T(server_stream_arrives_in_order_and_ends),
        T(slow_reader_loses_messages_not_memory),
        T(cancel_wakes_the_reader),
        T(bidi_stream_answers_each_and_half_closes),
        T(one_thread_sends_while_another_receives),
        T(held_call_reads_no_more),
        T(sending_on_a_dead_stream_fails),
        T(empty_bidi_stream_is_refused),
        T(stop_is_prompt_with_open_streams),
        T(stop_cuts_unanswered_calls_after_the_grace),
        T(client_finds_the_server_again),
        T(waiting_call_outlasts_a_late_server),
        T(without_tls_only_local_addresses_are_listened_on),
        T(taken_address_is_refused),
        T(stale_socket_is_replaced),
        T(client_refuses_what_is_no_address),
        T(health_tells_what_is_serving),
        T(reflection_knows_every_service_and_symbol),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
