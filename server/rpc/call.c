#include "server/rpc/call.h"

#include <grpc/byte_buffer_reader.h>
#include <grpc/support/time.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/printable.h"
#include "server/rpc/crowd.h"
#include "server/rpc/wire.h"

struct call_packed {
    grpc_byte_buffer *buffer; /* owned */
    size_t bytes;
};

/* ---- life ---------------------------------------------------------------------------------- */

static void on_close(struct call *c, bool ok);
static void on_send(struct call *c, bool ok);
static void on_status(struct call *c, bool ok);
static void on_recv(struct call *c, bool ok);

struct call *wire_call_new(struct server *s, grpc_completion_queue *cq, bool by_unix)
{
    struct call *c = calloc(1, sizeof *c);
    if (!c) {
        return NULL;
    }
    atomic_init(&c->refs, 1);
    pthread_mutex_init(&c->lock, NULL);
    c->server = s;
    c->cq = cq;
    c->by_unix = by_unix;
    c->queue_last = &c->queue;
    grpc_call_details_init(&c->details);
    grpc_metadata_array_init(&c->metadata);
    c->on_new = (struct wire_tag){server_call_new, c};
    c->on_close = (struct wire_tag){on_close, c};
    c->on_recv = (struct wire_tag){on_recv, c};
    c->on_send = (struct wire_tag){on_send, c};
    c->on_status = (struct wire_tag){on_status, c};
    return c;
}

struct call *call_ref(struct call *c)
{
    atomic_fetch_add(&c->refs, 1);
    return c;
}

void call_unref(struct call *c)
{
    if (!c || atomic_fetch_sub(&c->refs, 1) != 1) {
        return;
    }
    ASSERT(!c->core && !c->queue);
    if (c->data_free) {
        c->data_free(c->data);
    }
    pthread_mutex_destroy(&c->lock);
    free(c->end_text);
    free(c->caller_text);
    free(c);
}

void wire_call_discard(struct call *c)
{
    grpc_call_details_destroy(&c->details);
    grpc_metadata_array_destroy(&c->metadata);
    if (c->core) {
        grpc_call_unref(c->core);
        c->core = NULL;
    }
    call_unref(c);
}

/* Lock held. */
static void queue_clear(struct call *c)
{
    while (c->queue) {
        struct wire_message *m = c->queue;
        c->queue = m->next;
        grpc_byte_buffer_destroy(m->buffer);
        free(m);
    }
    c->queue_last = &c->queue;
    c->num_queued = 0;
    c->queued_bytes = 0;
}

/* Lock held. */
static void batch(struct call *c, const grpc_op *ops, size_t num_ops, struct wire_tag *tag)
{
    c->batches++;
    TAG_IN(tag);
    grpc_call_error e = grpc_call_start_batch(c->core, ops, num_ops, tag, NULL);
    ASSERT(e == GRPC_CALL_OK);
}

/* A batch is back. With the last one, after the close, core's part of the call is released. */
static void batch_back(struct call *c)
{
    pthread_mutex_lock(&c->lock);
    c->batches--;
    bool last = c->closed && c->batches == 0;
    grpc_call *core = c->core;
    if (last) {
        c->core = NULL;
        queue_clear(c);
    }
    pthread_mutex_unlock(&c->lock);
    if (!last) {
        return;
    }
    if (c->incoming) {
        grpc_byte_buffer_destroy(c->incoming);
    }
    grpc_call_details_destroy(&c->details);
    grpc_metadata_array_destroy(&c->metadata);
    grpc_call_unref(core);
    struct server *s = c->server;
    c->server = NULL;
    server_call_retired(s, c, c->cancelled && !c->ending);
    call_unref(c);
}

void wire_call_opened(struct call *c)
{
    grpc_op op = {.op = GRPC_OP_RECV_CLOSE_ON_SERVER};
    op.data.recv_close_on_server.cancelled = &c->cancelled;
    pthread_mutex_lock(&c->lock);
    batch(c, &op, 1, &c->on_close);
    pthread_mutex_unlock(&c->lock);
}

static void on_close(struct call *c, bool ok)
{
    (void)ok;
    pthread_mutex_lock(&c->lock);
    c->closed = true;
    queue_clear(c);
    pthread_mutex_unlock(&c->lock);
    if (c->dispatched && c->method->on_closed) {
        c->method->on_closed(c->ctx, c);
    }
    batch_back(c);
}

