/* What no client should send: unknown methods, malformed and compressed messages, connections that
 * are none, and connections that take too much. */
#include <arpa/inet.h>
#include <errno.h>
#include <grpc/compression.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpc/support/time.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fs.h"
#include "tests/unit/rpc_fixture.h"

/* What is in the contract but not built says so by name; the rest is unknown. */
static void missing_methods_are_named(void **state)
{
    struct fixture *f = *state;
    struct error err;
    struct rpc_channel *c = rpc_dial(f->target, "user-token");
    assert_int_equal(rpc_call_path(c, "/tandem.v1.Jobs/Hold", &err), ERR_UNIMPLEMENTED);
    assert_string_equal(err.text, "Jobs.Hold is not built yet");
    assert_int_equal(rpc_call_path(c, "/tandem.v1.Jobs/Fly", &err), ERR_UNIMPLEMENTED);
    assert_string_equal(err.text, "unknown method /tandem.v1.Jobs/Fly");
    assert_int_equal(rpc_call_path(c, "/", &err), ERR_UNIMPLEMENTED);
    char longer[400];
    memset(longer, 'a', sizeof longer);
    memcpy(longer, "/x/", 3);
    longer[sizeof longer - 1] = 0;
    assert_int_equal(rpc_call_path(c, longer, &err), ERR_UNIMPLEMENTED);
    rpc_channel_close(c);
}

/* Bytes that are no message of the method, a string that is no UTF-8 and an unknown enum number
 * are refused before the handler. */
static void malformed_messages_are_refused(void **state)
{
    struct fixture *f = *state;
    struct error err;
    ProtobufCMessage *reply;
    struct rpc_channel *c = rpc_dial(f->target, "user-token");
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

/* The server hangs up. */
static void assert_closed(int fd)
{
    char bytes[512];
    ssize_t n;
    while ((n = read(fd, bytes, sizeof bytes)) > 0 || (n < 0 && errno == EINTR)) {
    }
    assert_true(n == 0 || errno == ECONNRESET);
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
    struct rpc_channel *c = rpc_dial(f->target, "user-token");
    for (int i = 0; i < 20; i++) {
        if (rpc_get_job(c, "a", WAIT_MS, text) != ERR_OK) {
            fail_msg("call %d: %s", i, text);
        }
    }
    rpc_channel_close(c);
    struct timeval limit = {.tv_sec = WAIT_MS / 1000};
    setsockopt(fds[2], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    assert_closed(fds[2]);
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
    struct rpc_channel *old = rpc_dial(f->target, "user-token");
    assert_int_equal(rpc_get_job(old, "a", WAIT_MS, text), ERR_OK);
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
    assert_int_equal(rpc_get_job(old, "a", WAIT_MS, text), ERR_OK);
    for (int i = 0; i < num; i++) {
        close(fds[i]);
    }
    struct rpc_channel *c = rpc_dial(f->target, "user-token");
    await(rpc_get_job(c, "a", WAIT_MS, text) == ERR_OK);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    rpc_channel_close(c);
    rpc_channel_close(old);
}

static struct server *another_server(struct fixture *f, const struct server_options *limits,
                                     char *target, size_t size)
{
    const char *addresses[] = {"127.0.0.1:0", NULL};
    const struct method *tables[] = {rpc_test_methods, NULL};
    struct server_options o = *limits;
    o.listen = addresses;
    o.tables = tables;
    o.ctx = f;
    o.authenticate = rpc_authenticate;
    struct server *s;
    struct error err;
    if (server_new(&s, &o, &err) || server_start(s, &err)) {
        fail_msg("%s", err.text);
    }
    snprintf(target, size, "127.0.0.1:%d", server_port(s, 0));
    return s;
}

/* A call whose first message doesn't come is ended, not kept for as long as its client likes. */
static void call_without_its_message_is_ended(void **state)
{
    struct fixture *f = *state;
    char target[64];
    const struct server_options o = {.first_message_ms = 50};
    struct server *server = another_server(f, &o, target, sizeof target);
    struct rpc_channel *c = rpc_dial(target, "worker-token");
    struct rpc_stream *s;
    struct error err;
    ProtobufCMessage *m;
    assert_int_equal(rpc_stream_open(c, "/tandem.v1.Worker/Attach", NULL, &s, &err), 0);
    assert_int_equal(rpc_stream_recv(s, &tandem__v1__worker_down__descriptor, &m, WAIT_MS, &err),
                     -1);
    assert_int_equal(err.code, ERR_DEADLINE_EXCEEDED);
    assert_string_equal(err.text, "the call took too long");
    rpc_stream_close(s);
    rpc_channel_close(c);
    server_free(server);
}

/* A connection that makes no call is hung up on, whether or not it greets. */
static void connection_without_a_call_is_closed(void **state)
{
    struct fixture *f = *state;
    static const char hello[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0";
    char target[64];
    const struct server_options o = {.idle_connection_ms = 50};
    struct server *server = another_server(f, &o, target, sizeof target);
    for (size_t len = 0; len <= sizeof hello - 1; len += sizeof hello - 1) {
        struct sockaddr_in sa = {.sin_family = AF_INET,
                                 .sin_port = htons((uint16_t)server_port(server, 0)),
                                 .sin_addr = {htonl(INADDR_LOOPBACK)}};
        struct timeval limit = {.tv_sec = WAIT_MS / 1000};
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(connect(fd, (struct sockaddr *)&sa, sizeof sa), 0);
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
        (void)!fs_write_all(fd, hello, len); /* or it is closed by then */
        assert_closed(fd);
        close(fd);
    }
    server_free(server);
}

static int connect_to(const struct server *server)
{
    struct sockaddr_in sa = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)server_port(server, 0)),
                             .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct timeval limit = {.tv_sec = WAIT_MS / 1000};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&sa, sizeof sa), 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    return fd;
}

