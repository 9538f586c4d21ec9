#include "server/rpc/server.h"

#include <errno.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpc/support/alloc.h>
#include <grpc/support/log.h>
#include <grpc/support/time.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "proto/text.h"
#include "server/rpc/descriptors.h"
#include "server/rpc/listen.h"
#include "server/rpc/wire.h"

enum {
    MAX_LISTENERS = 8,
    MAX_THREADS = 16,
    MAX_METHODS = 256,
    POSTED_PER_THREAD = 32, /* calls that core may hand over before we ask for more */
    MAX_LIVE_CALLS = 16384, /* over all connections */
    MAX_STREAMS = 1024,     /* calls on one connection */
    MAX_METADATA_BYTES = 8192,
    MAX_BEARER_BYTES = 512,
    STUCK_STREAM_MS = 250, /* what a peer that doesn't read may delay a stop */
    UNPACKED_FACTOR = 8,   /* memory of a decoded request against its size on the wire */
};
static const char shutdown_text[] = "server is shutting down";

struct method_entry {
    const struct method *method;
    void *ctx;
};

struct io_thread {
    pthread_t thread;
    grpc_completion_queue *cq; /* owned */
    bool running;
};

struct server {
    struct server_options options; /* the lists are borrowed only by server_new */
    grpc_server *core;             /* owned */
    struct io_thread threads[MAX_THREADS];
    int num_threads;
    int ports[MAX_LISTENERS];
    int num_listeners;
    bool has_unix;
    struct method_entry methods[MAX_METHODS]; /* sorted by path */
    size_t num_methods;
    struct descriptors *descriptors; /* owned */
    struct health *health;           /* owned */
    bool started, stopped;           /* of the owner of the server */

    pthread_mutex_t lock; /* guards what follows; taken before a call's own lock */
    pthread_cond_t changed;
    struct call *live;
    int num_live;
    bool stopping;
};

const struct descriptors *server_descriptors(const struct server *s)
{
    return s->descriptors;
}

struct health *server_health(struct server *s)
{
    return s->health;
}

/* ---- a new call ---------------------------------------------------------------------------- */

static void post_call(struct server *s, grpc_completion_queue *cq)
{
    struct call *c = wire_call_new(s, cq);
    ASSERT(c);
    TAG_IN(&c->on_new);
    if (grpc_server_request_call(s->core, &c->core, &c->details, &c->metadata, cq, cq,
                                 &c->on_new) != GRPC_CALL_OK) {
        wire_call_discard(c);
    }
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const struct method_entry *)a)->method->path,
                  ((const struct method_entry *)b)->method->path);
}

/* In strcmp's order (grpc_slice_str_cmp has another). */
static int compare_path(grpc_slice path, const char *name)
{
    size_t len = GRPC_SLICE_LENGTH(path), name_len = strlen(name);
    int d = memcmp(GRPC_SLICE_START_PTR(path), name, len < name_len ? len : name_len);
    return d ? d : (len > name_len) - (len < name_len);
}

static const struct method_entry *find_method(const struct server *s, grpc_slice path)
{
    size_t low = 0, high = s->num_methods;
    while (low < high) {
        size_t mid = (low + high) / 2;
        int d = compare_path(path, s->methods[mid].method->path);
        if (d == 0) {
            return &s->methods[mid];
        }
        if (d < 0) {
            high = mid;
        } else {
            low = mid + 1;
        }
    }
    return NULL;
}

/* "/tandem.v1.Jobs/Hold" that is in the descriptors is merely not built. */
static void fail_unknown(struct server *s, struct call *c)
{
    char path[200], symbol[200];
    size_t len = GRPC_SLICE_LENGTH(c->details.method);
    len = len < sizeof path ? len : sizeof path - 1;
    memcpy(path, GRPC_SLICE_START_PTR(c->details.method), len);
    path[len] = 0;
    snprintf(symbol, sizeof symbol, "%s", path + (path[0] == '/'));
    char *slash = strchr(symbol, '/');
    if (slash) {
        *slash = '.';
    }
    if (slash && descriptors_has(s->descriptors, symbol, DESCRIPTOR_METHOD)) {
        const char *service = slash;
        while (service > symbol && service[-1] != '.') {
            service--;
        }
        call_fail(c, ERR_UNIMPLEMENTED, "%s is not built yet", service);
    } else {
        call_fail(c, ERR_UNIMPLEMENTED, "unknown method %s", path);
    }
}

