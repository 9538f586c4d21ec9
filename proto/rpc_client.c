#include "proto/rpc_client.h"

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

#include "base/clock.h"
#include "base/log.h"
#include "proto/rpc_tls.h"
#include "proto/rpc_tags.h"
#include "proto/rpc_why.h"
#include "proto/text.h"

enum {
    MAX_REPLY_BYTES = 16 << 20,
    MAX_UNPACKED_BYTES = 128 << 20,
    /* How long one attempt to connect may take, to the server's first frame. On this host a
     * connection is made or refused at once, and what takes long is a server that is busy or
     * stands still: another attempt would only join the same queue. */
    CONNECT_HERE_MS = 60000,
    CONNECT_FAR_MS = 10000,
    ASK_EVERY_MS = 100, /* has_given_up */
};

struct rpc_channel {
    grpc_channel *core; /* owned */
    char *target;       /* owned; as the user wrote it */
    struct rpc_target at;
    struct rpc_trust trust; /* owned; with TLS */
    char *bearer;           /* owned; NULL = none */
    bool wait_ready;
    bool (*has_given_up)(void);
};

/* ---- channel ------------------------------------------------------------------------------- */

static grpc_arg int_arg(const char *key, int value)
{
    grpc_arg a = {.type = GRPC_ARG_INTEGER, .key = (char *)(uintptr_t)key};
    a.value.integer = value;
    return a;
}

static grpc_channel_credentials *create_creds(const struct rpc_channel *c)
{
    if (!c->at.tls) {
        return grpc_insecure_credentials_create();
    }
    grpc_ssl_pem_key_cert_pair own = {c->trust.key_pem, c->trust.cert_pem};
    return grpc_ssl_credentials_create_ex(c->trust.ca_pem, c->trust.cert_pem ? &own : NULL, NULL,
                                          NULL);
}

/* What is checked against the certificate; core would take it from an address that is resolved. */
static grpc_arg name_arg(const struct rpc_channel *c)
{
    grpc_arg a = {.type = GRPC_ARG_STRING,
                  .key = (char *)(uintptr_t)GRPC_SSL_TARGET_NAME_OVERRIDE_ARG};
    a.value.string = (char *)(uintptr_t)c->at.host;
    return a;
}

static grpc_channel *create_core(const struct rpc_channel *c)
{
    grpc_arg args[] = {
        name_arg(c), /* first: left out without TLS */
        int_arg(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, MAX_REPLY_BYTES),
        int_arg(GRPC_ARG_MAX_SEND_MESSAGE_LENGTH, MAX_REPLY_BYTES),
        int_arg(GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET, 1),
        int_arg(GRPC_ARG_ENABLE_RETRIES, 0),
        int_arg(GRPC_ARG_ENABLE_HTTP_PROXY, 0),
        /* A server that restarts is found again within a moment. */
        int_arg(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100),
        /* What it is called is not what it does. */
        int_arg(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, c->at.tls ? CONNECT_FAR_MS : CONNECT_HERE_MS),
        int_arg(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000),
        int_arg(GRPC_ARG_KEEPALIVE_TIME_MS, 30000),
        int_arg(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10000),
        int_arg(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1),
    };
    size_t skip = c->at.tls ? 0 : 1;
    grpc_channel_args list = {sizeof args / sizeof *args - skip, args + skip};
    grpc_channel_credentials *creds = create_creds(c);
    grpc_channel *core = grpc_channel_create(c->at.core, creds, &list);
    grpc_channel_credentials_release(creds);
    return core;
}

/* Core reports what we report in words already: only for who looks closely. */
static void pass_log(gpr_log_func_args *args)
{
    log_debug("grpc: %s", args->message);
}

int rpc_channel_open(struct rpc_channel **out, const struct rpc_channel_options *options,
                     struct error *err)
{
    struct rpc_channel *c = calloc(1, sizeof *c);
    if (!c) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "out of memory");
    }
    if (rpc_target_parse(&c->at, options->target, options->ca_file, err) ||
        (c->at.tls &&
         rpc_trust_load(&c->trust, options->ca_file, options->cert_file, options->key_file, err))) {
        free(c);
        return -1;
    }
    c->target = strdup(options->target);
    c->wait_ready = options->wait_ready;
    c->has_given_up = options->has_given_up;
    if (options->token) {
        size_t size = strlen(options->token) + sizeof "Bearer ";
        c->bearer = malloc(size);
        ASSERT(c->bearer);
        snprintf(c->bearer, size, "Bearer %s", options->token);
    }
    /* Core's own threads must not take the program's signals. */
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &old);
    gpr_set_log_function(pass_log);
    grpc_init();
    c->core = create_core(c);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    *out = c;
    return 0;
}

