/* The parts of the way in that need no other program: addresses, limits, certificates, the places
 * of mistakes in a config file, and one server that speaks TLS with our own client. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/fs.h"
#include "clients/cli/cert.h"
#include "proto/field.h"
#include "proto/names.h"
#include "proto/rpc_client.h"
#include "proto/rpc_tls.h"
#include "proto/text.h"
#include "server/rpc/peers.h"
#include "server/rpc/server.h"

enum { WAIT_MS = 20000 };

/* ---- addresses ----------------------------------------------------------------------------- */

static struct peer_address address(const char *text)
{
    struct sockaddr_storage sa = {0};
    if (strchr(text, ':')) {
        struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&sa;
        v6->sin6_family = AF_INET6;
        assert_int_equal(inet_pton(AF_INET6, text, &v6->sin6_addr), 1);
    } else {
        struct sockaddr_in *v4 = (struct sockaddr_in *)&sa;
        v4->sin_family = AF_INET;
        assert_int_equal(inet_pton(AF_INET, text, &v4->sin_addr), 1);
    }
    return peer_address_of(&sa);
}

static void addresses_are_told_as_people_write_them(void **state)
{
    (void)state;
    const char *const texts[] = {"10.1.2.3", "127.0.0.1", "fd00::7", "::1"};
    for (size_t i = 0; i < 4; i++) {
        char text[PEER_TEXT_SIZE];
        struct peer_address a = address(texts[i]);
        peer_address_text(&a, text);
        assert_string_equal(text, texts[i]);
        assert_int_equal(peer_address_is_loopback(&a), i % 2);
    }
    /* A v4 client of a v6 listener is the same client. */
    char text[PEER_TEXT_SIZE];
    struct peer_address mapped = address("::ffff:10.1.2.3");
    peer_address_text(&mapped, text);
    assert_string_equal(text, "10.1.2.3");
}

/* One address can't take all; one site of v6 addresses is one; what leaves makes room. */
static void an_address_has_a_limit_and_all_have_one(void **state)
{
    (void)state;
    struct peers *p;
    const char *why;
    struct error err;
    struct peer_address a = address("10.0.0.1"), b = address("10.0.0.2");
    struct peer_address near = address("fd00::1"), same_site = address("fd00::2");
    struct peer_address other_site = address("fd00:0:0:1::1"), home = address("127.0.0.1");
    assert_int_equal(peers_new(&p, 6, 2, &err), 0);
    assert_true(peers_enter(p, &a, &why) && peers_enter(p, &a, &why));
    assert_false(peers_enter(p, &a, &why));
    assert_non_null(strstr(why, "per_address"));
    assert_true(peers_enter(p, &near, &why) && peers_enter(p, &same_site, &why));
    assert_false(peers_enter(p, &near, &why));
    assert_true(peers_enter(p, &other_site, &why));
    assert_true(peers_enter(p, &b, &why));
    assert_false(peers_enter(p, &b, &why));
    assert_non_null(strstr(why, "limits.connections is"));
    peers_leave(p, &near);
    assert_true(peers_enter(p, &same_site, &why));
    peers_leave(p, &a);
    peers_leave(p, &a);
    /* This host's own have no limit of theirs. */
    assert_true(peers_enter(p, &home, &why) && peers_enter(p, &home, &why));
    assert_int_equal(peers_count(p), 6);
    peers_free(p);
}

/* A call that waits in a queue is never taken for one of the connection that came after. */
static void a_number_keeps_its_owner_for_a_while(void **state)
{
    (void)state;
    struct peers *p;
    struct error err;
    char text[PEER_TEXT_SIZE];
    struct peer_address a = address("10.0.0.1"), b = address("10.0.0.2");
    assert_int_equal(peers_new(&p, 0, 0, &err), 0);
    int first = peers_bind(p, dup(0), &a);
    assert_true(first >= 0);
    peers_unbind(p, first);
    close(first);
    int again = dup(0);
    assert_int_equal(again, first); /* the kernel gives the number out at once */
    int second = peers_bind(p, again, &b);
    assert_int_not_equal(second, first);
    assert_true(peers_find(p, first, text));
    assert_string_equal(text, "10.0.0.1");
    assert_true(peers_find(p, second, text));
    assert_string_equal(text, "10.0.0.2");
    assert_false(peers_find(p, 100000, text));
    close(second);
    peers_free(p);
}