bool wire_call_is_late(struct call *c, int64_t then_ms)
{
    pthread_mutex_lock(&c->lock);
    bool late = !c->closed && !c->heard && c->opened_ms < then_ms;
    pthread_mutex_unlock(&c->lock);
    return late;
}

bool wire_call_is_stuck(struct call *c, int64_t then_ms)
{
    pthread_mutex_lock(&c->lock);
    bool stuck = !c->closed && (c->ending || c->end_pending) && c->end_ms < then_ms;
    pthread_mutex_unlock(&c->lock);
    return stuck;
}

bool wire_call_past_deadline(const struct call *c)
{
    gpr_timespec deadline = gpr_convert_clock_type(c->details.deadline, GPR_CLOCK_REALTIME);
    return gpr_time_cmp(deadline, gpr_now(GPR_CLOCK_REALTIME)) < 0;
}

/* ---- in ------------------------------------------------------------------------------------ */

void wire_call_recv(struct call *c)
{
    pthread_mutex_lock(&c->lock);
    if (!c->closed && !c->ending && !c->end_pending && !c->recving && !c->held && !c->no_more) {
        grpc_op op = {.op = GRPC_OP_RECV_MESSAGE};
        op.data.recv_message.recv_message = &c->incoming;
        c->recving = true;
        batch(c, &op, 1, &c->on_recv);
    }
    pthread_mutex_unlock(&c->lock);
}

static void on_recv(struct call *c, bool ok)
{
    pthread_mutex_lock(&c->lock);
    c->recving = false;
    c->heard = true;
    bool mute = c->closed || c->ending || c->end_pending;
    if (!ok || !c->incoming) {
        c->no_more = true;
    }
    pthread_mutex_unlock(&c->lock);
    if (!mute) {
        server_call_recv(c, ok);
    }
    if (c->incoming) {
        grpc_byte_buffer_destroy(c->incoming);
        c->incoming = NULL;
    }
    if (!mute && c->method && c->method->kind == METHOD_BIDI) {
        wire_call_recv(c);
    }
    batch_back(c);
}

void call_hold(struct call *c, bool hold)
{
    pthread_mutex_lock(&c->lock);
    bool wake = c->held && !hold;
    c->held = hold;
    pthread_mutex_unlock(&c->lock);
    if (wake) {
        wire_call_recv(c);
    }
}

/* ---- out ----------------------------------------------------------------------------------- */

static grpc_byte_buffer *pack(const ProtobufCMessage *message, size_t *bytes)
{
    *bytes = protobuf_c_message_get_packed_size(message);
    grpc_slice slice = grpc_slice_malloc(*bytes);
    protobuf_c_message_pack(message, GRPC_SLICE_START_PTR(slice));
    grpc_byte_buffer *buffer = grpc_raw_byte_buffer_create(&slice, 1);
    grpc_slice_unref(slice);
    return buffer;
}

/* Lock held; nothing is on its way. */
static void send_status(struct call *c, grpc_status_code code, const char *text)
{
    grpc_op ops[2] = {0};
    size_t n = 0;
    if (!c->headers_sent) {
        ops[n++].op = GRPC_OP_SEND_INITIAL_METADATA;
        c->headers_sent = true;
    }
    grpc_slice details = grpc_slice_from_copied_string(text ? text : "");
    ops[n].op = GRPC_OP_SEND_STATUS_FROM_SERVER;
    ops[n].data.send_status_from_server.status = code;
    ops[n].data.send_status_from_server.status_details = &details;
    n++;
    c->ending = true;
    batch(c, ops, n, &c->on_status);
    grpc_slice_unref(details);
}

static void on_status(struct call *c, bool ok)
{
    (void)ok;
    batch_back(c);
}

/* Lock held. Starts what is due: the next message, or the status behind the last one. */
static void pump(struct call *c)
{
    if (c->sending || c->ending || c->closed) {
        return;
    }
    struct wire_message *m = c->queue;
    if (!m) {
        if (c->end_pending) {
            send_status(c, c->end_code, c->end_text);
        }
        return;
    }
    c->queue = m->next;
    if (!c->queue) {
        c->queue_last = &c->queue;
    }
    c->num_queued--;
    c->queued_bytes -= m->bytes;
    c->sending_bytes = m->bytes;
    grpc_op ops[2] = {0};
    size_t n = 0;
    if (!c->headers_sent) {
        ops[n++].op = GRPC_OP_SEND_INITIAL_METADATA;
        c->headers_sent = true;
    }
    ops[n].op = GRPC_OP_SEND_MESSAGE;
    ops[n].data.send_message.send_message = m->buffer;
    n++;
    c->sending = true;
    batch(c, ops, n, &c->on_send);
    grpc_byte_buffer_destroy(m->buffer);
    free(m);
}