void rpc_channel_close(struct rpc_channel *c)
{
    if (!c) {
        return;
    }
    grpc_channel_destroy(c->core);
    rpc_trust_free(&c->trust);
    free(c->bearer);
    free(c->target);
    free(c);
    grpc_shutdown();
}

static grpc_call *create_call(struct rpc_channel *c, grpc_completion_queue *cq, const char *method,
                              int64_t deadline_ms)
{
    gpr_timespec deadline = deadline_ms < 0
                                ? gpr_inf_future(GPR_CLOCK_MONOTONIC)
                                : gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                                               gpr_time_from_millis(deadline_ms, GPR_TIMESPAN));
    grpc_slice path = grpc_slice_from_copied_string(method);
    grpc_call *call = grpc_channel_create_call(c->core, NULL, GRPC_PROPAGATE_DEFAULTS, cq, path,
                                               NULL, deadline, NULL);
    grpc_slice_unref(path);
    return call;
}

/* The op that opens a call; the metadata must live until the batch was started. */
static grpc_op open_op(const struct rpc_channel *c, bool wait_ready, grpc_metadata *bearer)
{
    grpc_op op = {.op = GRPC_OP_SEND_INITIAL_METADATA};
    if (wait_ready) {
        op.flags = GRPC_INITIAL_METADATA_WAIT_FOR_READY |
                   GRPC_INITIAL_METADATA_WAIT_FOR_READY_EXPLICITLY_SET;
    }
    if (c->bearer) {
        bearer->key = grpc_slice_from_static_string("authorization");
        bearer->value = grpc_slice_from_copied_string(c->bearer);
        op.data.send_initial_metadata.count = 1;
        op.data.send_initial_metadata.metadata = bearer;
    }
    return op;
}

static grpc_byte_buffer *pack(const ProtobufCMessage *message)
{
    grpc_slice slice = grpc_slice_malloc(protobuf_c_message_get_packed_size(message));
    protobuf_c_message_pack(message, GRPC_SLICE_START_PTR(slice));
    grpc_byte_buffer *buffer = grpc_raw_byte_buffer_create(&slice, 1);
    grpc_slice_unref(slice);
    return buffer;
}

static int unpack(grpc_byte_buffer *buffer, const ProtobufCMessageDescriptor *descriptor,
                  ProtobufCMessage **out, struct error *err)
{
    grpc_byte_buffer_reader reader;
    if (!grpc_byte_buffer_reader_init(&reader, buffer)) {
        return error_set(err, ERR_INTERNAL, "the server's reply can't be read");
    }
    grpc_slice bytes = grpc_byte_buffer_reader_readall(&reader);
    int r = text_unpack(descriptor, GRPC_SLICE_START_PTR(bytes), GRPC_SLICE_LENGTH(bytes),
                        MAX_UNPACKED_BYTES, out, err);
    grpc_slice_unref(bytes);
    grpc_byte_buffer_reader_destroy(&reader);
    return r ? error_wrap(err, "the server's reply") : 0;
}

/* The server's own words, or ours where core has made them. *again: as rpc_why says it. */
static int set_status(const struct rpc_channel *c, grpc_status_code code, grpc_slice details,
                      bool *again, struct error *err)
{
    const struct rpc_why_of of = {c->target, &c->at, &c->trust};
    char *text = grpc_slice_to_c_string(details);
    *again = rpc_why(&of, (enum error_code)code, text, err);
    gpr_free(text);
    return -1;
}

/* ---- unary --------------------------------------------------------------------------------- */

struct unary {
    grpc_metadata_array headers, trailers;
    grpc_byte_buffer *reply; /* owned */
    grpc_status_code status;
    grpc_slice details; /* owned */
};

static void start_unary(struct rpc_channel *c, grpc_call *call, const ProtobufCMessage *request,
                        bool wait_ready, struct unary *u)
{
    grpc_metadata bearer;
    grpc_byte_buffer *out = pack(request);
    grpc_op ops[6] = {open_op(c, wait_ready, &bearer)};
    ops[1].op = GRPC_OP_SEND_MESSAGE;
    ops[1].data.send_message.send_message = out;
    ops[2].op = GRPC_OP_SEND_CLOSE_FROM_CLIENT;
    ops[3].op = GRPC_OP_RECV_INITIAL_METADATA;
    ops[3].data.recv_initial_metadata.recv_initial_metadata = &u->headers;
    ops[4].op = GRPC_OP_RECV_MESSAGE;
    ops[4].data.recv_message.recv_message = &u->reply;
    ops[5].op = GRPC_OP_RECV_STATUS_ON_CLIENT;
    ops[5].data.recv_status_on_client.trailing_metadata = &u->trailers;
    ops[5].data.recv_status_on_client.status = &u->status;
    ops[5].data.recv_status_on_client.status_details = &u->details;
    TAG_IN(u);
    ASSERT(grpc_call_start_batch(call, ops, 6, u, NULL) == GRPC_CALL_OK);
    grpc_byte_buffer_destroy(out);
    if (c->bearer) {
        grpc_slice_unref(bearer.value);
    }
}

