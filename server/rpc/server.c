#include "server/rpc/server.h"

#include <grpc/grpc.h>
#include <grpc/grpc_posix.h>
#include <grpc/grpc_security.h>
#include <grpc/support/log.h>
#include <grpc/support/time.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "server/rpc/descriptors.h"
#include "server/rpc/state.h"

enum {
    MAX_METADATA_BYTES = 8192,
    /* What one read takes from a connection: each of its calls costs a hundred times its bytes
     * before anybody can refuse it. */
    MAX_READ_BYTES = 65536,
    MAX_READING_BYTES = 512 << 20,
    SWEEP_MS = 1000,
    FIRST_MESSAGE_MS = 30000,
    UNREAD_END_MS = 600000,
    IDLE_CONNECTION_MS = 1800000,
    STUCK_STREAM_MS = 250, /* what a peer that doesn't read may delay a stop */
    WARN_EVERY_MS = 60000,
    DAY_MS = 86400000,
    EXPIRY_NEAR_S = 14 * 86400,
};

const struct descriptors *server_descriptors(const struct server *s)
{
    return s->descriptors;
}

struct health *server_health(struct server *s)
{
    return s->health;
}

/* ---- threads ------------------------------------------------------------------------------- */

static void *io_main(void *arg)
{
    struct io_thread *t = arg;
    gpr_timespec period = gpr_time_from_millis(SWEEP_MS, GPR_TIMESPAN);
    gpr_timespec due = gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), period);
    for (;;) {
        grpc_event e = grpc_completion_queue_next(t->cq, due, NULL);
        if (e.type == GRPC_QUEUE_SHUTDOWN) {
            return NULL;
        }
        gpr_timespec now = gpr_now(GPR_CLOCK_MONOTONIC);
        if (gpr_time_cmp(now, due) >= 0) {
            if (t == &t->server->threads[t->server->num_threads - 1]) {
                server_sweep_calls(t->server);
            }
            due = gpr_time_add(now, period);
        }
        if (e.type == GRPC_OP_COMPLETE) {
            struct wire_tag *tag = e.tag;
            TAG_OUT(tag);
            tag->fn(tag->call, e.success != 0);
        }
    }
}

/* ---- set-up -------------------------------------------------------------------------------- */

static int by_path(const void *a, const void *b)
{
    return strcmp(((const struct method_entry *)a)->method->path,
                  ((const struct method_entry *)b)->method->path);
}

static int add_table(struct server *s, const struct method *table, void *ctx, struct error *err)
{
    for (; table->path; table++) {
        if (table->access == METHOD_NOBODY) {
            return error_set(err, ERR_INTERNAL, "%s: no word on who may call it", table->path);
        }
        if (s->num_methods == SERVER_MAX_METHODS) {
            return error_set(err, ERR_INTERNAL, "more than %d methods", SERVER_MAX_METHODS);
        }
        s->methods[s->num_methods++] = (struct method_entry){table, ctx};
    }
    return 0;
}

static int add_tables(struct server *s, struct error *err)
{
    for (const struct method *const *t = s->options.tables; t && *t; t++) {
        if (add_table(s, *t, s->options.ctx, err)) {
            return -1;
        }
    }
    if (add_table(s, health_methods, s, err) || add_table(s, reflection_methods, s, err)) {
        return -1;
    }
    qsort(s->methods, s->num_methods, sizeof *s->methods, by_path);
    for (size_t i = 1; i < s->num_methods; i++) {
        ASSERT(strcmp(s->methods[i - 1].method->path, s->methods[i].method->path) != 0);
    }
    return 0;
}

static grpc_arg int_arg(const char *key, int value)
{
    grpc_arg a = {.type = GRPC_ARG_INTEGER, .key = (char *)(uintptr_t)key};
    a.value.integer = value;
    return a;
}

