/* What TLS costs: tls_bench [SECONDS]
 *
 * One server in this process, as tandemd has it, and clients over loopback: unary calls with one
 * and with sixteen at a time, each over a connection of its own, plain and through TLS; then
 * connections that are made, used once and closed. Each for SECONDS (2). */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/fs.h"
#include "clients/cli/cert.h"
#include "proto/names.h"
#include "proto/rpc_client.h"
#include "server/rpc/server.h"

#define DEADLINE_MS 60000
enum { MANY = 16, MAX_SAMPLES = 1 << 18 };

static _Noreturn void die(const struct error *err)
{
    fprintf(stderr, "tls_bench: %s\n", err->text);
    exit(1);
}

static int authenticate(void *ctx, const char *bearer, bool unix_socket, const char *peer,
                        const struct method *method, struct caller *caller, struct error *err)
{
    (void)ctx, (void)bearer, (void)unix_socket, (void)peer, (void)method, (void)err;
    *caller = (struct caller){.user = "ann", .role = "admin"};
    return 0;
}

static void on_info(void *ctx, struct call *c, const ProtobufCMessage *request)
{
    (void)ctx, (void)request;
    ServerInfo reply = SERVER_INFO__INIT;
    reply.user = (char *)(uintptr_t) "ann";
    call_reply(c, &reply.base);
}

static const struct method methods[] = {
    {.path = "/tandem.v1.Admin/GetServerInfo",
     .kind = METHOD_UNARY,
     .access = METHOD_VIEWER,
     .request = &server_info_request__descriptor,
     .on_message = on_info},
    {.path = NULL},
};

struct bench {
    char dir[64], ca[96], cert[96], key[96];
    struct server *server;
    char target[64];
    bool tls;
    int64_t until_ns;
    atomic_llong calls;
    double *samples_us; /* of the first thread */
    int num_samples;
    bool anew; /* a connection for each call */
};

static void make_certs(struct bench *b)
{
    static const char *const hosts[] = {"localhost"};
    int64_t now = clock_wall_us() / 1000000;
    struct cert ca, c;
    struct error err;
    struct cert_wish wish = {
        .kind = CERT_CA, .name = "ca", .from_s = now - 60, .until_s = now + 86400};
    snprintf(b->dir, sizeof b->dir, "/tmp/tls_bench.XXXXXX");
    if (!mkdtemp(b->dir)) {
        die(&(struct error){.text = "mkdtemp"});
    }
    snprintf(b->ca, sizeof b->ca, "%s/ca.pem", b->dir);
    snprintf(b->cert, sizeof b->cert, "%s/s.pem", b->dir);
    snprintf(b->key, sizeof b->key, "%s/s.key", b->dir);
    if (cert_make(&ca, &wish, NULL, &err) || cert_write(&ca, b->ca, b->key, &err)) {
        die(&err);
    }
    wish.kind = CERT_SERVER;
    wish.hosts = hosts;
    wish.num_hosts = 1;
    if (cert_make(&c, &wish, &ca, &err) || cert_write(&c, b->cert, b->key, &err)) {
        die(&err);
    }
    cert_free(&c);
    cert_free(&ca);
}

static void start_server(struct bench *b)
{
    const char *listen[] = {"127.0.0.1:0", NULL};
    const struct method *const tables[] = {methods, NULL};
    const struct tls_files files = {.cert_file = b->cert, .key_file = b->key};
    struct server_options o = {.listen = listen,
                               .tables = tables,
                               .ctx = b,
                               .authenticate = authenticate,
                               .tls = b->tls ? &files : NULL};
    struct error err;
    if (server_new(&b->server, &o, &err) || server_start(b->server, &err)) {
        die(&err);
    }
    snprintf(b->target, sizeof b->target, "localhost:%d", server_port(b->server, 0));
}

static struct rpc_channel *dial(struct bench *b)
{
    struct rpc_channel *c;
    struct error err;
    struct rpc_channel_options o = {
        .target = b->target, .token = "t", .ca_file = b->tls ? b->ca : NULL};
    if (rpc_channel_open(&c, &o, &err)) {
        die(&err);
    }
    return c;
}

static void call_once(struct rpc_channel *c)
{
    ServerInfoRequest q = SERVER_INFO_REQUEST__INIT;
    ProtobufCMessage *reply;
    struct error err;
    if (rpc_call(c, methods[0].path, &q.base, &server_info__descriptor, &reply, DEADLINE_MS,
                 &err)) {
        die(&err);
    }
    protobuf_c_message_free_unpacked(reply, NULL);
}

static void *client_main(void *arg)
{
    struct bench *b = arg;
    struct rpc_channel *c = b->anew ? NULL : dial(b);
    while (clock_mono_ns() < b->until_ns) {
        int64_t start = clock_mono_ns();
        if (b->anew) {
            c = dial(b);
        }
        call_once(c);
        if (b->anew) {
            rpc_channel_close(c);
        }
        if (b->samples_us && b->num_samples < MAX_SAMPLES) {
            b->samples_us[b->num_samples++] = (double)(clock_mono_ns() - start) / 1e3;
        }
        atomic_fetch_add(&b->calls, 1);
    }
    if (!b->anew) {
        rpc_channel_close(c);
    }
    return NULL;
}

static int by_size(const void *a, const void *b)
{
    double d = *(const double *)a - *(const double *)b;
    return (d > 0) - (d < 0);
}

static double cpu_us(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e6 +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static void measure(struct bench *b, const char *what, int num_threads, double seconds)
{
    pthread_t threads[MANY];
    double *samples = num_threads == 1 ? malloc(MAX_SAMPLES * sizeof *samples) : NULL;
    b->samples_us = samples;
    b->num_samples = 0;
    atomic_store(&b->calls, 0);
    double cpu = cpu_us();
    b->until_ns = clock_mono_ns() + (int64_t)(seconds * 1e9);
    for (int i = 0; i < num_threads; i++) {
        pthread_create(&threads[i], NULL, client_main, b);
    }
    for (int i = 0; i < num_threads; i++) {
        pthread_join(threads[i], NULL);
    }
    double calls = (double)atomic_load(&b->calls);
    printf("%-6s %-28s %9.0f/s  %6.1f us of CPU each, both sides", b->tls ? "TLS" : "plain", what,
           calls / seconds, (cpu_us() - cpu) / calls);
    if (samples) {
        qsort(samples, (size_t)b->num_samples, sizeof *samples, by_size);
        printf(", median %.0f us", samples[b->num_samples / 2]);
    }
    putchar('\n');
    free(samples);
}

int main(int argc, char **argv)
{
    double seconds = argc > 1 ? strtod(argv[1], NULL) : 2;
    static struct bench b;
    make_certs(&b);
    for (int tls = 0; tls < 2; tls++) {
        b.tls = tls;
        start_server(&b);
        b.anew = false;
        measure(&b, "calls, one at a time", 1, seconds);
        measure(&b, "calls, sixteen at a time", MANY, seconds);
        b.anew = true;
        measure(&b, "connections, one at a time", 1, seconds);
        server_stop(b.server, 1000);
        server_free(b.server);
    }
    fs_remove_tree(b.dir, NULL);
    return 0;
}