static void drain(grpc_completion_queue *cq)
{
    grpc_completion_queue_shutdown(cq);
    while (grpc_completion_queue_next(cq, gpr_inf_future(GPR_CLOCK_REALTIME), NULL).type !=
           GRPC_QUEUE_SHUTDOWN) {
    }
    grpc_completion_queue_destroy(cq);
}

void rpc_channel_wait(struct rpc_channel *c, int64_t timeout_ms)
{
    gpr_timespec until =
        gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(timeout_ms, GPR_TIMESPAN));
    grpc_connectivity_state state = grpc_channel_check_connectivity_state(c->core, 1);
    if (state == GRPC_CHANNEL_READY) {
        gpr_sleep_until(until); /* that wasn't it */
        return;
    }
    grpc_completion_queue *cq = grpc_completion_queue_create_for_next(NULL);
    bool in_time = true;
    while (in_time && state != GRPC_CHANNEL_READY) {
        TAG_IN(c);
        grpc_channel_watch_connectivity_state(c->core, state, until, cq, c);
        in_time =
            grpc_completion_queue_next(cq, gpr_inf_future(GPR_CLOCK_REALTIME), NULL).success != 0;
        TAG_OUT(c);
        state = grpc_channel_check_connectivity_state(c->core, 1);
    }
    drain(cq);
}

/* Nothing came within the deadline. That a call never got to a server is another thing to know than
 * that its answer didn't come. */
static int fail_late(const struct rpc_channel *c, int64_t deadline_ms, struct error *err)
{
    double s = (double)deadline_ms / 1000.0;
    if (grpc_channel_check_connectivity_state(c->core, 0) == GRPC_CHANNEL_READY) {
        return error_set(err, ERR_DEADLINE_EXCEEDED,
                         "no answer from %s within %.3g s; it may still do what it was asked",
                         c->target, s);
    }
    return error_set(err, ERR_UNAVAILABLE, "no server answers at %s: no connection within %.3g s",
                     c->target, s);
}

/* Comes back once all of the call has. */
static void await_call(const struct rpc_channel *c, grpc_completion_queue *cq, grpc_call *call)
{
    gpr_timespec until;
    do {
        until = c->has_given_up ? gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                                               gpr_time_from_millis(ASK_EVERY_MS, GPR_TIMESPAN))
                                : gpr_inf_future(GPR_CLOCK_MONOTONIC);
        if (c->has_given_up && c->has_given_up()) {
            grpc_call_cancel(call, NULL);
        }
    } while (grpc_completion_queue_next(cq, until, NULL).type == GRPC_QUEUE_TIMEOUT);
}

struct attempt {
    int64_t deadline_ms; /* from its beginning */
    int64_t patience_ms; /* the caller's */
    bool wait_ready;
    bool again; /* out: another would be of use */
};

static int call_once(struct rpc_channel *c, const char *method, const ProtobufCMessage *request,
                     const ProtobufCMessageDescriptor *descriptor, ProtobufCMessage **reply,
                     struct attempt *a, struct error *err)
{
    a->again = false;
    grpc_completion_queue *cq = grpc_completion_queue_create_for_next(NULL);
    grpc_call *call = create_call(c, cq, method, a->deadline_ms);
    struct unary u = {.details = grpc_empty_slice()};
    grpc_metadata_array_init(&u.headers);
    grpc_metadata_array_init(&u.trailers);
    start_unary(c, call, request, a->wait_ready, &u);
    await_call(c, cq, call);
    TAG_OUT(&u);

    int r;
    if (u.status == GRPC_STATUS_DEADLINE_EXCEEDED &&
        grpc_slice_str_cmp(u.details, "Deadline Exceeded") == 0) {
        r = fail_late(c, a->patience_ms, err);
    } else if (u.status != GRPC_STATUS_OK) {
        r = set_status(c, u.status, u.details, &a->again, err);
    } else if (!u.reply) {
        r = error_set(err, ERR_INTERNAL, "the server answered nothing");
    } else {
        r = unpack(u.reply, descriptor, reply, err);
    }
    if (u.reply) {
        grpc_byte_buffer_destroy(u.reply);
    }
    grpc_slice_unref(u.details);
    grpc_metadata_array_destroy(&u.headers);
    grpc_metadata_array_destroy(&u.trailers);
    grpc_call_unref(call);
    drain(cq);
    return r;
}