static void on_send(struct call *c, bool ok)
{
    pthread_mutex_lock(&c->lock);
    c->sending = false;
    c->charged_bytes -= c->sending_bytes;
    crowd_discharge(c->member, c->sending_bytes);
    if (ok) {
        pump(c);
    }
    pthread_mutex_unlock(&c->lock);
    batch_back(c);
}

/* Lock held. May anything still be added? */
static bool open_for_output(const struct call *c)
{
    return c->core && !c->closed && !c->ending && !c->end_pending;
}

/* Lock held. Room in the share of the call's connection; freed as the bytes go, or with the call.
 */
static bool charge(struct call *c, size_t bytes)
{
    if (!crowd_charge(c->member, bytes)) {
        return false;
    }
    c->charged_bytes += bytes;
    return true;
}

/* Takes the buffer. */
static bool send_buffer(struct call *c, grpc_byte_buffer *buffer, size_t bytes)
{
    struct wire_message *m = malloc(sizeof *m);
    bool sent = false;
    pthread_mutex_lock(&c->lock);
    bool room = c->num_queued < CALL_QUEUE_MAX &&
                (c->num_queued == 0 || c->queued_bytes + bytes <= WIRE_QUEUE_MAX_BYTES);
    if (m && open_for_output(c) && room && bytes <= CALL_MESSAGE_MAX_BYTES && charge(c, bytes)) {
        *m = (struct wire_message){.buffer = buffer, .bytes = bytes};
        *c->queue_last = m;
        c->queue_last = &m->next;
        c->num_queued++;
        c->queued_bytes += bytes;
        pump(c);
        sent = true;
    } else {
        c->num_dropped++;
    }
    pthread_mutex_unlock(&c->lock);
    if (!sent) {
        grpc_byte_buffer_destroy(buffer);
        free(m);
    }
    return sent;
}

bool call_send(struct call *c, const ProtobufCMessage *message)
{
    size_t bytes;
    grpc_byte_buffer *buffer = pack(message, &bytes);
    return send_buffer(c, buffer, bytes);
}

void call_open(struct call *c)
{
    pthread_mutex_lock(&c->lock);
    if (open_for_output(c) && !c->headers_sent) {
        grpc_op op = {.op = GRPC_OP_SEND_INITIAL_METADATA};
        c->headers_sent = true;
        c->sending = true;
        c->sending_bytes = 0;
        batch(c, &op, 1, &c->on_send);
    }
    pthread_mutex_unlock(&c->lock);
}

struct call_packed *call_pack(const ProtobufCMessage *message)
{
    struct call_packed *p = malloc(sizeof *p);
    if (p) {
        p->buffer = pack(message, &p->bytes);
    }
    return p;
}

bool call_send_packed(struct call *c, const struct call_packed *p)
{
    return send_buffer(c, grpc_byte_buffer_copy(p->buffer), p->bytes);
}

void call_packed_free(struct call_packed *p)
{
    if (p) {
        grpc_byte_buffer_destroy(p->buffer);
        free(p);
    }
}

uint32_t call_queued(struct call *c)
{
    pthread_mutex_lock(&c->lock);
    uint32_t n = c->num_queued;
    pthread_mutex_unlock(&c->lock);
    return n;
}

uint64_t call_dropped(struct call *c)
{
    pthread_mutex_lock(&c->lock);
    uint64_t n = c->num_dropped;
    pthread_mutex_unlock(&c->lock);
    return n;
}

/* ---- the end ------------------------------------------------------------------------------- */