/* False: the server has closed the connection. */
static bool frame(int fd, int kind, int flags, int stream, const void *data, size_t len)
{
    const uint8_t head[9] = {
        0, (uint8_t)(len >> 8), (uint8_t)len, (uint8_t)kind, (uint8_t)flags, 0, 0,
        0, (uint8_t)stream};
    bool sent = fs_write_all(fd, head, sizeof head) == 0 && fs_write_all(fd, data, len) == 0;
    assert_true(sent || errno == EPIPE || errno == ECONNRESET);
    return sent;
}

/* A header that is written out, both parts shorter than 127 bytes. */
static size_t put_header(uint8_t *out, const char *name, const char *value)
{
    size_t n = strlen(name), v = strlen(value);
    out[0] = 0;
    out[1] = (uint8_t)n;
    memcpy(out + 2, name, n);
    out[2 + n] = (uint8_t)v;
    memcpy(out + 3 + n, value, v);
    return 3 + n + v;
}

/* ":method" and the like, of a call without a token. */
static size_t put_request(uint8_t *out, const char *path)
{
    size_t len = put_header(out, ":method", "POST");
    len += put_header(out + len, ":scheme", "http");
    len += put_header(out + len, ":path", path);
    len += put_header(out + len, ":authority", "x");
    len += put_header(out + len, "content-type", "application/grpc");
    return len + put_header(out + len, "te", "trailers");
}

/* Of stream 1 and of the connection: what the server lets us send; ended: nothing more of 1. */
struct room {
    int64_t stream, connection;
    bool ended;
};

/* False: the server has closed the connection. */
static bool read_exactly(int fd, uint8_t *out, size_t len)
{
    for (size_t got = 0; got < len;) {
        ssize_t n = read(fd, out + got, len - got);
        if (n == 0 || (n < 0 && errno == ECONNRESET)) {
            return false;
        }
        assert_true(n > 0 || errno == EINTR);
        got += n > 0 ? (size_t)n : 0;
    }
    return true;
}

/* Takes one frame of the server. */
static void take_frame(int fd, struct room *r)
{
    uint8_t head[9], body[16384];
    if (!read_exactly(fd, head, sizeof head)) {
        r->ended = true;
        return;
    }
    size_t len = (size_t)head[0] << 16 | (size_t)head[1] << 8 | head[2];
    assert_true(len <= sizeof body);
    if (!read_exactly(fd, body, len)) {
        r->ended = true;
        return;
    }
    if (head[3] == 8) { /* WINDOW_UPDATE */
        int64_t more = (int64_t)body[0] << 24 | body[1] << 16 | body[2] << 8 | body[3];
        *(head[8] ? &r->stream : &r->connection) += more;
    } else if (head[3] == 6 && !(head[4] & 1)) { /* PING */
        r->ended = !frame(fd, 6, 1, 0, body, len);
    } else if (head[3] == 3 || head[3] == 7) { /* RST_STREAM, GOAWAY */
        r->ended = true;
    }
}