int rpc_call(struct rpc_channel *c, const char *method, const ProtobufCMessage *request,
             const ProtobufCMessageDescriptor *descriptor, ProtobufCMessage **reply,
             int64_t deadline_ms, struct error *err)
{
    ASSERT(deadline_ms > 0);
    int64_t until = clock_mono_ms() + deadline_ms;
    struct attempt a = {deadline_ms, deadline_ms, .wait_ready = c->wait_ready};
    int r = call_once(c, method, request, descriptor, reply, &a, err);
    a.deadline_ms = until - clock_mono_ms();
    if (r != 0 && a.again && a.deadline_ms > 0) {
        a.wait_ready = true;
        r = call_once(c, method, request, descriptor, reply, &a, err);
    }
    return r;
}

/* ---- streams ------------------------------------------------------------------------------- */

/* Batches of a stream; the address is the tag that the thread concerned waits for. */
enum stream_batch { BATCH_OPEN, BATCH_STATUS, BATCH_RECV, BATCH_SEND, BATCH_CLOSE, NUM_BATCHES };

struct rpc_stream {
    struct rpc_channel *channel;
    grpc_completion_queue *cq; /* owned; for pluck: each thread takes its own tags */
    grpc_call *call;           /* owned */
    pthread_mutex_t lock;      /* the order of batches; guards pending */
    bool pending[NUM_BATCHES];
    char tags[NUM_BATCHES];
    bool half_closed; /* of the writer */
    grpc_metadata_array headers, trailers;
    grpc_byte_buffer *incoming; /* owned */
    bool opened;                /* of the reader: the server's headers are there */
    bool ended;                 /* of the reader: the status below is there */
    grpc_status_code status;
    grpc_slice details; /* owned */
};

/* False: the call is over. */
static bool start(struct rpc_stream *s, enum stream_batch which, const grpc_op *ops, size_t num_ops)
{
    pthread_mutex_lock(&s->lock);
    ASSERT(!s->pending[which]);
    TAG_IN(&s->tags[which]);
    grpc_call_error e = grpc_call_start_batch(s->call, ops, num_ops, &s->tags[which], NULL);
    s->pending[which] = e == GRPC_CALL_OK;
    pthread_mutex_unlock(&s->lock);
    return e == GRPC_CALL_OK;
}

/* 1: it is back and went well, 0: back and failed, -1: not yet. timeout_ms -1 = for ever. */
static int await(struct rpc_stream *s, enum stream_batch which, int64_t timeout_ms)
{
    gpr_timespec until = timeout_ms < 0
                             ? gpr_inf_future(GPR_CLOCK_MONOTONIC)
                             : gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                                            gpr_time_from_millis(timeout_ms, GPR_TIMESPAN));
    grpc_event e = grpc_completion_queue_pluck(s->cq, &s->tags[which], until, NULL);
    if (e.type != GRPC_OP_COMPLETE) {
        return -1;
    }
    TAG_OUT(&s->tags[which]);
    pthread_mutex_lock(&s->lock);
    s->pending[which] = false;
    pthread_mutex_unlock(&s->lock);
    return e.success ? 1 : 0;
}

static bool is_pending(struct rpc_stream *s, enum stream_batch which)
{
    pthread_mutex_lock(&s->lock);
    bool pending = s->pending[which];
    pthread_mutex_unlock(&s->lock);
    return pending;
}

static void open_stream(struct rpc_stream *s, const ProtobufCMessage *request)
{
    grpc_metadata bearer;
    grpc_byte_buffer *out = request ? pack(request) : NULL;
    grpc_op ops[4] = {open_op(s->channel, s->channel->wait_ready, &bearer)};
    size_t n = 1;
    ops[n].op = GRPC_OP_RECV_INITIAL_METADATA;
    ops[n++].data.recv_initial_metadata.recv_initial_metadata = &s->headers;
    if (out) {
        ops[n].op = GRPC_OP_SEND_MESSAGE;
        ops[n++].data.send_message.send_message = out;
        ops[n++].op = GRPC_OP_SEND_CLOSE_FROM_CLIENT;
        s->half_closed = true;
    }
    ASSERT(start(s, BATCH_OPEN, ops, n));
    if (out) {
        grpc_byte_buffer_destroy(out);
    }
    if (s->channel->bearer) {
        grpc_slice_unref(bearer.value);
    }
    grpc_op status = {.op = GRPC_OP_RECV_STATUS_ON_CLIENT};
    status.data.recv_status_on_client.trailing_metadata = &s->trailers;
    status.data.recv_status_on_client.status = &s->status;
    status.data.recv_status_on_client.status_details = &s->details;
    ASSERT(start(s, BATCH_STATUS, &status, 1));
}