/* The token of "authorization: Bearer TOKEN"; false: there is none. */
static bool find_bearer(const struct call *c, char *out, size_t size)
{
    for (size_t i = 0; i < c->metadata.count; i++) {
        const grpc_metadata *m = &c->metadata.metadata[i];
        size_t len = GRPC_SLICE_LENGTH(m->value);
        if (grpc_slice_str_cmp(m->key, "authorization") == 0 && len > 7 && len - 7 < size &&
            memcmp(GRPC_SLICE_START_PTR(m->value), "Bearer ", 7) == 0) {
            memcpy(out, GRPC_SLICE_START_PTR(m->value) + 7, len - 7);
            out[len - 7] = 0;
            return true;
        }
    }
    return false;
}

/* Core's own word on the transport; nothing that the client sends is in it. */
static bool came_by_unix(const struct server *s, struct call *c)
{
    if (!s->has_unix) {
        return false;
    }
    char *peer = grpc_call_get_peer(c->core);
    bool is_unix = strncmp(peer, "unix:", 5) == 0;
    gpr_free(peer);
    return is_unix;
}

static void keep_caller(struct call *c, const struct caller *from)
{
    const char *texts[3] = {from->user, from->tenant, from->role};
    const char **kept[3] = {&c->caller.user, &c->caller.tenant, &c->caller.role};
    size_t bytes = 0;
    for (int i = 0; i < 3; i++) {
        bytes += strlen(texts[i] ? texts[i] : "") + 1;
    }
    char *p = malloc(bytes);
    ASSERT(p);
    c->caller = *from;
    c->caller_text = p;
    for (int i = 0; i < 3; i++) {
        const char *text = texts[i] ? texts[i] : "";
        *kept[i] = p;
        memcpy(p, text, strlen(text) + 1);
        p += strlen(text) + 1;
    }
}

/* True, or the call is ended with the reason. */
static bool admit(struct server *s, struct call *c, bool stopping, bool too_many)
{
    struct error err = {.code = ERR_UNAUTHENTICATED};
    if (stopping) {
        call_fail(c, ERR_UNAVAILABLE, "%s", shutdown_text);
    } else if (too_many) {
        call_fail(c, ERR_RESOURCE_EXHAUSTED, "too many calls at once");
    } else if (!c->method) {
        fail_unknown(s, c);
    } else if (wire_call_past_deadline(c)) {
        call_fail(c, ERR_DEADLINE_EXCEEDED, "the deadline had passed on arrival");
    } else if (c->method->access == METHOD_PUBLIC) {
        keep_caller(c, &(struct caller){0});
        return true;
    } else {
        char bearer[MAX_BEARER_BYTES];
        struct caller caller = {0};
        bool has_bearer = find_bearer(c, bearer, sizeof bearer);
        if (s->options.authenticate(s->options.ctx, has_bearer ? bearer : NULL, came_by_unix(s, c),
                                    c->method->access, &caller, &err) == 0) {
            keep_caller(c, &caller);
            return true;
        }
        call_fail_error(c, &err);
    }
    return false;
}

void server_call_new(struct call *c, bool ok)
{
    struct server *s = c->server;
    if (!ok) {
        wire_call_discard(c);
        return;
    }
    wire_call_opened(c);
    const struct method_entry *e = find_method(s, c->details.method);
    if (e) {
        c->method = e->method;
        c->ctx = e->ctx;
    }
    pthread_mutex_lock(&s->lock);
    bool stopping = s->stopping, too_many = s->num_live >= MAX_LIVE_CALLS;
    s->num_live++;
    c->next = s->live;
    if (c->next) {
        c->next->prev = c;
    }
    s->live = c;
    pthread_mutex_unlock(&s->lock);
    if (!stopping) {
        post_call(s, c->cq);
    }
    if (admit(s, c, stopping, too_many)) {
        wire_call_recv(c);
    }
}