static grpc_server *create_core(const struct server_options *options)
{
    grpc_arg args[] = {
        int_arg(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, (int)options->max_request_bytes),
        int_arg(GRPC_ARG_MAX_SEND_MESSAGE_LENGTH, (int)CALL_MESSAGE_MAX_BYTES),
        /* Only the identity: a small compressed message can't grow past the limit above. */
        int_arg(GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET, 1),
        int_arg(GRPC_ARG_MAX_CONCURRENT_STREAMS, SERVER_MAX_STREAMS),
        int_arg(GRPC_ARG_MAX_METADATA_SIZE, MAX_METADATA_BYTES),
        int_arg(GRPC_ARG_TCP_MAX_READ_CHUNK_SIZE, MAX_READ_BYTES),
        int_arg(GRPC_ARG_MAX_CONNECTION_IDLE_MS, (int)options->idle_connection_ms),
        int_arg(GRPC_ARG_KEEPALIVE_TIME_MS, 30000),
        int_arg(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10000),
        int_arg(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1),
        int_arg(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 10000),
        {.type = GRPC_ARG_POINTER, .key = (char *)(uintptr_t)GRPC_ARG_RESOURCE_QUOTA},
    };
    /* Core reads a message to its end before it compares its size, however large it says it is. At
     * this bound it ends calls, anybody's, rather than take all memory. */
    grpc_resource_quota *quota = grpc_resource_quota_create("tandemd");
    grpc_resource_quota_resize(quota, options->max_reading_bytes);
    grpc_arg *last = &args[sizeof args / sizeof *args - 1];
    last->value.pointer.p = quota;
    last->value.pointer.vtable = grpc_resource_quota_arg_vtable();
    grpc_channel_args list = {sizeof args / sizeof *args, args};
    grpc_server *core = grpc_server_create(&list, NULL);
    grpc_resource_quota_unref(quota);
    return core;
}

static int add_listener(struct server *s, const char *text, struct error *err)
{
    if (s->num_listeners == SERVER_MAX_LISTENERS) {
        return error_set(err, ERR_INVALID_ARGUMENT, "more than %d addresses", SERVER_MAX_LISTENERS);
    }
    if (listener_open(&s->listeners[s->num_listeners], text, s->tls, err)) {
        return -1;
    }
    s->num_listeners++;
    return 0;
}

static void give_to_core(struct server *s, int connection, bool trusted)
{
    grpc_server_credentials *creds = grpc_insecure_server_credentials_create();
    connections_note(s->connections, connection);
    grpc_server_add_channel_from_fd(s->cores[trusted], connection, creds);
    grpc_server_credentials_release(creds);
}

/* Hands were shaken, on the bridge's thread. */
static void on_secured(void *ctx, int connection)
{
    give_to_core(ctx, connection, false);
}

static void warn_limit(struct server *s, const struct peer_address *from, const char *why)
{
    int64_t now = clock_mono_ms();
    if (!s->warned_limit_ms || now - s->warned_limit_ms > WARN_EVERY_MS) {
        char text[PEER_TEXT_SIZE];
        peer_address_text(from, text);
        s->warned_limit_ms = now;
        log_warn("connections are turned away (this one from %s): %s", text, why);
    }
}

/* A new connection, on the acceptor's thread. */
static void on_connection(void *ctx, int connection, int listener_idx,
                          const struct sockaddr_storage *from)
{
    struct server *s = ctx;
    const struct listener *l = &s->listeners[listener_idx];
    if (l->is_unix || !s->bridge) {
        give_to_core(s, connection,
                     l->is_unix && !l->for_any && listener_idx < s->options.num_trusted);
        return;
    }
    struct peer_address address = peer_address_of(from);
    const char *why;
    if (peers_enter(s->peers, &address, &why)) {
        bridge_add(s->bridge, connection, &address);
    } else {
        warn_limit(s, &address, why);
        close(connection);
    }
}

/* ---- how it looks from outside ------------------------------------------------------------- */

static void on_deaf(void *ctx, int i)
{
    struct server *s = ctx;
    acceptor_reopen(s->acceptor, i);
}

static void tell_health(struct server *s)
{
    pthread_mutex_lock(&s->lock);
    health_set(s->health, s->serving && s->doors_open);
    pthread_mutex_unlock(&s->lock);
}