int rpc_stream_open(struct rpc_channel *c, const char *method, const ProtobufCMessage *request,
                    struct rpc_stream **out, struct error *err)
{
    struct rpc_stream *s = calloc(1, sizeof *s);
    if (!s) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "out of memory");
    }
    s->channel = c;
    s->details = grpc_empty_slice();
    pthread_mutex_init(&s->lock, NULL);
    grpc_metadata_array_init(&s->headers);
    grpc_metadata_array_init(&s->trailers);
    s->cq = grpc_completion_queue_create_for_pluck(NULL);
    s->call = create_call(c, s->cq, method, -1);
    open_stream(s, request);
    *out = s;
    return 0;
}

int rpc_stream_send(struct rpc_stream *s, const ProtobufCMessage *message, struct error *err)
{
    ASSERT(!s->half_closed);
    grpc_byte_buffer *buffer = pack(message);
    grpc_op op = {.op = GRPC_OP_SEND_MESSAGE};
    op.data.send_message.send_message = buffer;
    bool sent = start(s, BATCH_SEND, &op, 1) && await(s, BATCH_SEND, -1) == 1;
    grpc_byte_buffer_destroy(buffer);
    return sent ? 0
                : error_set(err, ERR_UNAVAILABLE, "the stream to %s has ended", s->channel->target);
}

int rpc_stream_half_close(struct rpc_stream *s, struct error *err)
{
    ASSERT(!s->half_closed);
    s->half_closed = true;
    grpc_op op = {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT};
    if (start(s, BATCH_CLOSE, &op, 1) && await(s, BATCH_CLOSE, -1) == 1) {
        return 0;
    }
    return error_set(err, ERR_UNAVAILABLE, "the stream to %s has ended", s->channel->target);
}

int rpc_stream_recv(struct rpc_stream *s, const ProtobufCMessageDescriptor *descriptor,
                    ProtobufCMessage **reply, int64_t timeout_ms, struct error *err)
{
    if (!s->ended && !is_pending(s, BATCH_RECV)) {
        grpc_op op = {.op = GRPC_OP_RECV_MESSAGE};
        op.data.recv_message.recv_message = &s->incoming;
        start(s, BATCH_RECV, &op, 1);
    }
    if (!s->ended && is_pending(s, BATCH_RECV)) {
        int r = await(s, BATCH_RECV, timeout_ms);
        if (r < 0) {
            return error_set(err, ERR_DEADLINE_EXCEEDED, "no message from %s in time",
                             s->channel->target);
        }
        if (r == 1 && s->incoming) {
            r = unpack(s->incoming, descriptor, reply, err);
            grpc_byte_buffer_destroy(s->incoming);
            s->incoming = NULL;
            return r ? -1 : 1;
        }
    }
    if (!s->ended) {
        await(s, BATCH_STATUS, -1);
        s->ended = true;
    }
    bool again;
    return s->status == GRPC_STATUS_OK ? 0
                                       : set_status(s->channel, s->status, s->details, &again, err);
}

bool rpc_stream_is_open(struct rpc_stream *s)
{
    if (!s->opened && is_pending(s, BATCH_OPEN)) {
        s->opened = await(s, BATCH_OPEN, 0) == 1;
    }
    return s->opened;
}

void rpc_stream_cancel(struct rpc_stream *s)
{
    pthread_mutex_lock(&s->lock);
    grpc_call_cancel(s->call, NULL);
    pthread_mutex_unlock(&s->lock);
}

void rpc_stream_close(struct rpc_stream *s)
{
    if (!s) {
        return;
    }
    rpc_stream_cancel(s);
    for (int i = 0; i < NUM_BATCHES; i++) {
        if (is_pending(s, (enum stream_batch)i)) {
            await(s, (enum stream_batch)i, -1);
        }
    }
    if (s->incoming) {
        grpc_byte_buffer_destroy(s->incoming);
    }
    grpc_slice_unref(s->details);
    grpc_metadata_array_destroy(&s->headers);
    grpc_metadata_array_destroy(&s->trailers);
    grpc_call_unref(s->call);
    grpc_completion_queue_shutdown(s->cq);
    grpc_completion_queue_pluck(s->cq, NULL, gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
    grpc_completion_queue_destroy(s->cq);
    pthread_mutex_destroy(&s->lock);
    free(s);
}