/* Plain text stays on this host. */
static void only_loopback_is_spoken_to_in_plain_text(void **state)
{
    (void)state;
    struct rpc_target t;
    struct error err;
    unsetenv("TANDEM_CA_FILE");
    static const struct {
        const char *text, *core, *host;
        bool tls;
    } cases[] = {
        {"unix:/a/b", "unix:/a/b", "", false},
        {"127.0.0.1:7", "ipv4:127.0.0.1:7", "127.0.0.1", false},
        {"localhost:7", "ipv4:127.0.0.1:7", "localhost", false},
        {"[::1]:7", "ipv6:[::1]:7", "::1", false},
        {"tls://localhost:7", "ipv4:127.0.0.1:7", "localhost", true},
        {"10.0.0.1:7", "ipv4:10.0.0.1:7", "10.0.0.1", true},
        {"[fd00:0:0::7]:7", "ipv6:[fd00::7]:7", "fd00::7", true},
        {"example.org:7", "dns:example.org:7", "example.org", true},
        {"128.0.0.1:7", "ipv4:128.0.0.1:7", "128.0.0.1", true},
        {"0.0.0.0:7", "ipv4:0.0.0.0:7", "0.0.0.0", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(rpc_target_parse(&t, cases[i].text, NULL, &err), 0);
        assert_string_equal(t.core, cases[i].core);
        assert_string_equal(t.host, cases[i].host);
        assert_int_equal(t.tls, cases[i].tls);
        assert_int_equal(rpc_target_parse(&t, cases[i].text, "/ca.pem", &err), 0);
        assert_int_equal(t.tls, strncmp(cases[i].text, "unix:", 5) != 0);
    }
}

/* ---- places -------------------------------------------------------------------------------- */

static void a_field_is_found_by_its_line(void **state)
{
    (void)state;
    static const char text[] = "# head\n"
                               "data_dir: /a\n"
                               "listen: [a,\n"
                               "  b]\n"
                               "tls:\n"
                               "  key_file: x\n"
                               "roots:\n"
                               "  - tenant: a\n"
                               "    read:\n"
                               "      - /1\n"
                               "      - /2\n"
                               "  - {tenant: b, read: [/3]}\n";
    static const struct {
        const char *path;
        size_t line;
    } cases[] = {
        {"data_dir", 2},     {"listen", 3},          {"listen.0", 3},        {"listen.1", 4},
        {"tls", 5},          {"tls.key_file", 6},    {"tls.cert_file", 5},   {"roots.0.tenant", 8},
        {"roots.0.read", 9}, {"roots.0.read.1", 11}, {"roots.1.read.0", 12}, {"nothing", 0},
        {"data", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(text_locate(text, sizeof text - 1, cases[i].path), cases[i].line);
    }
}

/* Every field of a message and below is set somewhere in the text; *path: of this message. */
static void assert_all_set(const ProtobufCMessage *message, const char *path)
{
    for (unsigned i = 0; i < message->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &message->descriptor->fields[i];
        char below[128];
        snprintf(below, sizeof below, "%s.%s", path, f->name);
        if (!field_is_set(message, f)) {
            fail_msg("examples/tandemd.yaml does not show %s", below);
        }
        if (f->type == PROTOBUF_C_TYPE_MESSAGE) {
            assert_all_set(field_message(message, f, 0), below);
        }
    }
}

/* The example leaves nothing out, and is read. */
static void the_example_shows_every_field(void **state)
{
    (void)state;
    char *text;
    size_t len;
    struct error err;
    ProtobufCMessage *m;
    const char *path = TANDEM_SOURCE_DIR "/examples/tandemd.yaml";
    assert_int_equal(fs_read_file(path, 1 << 20, &text, &len, &err), 0);
    if (text_parse(path, text, len, &server_config__descriptor, &m, &err)) {
        fail_msg("%s", err.text);
    }
    assert_all_set(m, "server");
    protobuf_c_message_free_unpacked(m, NULL);
    free(text);
}

/* ---- a server ------------------------------------------------------------------------------ */

struct fixture {
    char dir[64];
    char ca[96], cert[96], key[96];
    struct server *server;
    char target[64];
    atomic_bool queued;
};

/* What the server calls, it calls on a thread of its own: there stands ASSERT, not cmocka. */
static int authenticate(void *ctx, const char *bearer, bool unix_socket, const char *peer,
                        const struct method *method, struct caller *caller, struct error *err)
{
    (void)ctx, (void)unix_socket, (void)method, (void)err;
    ASSERT(strcmp(peer, "127.0.0.1") == 0);
    *caller = (struct caller){.user = bearer ? bearer : "nobody", .role = "admin"};
    return 0;
}

static void on_info(void *ctx, struct call *c, const ProtobufCMessage *request)
{
    (void)ctx, (void)request;
    ServerInfo reply = SERVER_INFO__INIT;
    reply.user = (char *)(uintptr_t)call_caller(c)->user;
    reply.data_dir = (char *)(uintptr_t)call_caller(c)->peer;
    call_reply(c, &reply.base);
}

static void on_echo(void *ctx, struct call *c, const ProtobufCMessage *request)
{
    (void)ctx;
    Tenant reply = TENANT__INIT;
    reply.name = ((const CreateTenantRequest *)request)->name;
    call_reply(c, &reply.base);
}

enum { NUM_QUEUED = 100, QUEUED_BYTES = 65536 };

/* More than all buffers on the way hold: most of it waits. */
static void on_watch(void *ctx, struct call *c, const ProtobufCMessage *request)
{
    struct fixture *f = ctx;
    (void)request;
    char *text = malloc(QUEUED_BYTES + 1);
    memset(text, 'x', QUEUED_BYTES);
    text[QUEUED_BYTES] = 0;
    for (int i = 0; i < NUM_QUEUED; i++) {
        Tenant m = TENANT__INIT;
        m.name = text;
        m.has_num_jobs = 1;
        m.num_jobs = i;
        ASSERT(call_send(c, &m.base));
    }
    call_finish(c);
    free(text);
    f->queued = true;
}

static const struct method methods[] = {
    {.path = "/tandem.v1.Admin/CreateTenant",
     .kind = METHOD_UNARY,
     .access = METHOD_VIEWER,
     .request = &create_tenant_request__descriptor,
     .on_message = on_echo},
    {.path = "/tandem.v1.Jobs/Watch",
     .kind = METHOD_SERVER_STREAM,
     .access = METHOD_VIEWER,
     .request = &watch_request__descriptor,
     .on_message = on_watch},
    {.path = "/tandem.v1.Admin/GetServerInfo",
     .kind = METHOD_UNARY,
     .access = METHOD_VIEWER,
     .request = &server_info_request__descriptor,
     .on_message = on_info},
    {.path = NULL},
};

static void make_certs(struct fixture *f)
{
    static const char *const hosts[] = {"localhost", "127.0.0.1"};
    int64_t now = clock_wall_us() / 1000000;
    char ca_key[96];
    struct cert ca, c;
    struct error err;
    snprintf(f->ca, sizeof f->ca, "%s/ca.pem", f->dir);
    snprintf(ca_key, sizeof ca_key, "%s/ca.key", f->dir);
    snprintf(f->cert, sizeof f->cert, "%s/s.pem", f->dir);
    snprintf(f->key, sizeof f->key, "%s/s.key", f->dir);
    struct cert_wish wish = {
        .kind = CERT_CA, .name = "ca", .from_s = now - 60, .until_s = now + 86400};
    assert_int_equal(cert_make(&ca, &wish, NULL, &err), 0);
    assert_int_equal(cert_write(&ca, f->ca, ca_key, &err), 0);
    wish.kind = CERT_SERVER;
    wish.hosts = hosts;
    wish.num_hosts = 2;
    assert_int_equal(cert_make(&c, &wish, &ca, &err), 0);
    assert_int_equal(cert_write(&c, f->cert, f->key, &err), 0);
    cert_free(&c);
    cert_free(&ca);
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    snprintf(f->dir, sizeof f->dir, "/tmp/tls_test.XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    make_certs(f);
    const char *listen[] = {"127.0.0.1:0", NULL};
    const struct method *const tables[] = {methods, NULL};
    const struct tls_files files = {.cert_file = f->cert, .key_file = f->key};
    struct server_options o = {
        .listen = listen, .tables = tables, .ctx = f, .authenticate = authenticate, .tls = &files};
    struct error err;
    if (server_new(&f->server, &o, &err) || server_start(f->server, &err)) {
        fail_msg("%s", err.text);
    }
    snprintf(f->target, sizeof f->target, "localhost:%d", server_port(f->server, 0));
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    server_stop(f->server, 1000);
    server_free(f->server);
    fs_remove_tree(f->dir, NULL);
    free(f);
    return 0;
}

static struct rpc_channel *dial(struct fixture *f)
{
    struct rpc_channel *c;
    struct error err;
    struct rpc_channel_options o = {
        .target = f->target, .token = "ann", .wait_ready = true, .ca_file = f->ca};
    if (rpc_channel_open(&c, &o, &err)) {
        fail_msg("%s", err.text);
    }
    return c;
}

static ServerInfo *info(struct rpc_channel *c)
{
    ServerInfoRequest q = SERVER_INFO_REQUEST__INIT;
    ProtobufCMessage *reply;
    struct error err;
    if (rpc_call(c, "/tandem.v1.Admin/GetServerInfo", &q.base, &server_info__descriptor, &reply,
                 WAIT_MS, &err)) {
        fail_msg("%s", err.text);
    }
    return (ServerInfo *)reply;
}

/* Rate limits and audit rows go by the address. */
static void a_call_over_tls_comes_with_its_address(void **state)
{
    struct fixture *f = *state;
    for (int i = 0; i < 5; i++) {
        struct rpc_channel *c = dial(f);
        ServerInfo *s = info(c);
        assert_string_equal(s->user, "ann");
        assert_string_equal(s->data_dir, "127.0.0.1");
        server_info__free_unpacked(s, NULL);
        rpc_channel_close(c);
    }
}

/* Records of TLS, frames of HTTP/2 and messages begin and end where they like. */
static void messages_of_every_size_come_through_and_back(void **state)
{
    struct fixture *f = *state;
    static const size_t sizes[] = {0, 1, 4000, 16383, 16384, 16385, 100000, 1000000, 3000000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char *name = malloc(sizes[i] + 1);
        for (size_t k = 0; k < sizes[i]; k++) {
            name[k] = (char)('a' + k % 23);
        }
        name[sizes[i]] = 0;
        struct rpc_channel *c = dial(f);
        CreateTenantRequest q = CREATE_TENANT_REQUEST__INIT;
        q.name = name;
        ProtobufCMessage *reply;
        struct error err;
        if (rpc_call(c, methods[0].path, &q.base, &tenant__descriptor, &reply, WAIT_MS, &err)) {
            fail_msg("%zu bytes: %s", sizes[i], err.text);
        }
        assert_string_equal(((Tenant *)reply)->name, name);
        protobuf_c_message_free_unpacked(reply, NULL);
        rpc_channel_close(c);
        free(name);
    }
}

/* Who reads late gets all of it, in order. */
static void a_late_reader_loses_nothing(void **state)
{
    struct fixture *f = *state;
    struct rpc_channel *c = dial(f);
    struct rpc_stream *s;
    struct error err;
    WatchRequest q = WATCH_REQUEST__INIT;
    assert_int_equal(rpc_stream_open(c, "/tandem.v1.Jobs/Watch", &q.base, &s, &err), 0);
    int64_t until_ms = clock_mono_ms() + WAIT_MS;
    while (!f->queued && clock_mono_ms() < until_ms) {
        clock_sleep_ms(5);
    }
    assert_true(f->queued);
    ProtobufCMessage *m;
    for (int i = 0; i < NUM_QUEUED; i++) {
        assert_int_equal(rpc_stream_recv(s, &tenant__descriptor, &m, WAIT_MS, &err), 1);
        assert_int_equal(((Tenant *)m)->num_jobs, i);
        assert_int_equal(strlen(((Tenant *)m)->name), QUEUED_BYTES);
        protobuf_c_message_free_unpacked(m, NULL);
    }
    assert_int_equal(rpc_stream_recv(s, &tenant__descriptor, &m, WAIT_MS, &err), 0);
    rpc_stream_close(s);
    rpc_channel_close(c);
}

/* A child that was forked and hasn't become another program yet has every socket of the server's.
 * What the server closes meanwhile is gone all the same: no event of it may reach what took its
 * place. */
static void what_a_child_still_holds_is_closed_all_the_same(void **state)
{
    enum { ROUNDS = 40 };
    struct fixture *f = *state;
    pid_t children[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        struct rpc_channel *c = dial(f);
        server_info__free_unpacked(info(c), NULL);
        children[i] = fork();
        if (children[i] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            for (;;) {
                pause();
            }
        }
        assert_true(children[i] > 0);
        rpc_channel_close(c);
    }
    for (int i = 0; i < ROUNDS; i++) {
        kill(children[i], SIGKILL);
        waitpid(children[i], NULL, 0);
    }
}

/* The key is nobody else's to read, and belongs to the certificate. */
static void files_that_do_not_fit_are_refused(void **state)
{
    struct fixture *f = *state;
    struct tls *t;
    struct error err;
    char ca_key[96];
    snprintf(ca_key, sizeof ca_key, "%s/ca.key", f->dir);
    const struct tls_files good = {f->cert, f->key, NULL, false};
    struct tls_files bad = {f->cert, ca_key, NULL, false};
    assert_int_equal(tls_new(&t, &bad, &err), -1);
    assert_non_null(strstr(err.text, "not the key of"));
    bad = (struct tls_files){f->key, f->key, NULL, false};
    assert_int_equal(tls_new(&t, &bad, &err), -1);
    assert_non_null(strstr(err.text, "no certificate"));
    bad = (struct tls_files){f->cert, f->cert, NULL, false};
    assert_int_equal(tls_new(&t, &bad, &err), -1);
    assert_int_equal(chmod(f->key, 0644), 0);
    assert_int_equal(tls_new(&t, &good, &err), -1);
    assert_non_null(strstr(err.text, "chmod 600"));
    assert_int_equal(chmod(f->key, 0600), 0);
    assert_int_equal(tls_new(&t, &good, &err), 0);
    assert_false(tls_is_stale(t));
    make_certs(f);
    assert_true(tls_is_stale(t));
    assert_int_equal(tls_reload(t, &err), 0);
    assert_false(tls_is_stale(t));
    tls_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses_are_told_as_people_write_them),
        cmocka_unit_test(an_address_has_a_limit_and_all_have_one),
        cmocka_unit_test(a_number_keeps_its_owner_for_a_while),
        cmocka_unit_test(only_loopback_is_spoken_to_in_plain_text),
        cmocka_unit_test(a_field_is_found_by_its_line),
        cmocka_unit_test(the_example_shows_every_field),
        cmocka_unit_test_setup_teardown(a_call_over_tls_comes_with_its_address, setup, teardown),
        cmocka_unit_test_setup_teardown(messages_of_every_size_come_through_and_back, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_late_reader_loses_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(what_a_child_still_holds_is_closed_all_the_same, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(files_that_do_not_fit_are_refused, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