static void on_checked(void *ctx, bool ok)
{
    struct server *s = ctx;
    pthread_mutex_lock(&s->lock);
    s->doors_open = ok;
    pthread_mutex_unlock(&s->lock);
    tell_health(s);
}

static void warn_expiry(struct server *s)
{
    int64_t left_s = tls_expires_s(s->tls) - clock_wall_us() / 1000000, now = clock_mono_ms();
    if (left_s < EXPIRY_NEAR_S && (!s->warned_expiry_ms || now - s->warned_expiry_ms > DAY_MS)) {
        s->warned_expiry_ms = now;
        log_warn("the server's certificate %s; tandem admin init --renew makes a new one",
                 left_s < 0 ? "has expired" : "expires within two weeks");
    }
}

static void on_tick(void *ctx)
{
    struct server *s = ctx;
    struct error err;
    if (!s->tls) {
        return;
    }
    if (tls_is_stale(s->tls) && server_reload_tls(s, &err)) {
        log_error("the new certificate is not used: %s", err.text);
    }
    warn_expiry(s);
}

int server_reload_tls(struct server *s, struct error *err)
{
    if (!s->tls) {
        return 0;
    }
    if (tls_reload(s->tls, err)) {
        return -1;
    }
    log_info("the certificate was read again");
    return 0;
}

/* ---- the parts ----------------------------------------------------------------------------- */

/* The last queue does no socket's work. A thread that does may read from peers that never stop
 * sending for as long as they do; calls go on being answered by the one that can't. */
static void create_queues(struct server *s)
{
    const grpc_completion_queue_attributes deskbound = {GRPC_CQ_CURRENT_VERSION, GRPC_CQ_NEXT,
                                                        GRPC_CQ_NON_POLLING, NULL};
    int n = (s->options.num_threads > 0 ? s->options.num_threads : 2) + 1;
    s->num_threads = n < SERVER_MAX_THREADS ? n : SERVER_MAX_THREADS;
    for (int i = 0; i < s->num_threads; i++) {
        s->threads[i].cq =
            i < s->num_threads - 1
                ? grpc_completion_queue_create_for_next(NULL)
                : grpc_completion_queue_create(grpc_completion_queue_factory_lookup(&deskbound),
                                               &deskbound, NULL);
        s->threads[i].server = s;
        grpc_server_register_completion_queue(s->cores[false], s->threads[i].cq, NULL);
        grpc_server_register_completion_queue(s->cores[true], s->threads[i].cq, NULL);
    }
}

static int build(struct server *s, struct error *err)
{
    s->health = health_new();
    s->crowd = crowd_new();
    s->connections = connections_new();
    if (!s->health || !s->crowd || !s->connections) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "out of memory");
    }
    if (descriptors_new(&s->descriptors, err) || add_tables(s, err)) {
        return -1;
    }
    if (s->options.tls && (tls_new(&s->tls, s->options.tls, err) ||
                           peers_new(&s->peers, s->options.max_connections,
                                     s->options.max_connections_per_address, err))) {
        return -1;
    }
    s->cores[false] = create_core(&s->options);
    s->cores[true] = create_core(&s->options);
    create_queues(s);
    for (const char *const *l = s->options.listen; *l; l++) {
        if (add_listener(s, *l, err)) {
            return -1;
        }
    }
    return 0;
}

/* Core reports what we report in words already: only for who looks closely. */
static void pass_log(gpr_log_func_args *args)
{
    log_debug("grpc: %s", args->message);
}