void server_call_retired(struct server *s, struct call *c)
{
    pthread_mutex_lock(&s->lock);
    if (c->next) {
        c->next->prev = c->prev;
    }
    if (c->prev) {
        c->prev->next = c->next;
    } else {
        s->live = c->next;
    }
    s->num_live--;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

/* ---- a message ----------------------------------------------------------------------------- */

static void decode_and_dispatch(struct server *s, struct call *c)
{
    grpc_byte_buffer_reader reader;
    if (c->incoming->data.raw.compression != GRPC_COMPRESS_NONE) {
        call_fail(c, ERR_UNIMPLEMENTED, "compressed messages are not accepted");
        return;
    }
    if (!grpc_byte_buffer_reader_init(&reader, c->incoming)) {
        call_fail(c, ERR_INVALID_ARGUMENT, "unreadable message");
        return;
    }
    grpc_slice bytes = grpc_byte_buffer_reader_readall(&reader);
    ProtobufCMessage *request = NULL;
    struct error err;
    if (text_unpack(c->method->request, GRPC_SLICE_START_PTR(bytes), GRPC_SLICE_LENGTH(bytes),
                    UNPACKED_FACTOR * s->options.max_request_bytes, &request, &err) == 0) {
        c->dispatched = true;
        c->method->on_message(c->ctx, c, request);
        protobuf_c_message_free_unpacked(request, NULL);
    } else {
        call_fail_error(c, &err);
    }
    grpc_slice_unref(bytes);
    grpc_byte_buffer_reader_destroy(&reader);
}

void server_call_recv(struct call *c, bool ok)
{
    const struct method *m = c->method;
    if (!ok) {
        return; /* the call is being torn down; its close follows */
    }
    if (c->incoming) {
        if (wire_call_past_deadline(c)) {
            call_fail(c, ERR_DEADLINE_EXCEEDED, "the deadline had passed on arrival");
        } else {
            decode_and_dispatch(c->server, c);
        }
    } else if (!c->dispatched) {
        call_fail(c, ERR_INVALID_ARGUMENT, "the request message is missing");
    } else if (m->on_half_close) {
        m->on_half_close(c->ctx, c);
    }
}

/* ---- threads ------------------------------------------------------------------------------- */

static void *io_main(void *arg)
{
    grpc_completion_queue *cq = arg;
    for (;;) {
        grpc_event e = grpc_completion_queue_next(cq, gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
        if (e.type == GRPC_QUEUE_SHUTDOWN) {
            return NULL;
        }
        if (e.type == GRPC_OP_COMPLETE) {
            struct wire_tag *tag = e.tag;
            TAG_OUT(tag);
            tag->fn(tag->call, e.success != 0);
        }
    }
}

/* ---- set-up -------------------------------------------------------------------------------- */

static int add_table(struct server *s, const struct method *table, void *ctx, struct error *err)
{
    for (; table->path; table++) {
        if (s->num_methods == MAX_METHODS) {
            return error_set(err, ERR_INTERNAL, "more than %d methods", MAX_METHODS);
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
        int_arg(GRPC_ARG_ALLOW_REUSEPORT, 0),
        int_arg(GRPC_ARG_MAX_CONCURRENT_STREAMS, MAX_STREAMS),
        int_arg(GRPC_ARG_MAX_METADATA_SIZE, MAX_METADATA_BYTES),
        int_arg(GRPC_ARG_KEEPALIVE_TIME_MS, 30000),
        int_arg(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10000),
        int_arg(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1),
        int_arg(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 10000),
        int_arg(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, 10000),
    };
    grpc_channel_args list = {sizeof args / sizeof *args, args};
    return grpc_server_create(&list, NULL);
}

static int add_listener(struct server *s, const char *text, struct error *err)
{
    struct listen_address a;
    if (s->num_listeners == MAX_LISTENERS) {
        return error_set(err, ERR_INVALID_ARGUMENT, "more than %d addresses", MAX_LISTENERS);
    }
    if (listen_parse(&a, text, err) || listen_prepare(&a, err)) {
        return -1;
    }
    grpc_server_credentials *creds = grpc_insecure_server_credentials_create();
    int port = grpc_server_add_http2_port(s->core, a.target, creds);
    grpc_server_credentials_release(creds);
    if (port <= 0) {
        return listen_explain(&a, err);
    }
    if (a.is_unix && chmod(a.path, 0600) != 0) {
        return error_errno(err, errno, "listen on %s: chmod", a.target);
    }
    s->has_unix = s->has_unix || a.is_unix;
    s->ports[s->num_listeners++] = port;
    return 0;
}

static void create_queues(struct server *s)
{
    int n = s->options.num_threads > 0 ? s->options.num_threads : 2;
    s->num_threads = n < MAX_THREADS ? n : MAX_THREADS;
    for (int i = 0; i < s->num_threads; i++) {
        s->threads[i].cq = grpc_completion_queue_create_for_next(NULL);
        grpc_server_register_completion_queue(s->core, s->threads[i].cq, NULL);
    }
}

static int build(struct server *s, struct error *err)
{
    s->health = health_new();
    if (!s->health) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "out of memory");
    }
    if (descriptors_new(&s->descriptors, err) || add_tables(s, err)) {
        return -1;
    }
    s->core = create_core(&s->options);
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
    if (!s->options.max_request_bytes) {
        s->options.max_request_bytes = CALL_MESSAGE_MAX_BYTES;
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
    s->options.listen = NULL;
    s->options.tables = NULL;
    if (r) {
        server_free(s);
        return -1;
    }
    *out = s;
    return 0;
}

int server_port(const struct server *s, int i)
{
    return i >= 0 && i < s->num_listeners ? s->ports[i] : 0;
}

int server_start(struct server *s, struct error *err)
{
    ASSERT(!s->started);
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &old);
    s->started = true;
    grpc_server_start(s->core);
    int e = 0;
    for (int i = 0; i < s->num_threads && e == 0; i++) {
        struct io_thread *t = &s->threads[i];
        e = pthread_create(&t->thread, NULL, io_main, t->cq);
        t->running = e == 0;
        for (int k = 0; k < POSTED_PER_THREAD && t->running; k++) {
            post_call(s, t->cq);
        }
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (e) {
        return error_errno(err, e, "start an io thread");
    }
    server_set_serving(s, true);
    return 0;
}

void server_set_serving(struct server *s, bool serving)
{
    health_set(s->health, serving);
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
            end(c, ERR_UNAVAILABLE, shutdown_text);
        }
    }
}

