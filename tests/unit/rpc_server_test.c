/* The life of the gRPC server: where it listens, how it stops, how it is found again, what it says
 * of itself. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "tests/deadline.h"
#include "tests/unit/rpc_fixture.h"
#include "tandem/v1/health.pb-c.h"
#include "tandem/v1/reflection.pb-c.h"

/* Stopping is prompt with idle clients, open watchers, one that doesn't read, and a unary call
 * that nobody answers; watchers are told why. */
static void stop_is_prompt_with_open_streams(void **state)
{
    struct fixture *f = *state;
    struct error err;
    struct rpc_channel *idle = rpc_dial(f->target, "user-token");
    char text[ERROR_TEXT_MAX];
    assert_int_equal(rpc_get_job(idle, "a", WAIT_MS, text), ERR_OK);
    struct rpc_channel *c = rpc_dial(f->target, "user-token");
    struct rpc_stream *watch[20];
    for (int i = 0; i < 20; i++) {
        watch[i] = rpc_open_watch(c);
        assert_int_equal(rpc_recv_watch(watch[i], WAIT_MS, &err), 1);
    }
    struct rpc_channel *c2 = rpc_dial(f->target, "user-token");
    struct rpc_stream *stuck = rpc_open_watch(c2);
    await(rpc_num_watchers(f) == 21);
    char *big = malloc(1 << 20);
    memset(big, 'x', (1 << 20) - 1);
    big[(1 << 20) - 1] = 0;
    Event e = EVENT__INIT;
    e.message = big;
    WatchReply r = WATCH_REPLY__INIT;
    r.event = &e;
    while (call_send(rpc_watcher(f, 20), &r.base)) {
    }
    free(big);
    deadline_begin(DEADLINE_S, "the end of a server with a tenth of its grace gone");
    server_stop(f->server, DEADLINE_S * 10000);
    deadline_end();
    for (int i = 0; i < 20; i++) {
        assert_int_equal(rpc_recv_watch(watch[i], WAIT_MS, &err), -1);
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
    return (void *)(intptr_t)rpc_get_job(arg, "never", WAIT_MS, text);
}

/* A unary call may be answered within the grace; after it, it ends anyway. */
static void stop_cuts_unanswered_calls_after_the_grace(void **state)
{
    struct fixture *f = *state;
    struct rpc_channel *c = rpc_dial(f->target, "user-token");
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
    int kept = rpc_start_kept_server(f, address);
    struct rpc_channel *c = rpc_dial(f->target, "user-token");
    assert_int_equal(rpc_get_job(c, "a", WAIT_MS, text), ERR_OK);
    server_free(f->server);
    f->server = NULL;
    assert_int_equal(rpc_get_job(c, "a", WAIT_MS, text), ERR_UNAVAILABLE);
    if (!strstr(text, address)) {
        fail_msg("%s", text);
    }
    rpc_start_server(f, address);
    await(rpc_get_job(c, "a", WAIT_MS, text) == ERR_OK);
    rpc_channel_close(c);
    close(kept);
}

static void *start_late(void *arg)
{
    struct fixture *f = arg;
    clock_sleep_ms(50);
    char address[64];
    snprintf(address, sizeof address, "%s", f->target);
    rpc_start_server(f, address);
    return NULL;
}

/* wait_ready: a call that is made before the server is up waits for it. */
static void waiting_call_outlasts_a_late_server(void **state)
{
    struct fixture *f = *state;
    char text[ERROR_TEXT_MAX], address[64];
    int kept = rpc_start_kept_server(f, address);
    server_free(f->server);
    f->server = NULL;
    struct rpc_channel *c;
    struct rpc_channel_options o = {.target = f->target, .token = "user-token", .wait_ready = true};
    assert_int_equal(rpc_channel_open(&c, &o, NULL), 0);
    pthread_t t;
    pthread_create(&t, NULL, start_late, f);
    assert_int_equal(rpc_get_job(c, "a", WAIT_MS, text), ERR_OK);
    pthread_join(t, NULL);
    rpc_channel_close(c);
    close(kept);
}

static enum error_code try_listen(struct fixture *f, const char *address, struct error *err)
{
    const char *addresses[] = {address, NULL};
    const struct method *tables[] = {rpc_test_methods, NULL};
    struct server_options o = {
        .listen = addresses, .tables = tables, .ctx = f, .authenticate = rpc_authenticate};
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
    struct rpc_channel *c = rpc_dial(f->unix_target, NULL);
    assert_int_equal(rpc_get_job(c, "a", WAIT_MS, text), ERR_OK);
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
    struct rpc_channel *c = rpc_dial(f->target, NULL);
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
    struct rpc_channel *c = rpc_dial(f->target, NULL);
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
#define T(f) cmocka_unit_test_setup_teardown(f, rpc_setup, rpc_teardown)
    const struct CMUnitTest tests[] = {
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