/* The bound of a request holds once it is whole; before that, what core reads of all of them is
 * bounded: by anybody, for a method that needs no token. */
static void message_that_never_ends_is_cut(void **state)
{
    struct fixture *f = *state;
    static const uint8_t huge[5] = {0, 0x40, 0, 0, 0};
    static uint8_t piece[16384];
    const int64_t size = sizeof piece;
    char target[64];
    uint8_t block[512];
    const struct server_options o = {.max_reading_bytes = 8 << 20};
    struct server *server = another_server(f, &o, target, sizeof target);
    struct room room = {65535, 65535, false};
    int fd = connect_to(server);
    int64_t sent = 0;
    assert_int_equal(fs_write_all(fd, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 24), 0);
    assert_true(frame(fd, 4, 0, 0, NULL, 0));
    assert_true(frame(fd, 1, 4, 1, block, put_request(block, "/grpc.health.v1.Health/Check")));
    assert_true(frame(fd, 0, 0, 1, huge, sizeof huge));
    while (!room.ended && sent < 128 << 20) {
        bool full = room.stream < size || room.connection < size;
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (full || poll(&p, 1, 0) > 0) {
            take_frame(fd, &room);
            continue;
        }
        room.ended = !frame(fd, 0, 0, 1, piece, sizeof piece);
        sent += size;
        room.stream -= size;
        room.connection -= size;
    }
    assert_true(room.ended);
    assert_true(sent < 32 << 20); /* and not as a whole */
    struct rpc_channel *c = rpc_dial(target, "user-token");
    char text[ERROR_TEXT_MAX];
    assert_int_equal(rpc_get_job(c, "a", WAIT_MS, text), ERR_OK);
    rpc_channel_close(c);
    close(fd);
    server_free(server);
}

/* A client that asks and gives no room for the answer holds its call for a while, not for ever. */
static void connection_that_reads_no_answer_is_closed(void **state)
{
    struct fixture *f = *state;
    static const uint8_t no_window[] = {0, 4, 0, 0, 0, 0}, request[] = {0, 0, 0, 0, 3, 10, 1, 'a'};
    static const char *const fields[][2] = {{":method", "POST"},
                                            {":scheme", "http"},
                                            {":path", "/tandem.v1.Jobs/Get"},
                                            {":authority", "x"},
                                            {"content-type", "application/grpc"},
                                            {"te", "trailers"},
                                            {"authorization", "Bearer user-token"}};
    char target[64];
    uint8_t block[512];
    size_t len = 0;
    const struct server_options o = {.unread_end_ms = 50};
    struct server *server = another_server(f, &o, target, sizeof target);
    int fd = connect_to(server);
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        len += put_header(block + len, fields[i][0], fields[i][1]);
    }
    assert_int_equal(fs_write_all(fd, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 24), 0);
    assert_true(frame(fd, 4, 0, 0, no_window, sizeof no_window));
    assert_true(frame(fd, 1, 4, 1, block, len));
    assert_true(frame(fd, 0, 1, 1, request, sizeof request));
    await(f->num_messages == 1);
    assert_closed(fd);
    await(f->num_closed == 1);
    close(fd);
    server_free(server);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
#define T(f) cmocka_unit_test_setup_teardown(f, rpc_setup, rpc_teardown)
    const struct CMUnitTest tests[] = {
        T(missing_methods_are_named),           T(malformed_messages_are_refused),
        T(compressed_messages_are_refused),     T(strange_connections_disturb_nobody),
        T(running_out_of_descriptors_heals),    T(call_without_its_message_is_ended),
        T(connection_without_a_call_is_closed), T(connection_that_reads_no_answer_is_closed),
        T(message_that_never_ends_is_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