/* Lock held. */
static void end_behind_queue(struct call *c, enum error_code code, const char *text)
{
    if (!open_for_output(c)) {
        return;
    }
    /* Trailers hold about 8 KB in all, and a percent-encoded byte takes three. */
    char clean[ERROR_TEXT_MAX];
    int n = snprintf(clean, sizeof clean, "%s", text ? text : "");
    printable_sentence(clean, n >= (int)sizeof clean);
    c->end_pending = true;
    c->end_ms = clock_mono_ms();
    c->end_code = (grpc_status_code)code;
    c->end_text = strdup(clean);
    pump(c);
}

void call_reply(struct call *c, const ProtobufCMessage *reply)
{
    size_t bytes = protobuf_c_message_get_packed_size(reply);
    if (bytes > CALL_MESSAGE_MAX_BYTES) {
        call_fail(c, ERR_RESOURCE_EXHAUSTED,
                  "the reply would have %zu bytes, more than the %zu that fit; ask for less", bytes,
                  CALL_MESSAGE_MAX_BYTES);
        return;
    }
    grpc_byte_buffer *buffer = pack(reply, &bytes);
    pthread_mutex_lock(&c->lock);
    if (open_for_output(c) && !charge(c, bytes)) {
        end_behind_queue(c, ERR_RESOURCE_EXHAUSTED, "earlier replies wait to be read");
    } else if (open_for_output(c) && !c->sending) {
        grpc_op ops[3] = {0};
        size_t n = 0;
        if (!c->headers_sent) {
            ops[n++].op = GRPC_OP_SEND_INITIAL_METADATA;
        }
        ops[n].op = GRPC_OP_SEND_MESSAGE;
        ops[n++].data.send_message.send_message = buffer;
        ops[n].op = GRPC_OP_SEND_STATUS_FROM_SERVER;
        ops[n++].data.send_status_from_server.status = GRPC_STATUS_OK;
        c->headers_sent = true;
        c->ending = true;
        c->end_ms = clock_mono_ms();
        batch(c, ops, n, &c->on_status);
    }
    pthread_mutex_unlock(&c->lock);
    grpc_byte_buffer_destroy(buffer);
}

void call_fail(struct call *c, enum error_code code, const char *fmt, ...)
{
    char text[ERROR_TEXT_MAX];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    pthread_mutex_lock(&c->lock);
    end_behind_queue(c, code == ERR_OK ? ERR_UNKNOWN : code, text);
    pthread_mutex_unlock(&c->lock);
}

void call_fail_error(struct call *c, const struct error *err)
{
    call_fail(c, err->code, "%s", err->text);
}

void call_finish(struct call *c)
{
    pthread_mutex_lock(&c->lock);
    end_behind_queue(c, ERR_OK, NULL);
    pthread_mutex_unlock(&c->lock);
}

void wire_call_abort(struct call *c, enum error_code code, const char *text)
{
    pthread_mutex_lock(&c->lock);
    queue_clear(c);
    end_behind_queue(c, code, text);
    pthread_mutex_unlock(&c->lock);
}

void wire_call_cut(struct call *c, enum error_code code, const char *text)
{
    wire_call_abort(c, code, text);
    pthread_mutex_lock(&c->lock);
    if (c->core && !c->closed) {
        grpc_call_cancel_with_status(c->core, (grpc_status_code)code, text, NULL);
    }
    pthread_mutex_unlock(&c->lock);
}

void wire_call_drop(struct call *c, enum error_code code, const char *text)
{
    pthread_mutex_lock(&c->lock);
    /* A status of our own would be a batch, and come back only once it is written. */
    if (c->core && !c->closed) {
        c->ending = true;
        c->end_ms = clock_mono_ms();
        grpc_call_cancel_with_status(c->core, (grpc_status_code)code, text, NULL);
    }
    pthread_mutex_unlock(&c->lock);
}

bool call_is_over(struct call *c)
{
    pthread_mutex_lock(&c->lock);
    bool over = !open_for_output(c);
    pthread_mutex_unlock(&c->lock);
    return over;
}

/* ---- what a handler keeps with it ---------------------------------------------------------- */

const struct caller *call_caller(const struct call *c)
{
    return &c->caller;
}

void call_set_data(struct call *c, void *data, void (*free_fn)(void *data))
{
    pthread_mutex_lock(&c->lock);
    c->data = data;
    c->data_free = free_fn;
    pthread_mutex_unlock(&c->lock);
}

void *call_data(struct call *c)
{
    pthread_mutex_lock(&c->lock);
    void *data = c->data;
    pthread_mutex_unlock(&c->lock);
    return data;
}