void server_stop(struct server *s, int64_t grace_ms)
{
    if (s->stopped || !s->core) {
        return;
    }
    s->stopped = true;
    server_set_serving(s, false);
    grpc_completion_queue *done = grpc_completion_queue_create_for_next(NULL);
    pthread_mutex_lock(&s->lock);
    s->stopping = true;
    pthread_mutex_unlock(&s->lock);
    grpc_server_shutdown_and_notify(s->core, done, NULL);

    int64_t now = clock_mono_ms();
    pthread_mutex_lock(&s->lock);
    end_streams(s, wire_call_abort);
    wait_none_live(s, now + (grace_ms < STUCK_STREAM_MS ? grace_ms : STUCK_STREAM_MS));
    end_streams(s, wire_call_cut);
    wait_none_live(s, now + grace_ms);
    pthread_mutex_unlock(&s->lock);
    /* Also closes connections that have no call: their clients may sit on them for ever. */
    grpc_server_cancel_all_calls(s->core);
    grpc_completion_queue_next(done, gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
    pthread_mutex_lock(&s->lock);
    while (s->num_live > 0) {
        pthread_cond_wait(&s->changed, &s->lock);
    }
    pthread_mutex_unlock(&s->lock);

    grpc_completion_queue_shutdown(done);
    grpc_completion_queue_next(done, gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
    grpc_completion_queue_destroy(done);
}

static void free_queue(struct io_thread *t)
{
    grpc_completion_queue_shutdown(t->cq);
    if (t->running) {
        pthread_join(t->thread, NULL);
    } else {
        io_main(t->cq);
    }
    grpc_completion_queue_destroy(t->cq);
}

void server_free(struct server *s)
{
    if (!s) {
        return;
    }
    server_stop(s, 0);
    if (s->core) {
        grpc_server_destroy(s->core);
    }
    for (int i = 0; i < s->num_threads; i++) {
        free_queue(&s->threads[i]);
    }
    health_free(s->health);
    descriptors_free(s->descriptors);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    free(s);
    grpc_shutdown();
}