int server_new(struct server **out, const struct server_options *options, struct error *err)
{
    struct server *s = calloc(1, sizeof *s);
    if (!s) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "out of memory");
    }
    s->options = *options;
    if (!s->options.max_reading_bytes) {
        s->options.max_reading_bytes = MAX_READING_BYTES;
    }
    if (!s->options.max_request_bytes) {
        s->options.max_request_bytes = CALL_MESSAGE_MAX_BYTES;
    }
    if (!s->options.first_message_ms) {
        s->options.first_message_ms = FIRST_MESSAGE_MS;
    }
    if (!s->options.unread_end_ms) {
        s->options.unread_end_ms = UNREAD_END_MS;
    }
    if (!s->options.idle_connection_ms) {
        s->options.idle_connection_ms = IDLE_CONNECTION_MS;
    }
    pthread_mutex_init(&s->lock, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&s->changed, &attr);
    pthread_condattr_destroy(&attr);

    /* Core starts threads of its own: they must not take the program's signals. */
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &old);
    gpr_set_log_function(pass_log);
    grpc_init();
    int r = build(s, err);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    s->client_cert = s->options.tls && s->options.tls->require_client_cert;
    s->options.listen = NULL;
    s->options.tables = NULL;
    s->options.tls = NULL;
    if (r) {
        server_free(s);
        return -1;
    }
    *out = s;
    return 0;
}

int server_port(const struct server *s, int i)
{
    return i >= 0 && i < s->num_listeners ? s->listeners[i].port : 0;
}

/* The threads that bring connections, and the one that looks at how it goes. */
static int open_doors(struct server *s, struct error *err)
{
    const struct bridge_options bridge = {.tls = s->tls,
                                          .peers = s->peers,
                                          .on_open = on_secured,
                                          .ctx = s,
                                          .handshake_ms = s->options.handshake_ms};
    const struct selfcheck_options check = {.listeners = s->listeners,
                                            .num_listeners = s->num_listeners,
                                            .tls = s->tls,
                                            .client_cert = s->client_cert,
                                            .reopen = on_deaf,
                                            .healthy = on_checked,
                                            .tick = on_tick,
                                            .ctx = s};
    s->doors_open = true;
    if (s->tls && bridge_new(&s->bridge, &bridge, err)) {
        return -1;
    }
    /* What is copied of the listeners is copied before the acceptor may open them anew. */
    return acceptor_new(&s->acceptor, s->listeners, s->num_listeners, on_connection, s, err) ||
                   selfcheck_new(&s->selfcheck, &check, err)
               ? -1
               : 0;
}

int server_start(struct server *s, struct error *err)
{
    ASSERT(!s->started);
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &old);
    s->started = true;
    grpc_server_start(s->cores[false]);
    grpc_server_start(s->cores[true]);
    int e = 0;
    for (int i = 0; i < s->num_threads && e == 0; i++) {
        struct io_thread *t = &s->threads[i];
        e = pthread_create(&t->thread, NULL, io_main, t);
        t->running = e == 0;
        for (int k = 0; k < SERVER_POSTED_PER_THREAD && t->running; k++) {
            server_post_call(s, t->cq, false);
            server_post_call(s, t->cq, true);
        }
    }
    int r = e ? error_errno(err, e, "start an io thread") : open_doors(s, err);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (r) {
        return -1;
    }
    server_set_serving(s, true);
    return 0;
}

void server_set_serving(struct server *s, bool serving)
{
    pthread_mutex_lock(&s->lock);
    s->serving = serving;
    pthread_mutex_unlock(&s->lock);
    tell_health(s);
}

/* ---- rights -------------------------------------------------------------------------------- */

int server_recheck(struct server *s)
{
    int num = 0;
    pthread_mutex_lock(&s->lock);
    s->num_rechecks++;
    for (struct call *c = s->options.still_allowed ? s->live : NULL; c; c = c->next) {
        struct error err = {0};
        if (!c->admitted || c->method->kind == METHOD_UNARY ||
            s->options.still_allowed(s->options.ctx, &c->caller, c->method, &err) == 0) {
            continue;
        }
        num++;
        if (c->refused) {
            wire_call_cut(c, err.code, err.text);
        } else {
            wire_call_abort(c, err.code, err.text);
        }
        c->refused = true;
    }
    pthread_mutex_unlock(&s->lock);
    return num;
}

/* ---- the end ------------------------------------------------------------------------------- */

/* Lock held. Waits until no call is live, at most until then (monotonic ms). */
static void wait_none_live(struct server *s, int64_t until_ms)
{
    struct timespec ts = {.tv_sec = until_ms / 1000, .tv_nsec = until_ms % 1000 * 1000000};
    while (s->num_live > 0 && pthread_cond_timedwait(&s->changed, &s->lock, &ts) == 0) {
    }
}

/* Lock held. Ends what would stay open for ever; unary calls may still be answered. */
static void end_streams(struct server *s, void (*end)(struct call *, enum error_code, const char *))
{
    for (struct call *c = s->live; c; c = c->next) {
        if (c->method && c->method->kind != METHOD_UNARY) {
            end(c, ERR_UNAVAILABLE, SERVER_SHUTDOWN_TEXT);
        }
    }
}

/* Core waits for a write that is under way, and so for ever for a peer that doesn't read. */
static void wait_both_shut_down(struct server *s, grpc_completion_queue *done)
{
    for (int num = 0; num < 2;) {
        gpr_timespec soon = gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                                         gpr_time_from_millis(STUCK_STREAM_MS, GPR_TIMESPAN));
        if (grpc_completion_queue_next(done, soon, NULL).type == GRPC_OP_COMPLETE) {
            num++;
        } else {
            connections_hang_up(s->connections);
        }
    }
}

static void close_listeners(struct server *s)
{
    for (int i = 0; i < s->num_listeners; i++) {
        listener_close(&s->listeners[i]);
    }
    s->num_listeners = 0;
}

void server_stop(struct server *s, int64_t grace_ms)
{
    if (s->stopped || !s->cores[true]) {
        return;
    }
    s->stopped = true;
    selfcheck_free(s->selfcheck);
    s->selfcheck = NULL;
    acceptor_free(s->acceptor);
    s->acceptor = NULL;
    if (s->bridge) {
        bridge_stop_opening(s->bridge);
    }
    close_listeners(s);
    server_set_serving(s, false);
    grpc_completion_queue *done = grpc_completion_queue_create_for_next(NULL);
    pthread_mutex_lock(&s->lock);
    s->stopping = true;
    pthread_mutex_unlock(&s->lock);
    grpc_server_shutdown_and_notify(s->cores[false], done, NULL);
    grpc_server_shutdown_and_notify(s->cores[true], done, NULL);

    int64_t now = clock_mono_ms();
    pthread_mutex_lock(&s->lock);
    end_streams(s, wire_call_abort);
    wait_none_live(s, now + (grace_ms < STUCK_STREAM_MS ? grace_ms : STUCK_STREAM_MS));
    end_streams(s, wire_call_cut);
    wait_none_live(s, now + grace_ms);
    pthread_mutex_unlock(&s->lock);
    /* Also closes connections that have no call: their clients may sit on them for ever. */
    grpc_server_cancel_all_calls(s->cores[false]);
    grpc_server_cancel_all_calls(s->cores[true]);
    wait_both_shut_down(s, done);
    pthread_mutex_lock(&s->lock);
    while (s->num_live > 0) {
        pthread_cond_wait(&s->changed, &s->lock);
    }
    s->drained = true;
    pthread_mutex_unlock(&s->lock);

    grpc_completion_queue_shutdown(done);
    grpc_completion_queue_next(done, gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
    grpc_completion_queue_destroy(done);
    bridge_free(s->bridge);
    s->bridge = NULL;
}

static void free_queue(struct io_thread *t)
{
    grpc_completion_queue_shutdown(t->cq);
    if (t->running) {
        pthread_join(t->thread, NULL);
    } else {
        io_main(t);
    }
    grpc_completion_queue_destroy(t->cq);
}

void server_free(struct server *s)
{
    if (!s) {
        return;
    }
    server_stop(s, 0);
    close_listeners(s);
    for (int i = 0; i < 2; i++) {
        if (s->cores[i]) {
            grpc_server_destroy(s->cores[i]);
        }
    }
    for (int i = 0; i < s->num_threads; i++) {
        free_queue(&s->threads[i]);
    }
    peers_free(s->peers);
    tls_free(s->tls);
    crowd_free(s->crowd);
    connections_free(s->connections);
    health_free(s->health);
    descriptors_free(s->descriptors);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    free(s);
    grpc_shutdown();
}
