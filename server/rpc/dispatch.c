/* What happens to a call that core hands over: looked up, admitted (live calls, deadline, token)
 * before any of its bytes are read, then decoded, checked and handed to its method. */
#include <grpc/byte_buffer_reader.h>
#include <grpc/support/alloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "proto/text.h"
#include "server/rpc/descriptors.h"
#include "server/rpc/state.h"

#define TOO_MANY_TEXT "too many calls at once"

enum {
    MAX_LIVE_CALLS = 16384, /* over all connections */
    CROWDED_CALLS = 12288,  /* from here on a connection that has many gets no more */
    MANY_CALLS = 64,
    HARD_MAX_CALLS = 65536, /* for connections that have few */
    FEW_CALLS = 4,
    /* A stream that the client has ended is ours until its last batch is back. */
    MAX_CALLS_PER_CONNECTION = SERVER_MAX_STREAMS * 3 / 2,
    MAX_BEARER_BYTES = 512,
    UNPACKED_FACTOR = 8, /* memory of a decoded request against its size on the wire */
};

/* ---- a new call ---------------------------------------------------------------------------- */

void server_post_call(struct server *s, grpc_completion_queue *cq, bool by_unix)
{
    struct call *c = wire_call_new(s, cq, by_unix);
    ASSERT(c);
    TAG_IN(&c->on_new);
    if (grpc_server_request_call(s->cores[by_unix], &c->core, &c->details, &c->metadata, cq, cq,
                                 &c->on_new) != GRPC_CALL_OK) {
        wire_call_discard(c);
    }
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

/* The token of "authorization: Bearer TOKEN"; false: nothing of the kind is shown. What can't be
 * read as one token is the empty one, which nobody has: on the operator's socket it mustn't count
 * as none. */
static bool find_bearer(const struct call *c, char *out, size_t size)
{
    int num = 0;
    for (size_t i = 0; i < c->metadata.count; i++) {
        const grpc_metadata *m = &c->metadata.metadata[i];
        size_t len = GRPC_SLICE_LENGTH(m->value);
        if (grpc_slice_str_cmp(m->key, "authorization") != 0) {
            continue;
        }
        out[0] = 0;
        if (++num == 1 && len > 7 && len - 7 < size &&
            memcmp(GRPC_SLICE_START_PTR(m->value), "Bearer ", 7) == 0) {
            memcpy(out, GRPC_SLICE_START_PTR(m->value) + 7, len - 7);
            out[len - 7] = 0;
        }
    }
    return num > 0;
}

/* "Jobs/Cancel" of "/tandem.v1.Jobs/Cancel". */
static const char *service_method(const struct method *m)
{
    const char *slash = strrchr(m->path, '/'), *dot = strrchr(m->path, '.');
    return dot && dot < slash ? dot + 1 : m->path + 1;
}

static void keep_caller(struct call *c, const struct caller *from)
{
    const char *texts[4] = {from->user, from->tenant, from->role, c->peer};
    const char **kept[4] = {&c->caller.user, &c->caller.tenant, &c->caller.role, &c->caller.peer};
    size_t bytes = 0;
    for (int i = 0; i < 4; i++) {
        bytes += strlen(texts[i] ? texts[i] : "") + 1;
    }
    char *p = malloc(bytes);
    ASSERT(p);
    c->caller = *from;
    c->caller_text = p;
    c->caller.method = service_method(c->method);
    for (int i = 0; i < 4; i++) {
        const char *text = texts[i] ? texts[i] : "";
        *kept[i] = p;
        memcpy(p, text, strlen(text) + 1);
        p += strlen(text) + 1;
    }
}

/* Lets the call in. Rights that changed since the caller was looked up are looked at again: until
 * here a recheck doesn't see the call. */
static int let_in(struct server *s, struct call *c, uint64_t num_rechecks, struct error *err)
{
    pthread_mutex_lock(&s->lock);
    c->admitted = true;
    bool again = s->num_rechecks != num_rechecks;
    pthread_mutex_unlock(&s->lock);
    return again && s->options.still_allowed
               ? s->options.still_allowed(s->options.ctx, &c->caller, c->method, err)
               : 0;
}

/* True, or the call is ended with the reason. num_rechecks: before the caller was looked up. */
static bool admit(struct server *s, struct call *c, bool stopping, bool too_many,
                  uint64_t num_rechecks)
{
    struct error err = {.code = ERR_UNAUTHENTICATED};
    if (stopping) {
        call_fail(c, ERR_UNAVAILABLE, SERVER_SHUTDOWN_TEXT);
    } else if (too_many) {
        call_fail(c, ERR_RESOURCE_EXHAUSTED, TOO_MANY_TEXT);
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
        if (s->options.authenticate(s->options.ctx, has_bearer ? bearer : NULL, c->by_unix, c->peer,
                                    c->method, &caller, &err) == 0) {
            keep_caller(c, &caller);
            if (let_in(s, c, num_rechecks, &err) == 0) {
                return true;
            }
        }
        call_fail_error(c, &err);
    }
    return false;
}

/* Core calls a connection that it was given "fd:N". Plain TCP is loopback's; what the bridge of TLS
 * doesn't know is a socket file that isn't trusted. */
static void name_peer(struct server *s, struct call *c)
{
    snprintf(c->peer, sizeof c->peer, "%s", c->by_unix ? "unix" : "loopback");
    if (c->by_unix || !s->peers) {
        return;
    }
    char *name = grpc_call_get_peer(c->core);
    const char *digits = strrchr(name, ':');
    if (!digits || !peers_find(s->peers, atoi(digits + 1), c->peer)) {
        snprintf(c->peer, sizeof c->peer, "local");
    }
    gpr_free(name);
}

/* Lock held. Counts the call; what its connection has too many of is its own affair. */
static void enter(struct server *s, struct call *c, const char *peer, bool *too_many,
                  bool *its_own_fault)
{
    c->member = crowd_enter(s->crowd, peer);
    int32_t calls = c->member ? crowd_calls(c->member) : 0;
    *its_own_fault =
        calls > MAX_CALLS_PER_CONNECTION || (s->num_live >= CROWDED_CALLS && calls > MANY_CALLS);
    if (calls > MAX_CALLS_PER_CONNECTION) {
        crowd_hang_up(c->member); /* no client that keeps to its limit gets here */
    }
    *too_many = !c->member || s->num_live >= (calls > FEW_CALLS ? MAX_LIVE_CALLS : HARD_MAX_CALLS);
    s->num_live++;
    c->next = s->live;
    if (c->next) {
        c->next->prev = c;
    }
    s->live = c;
}

void server_call_new(struct call *c, bool ok)
{
    struct server *s = c->server;
    if (!ok) {
        wire_call_discard(c);
        return;
    }
    c->opened_ms = clock_mono_ms();
    name_peer(s, c);
    const struct method_entry *e = find_method(s, c->details.method);
    if (e) {
        c->method = e->method;
        c->ctx = e->ctx;
    }
    bool too_many, its_own_fault;
    char *peer = grpc_call_get_peer(c->core);
    pthread_mutex_lock(&s->lock);
    bool stopping = s->stopping, drained = s->drained;
    uint64_t num_rechecks = s->num_rechecks;
    if (!drained) {
        wire_call_opened(c);
        enter(s, c, peer, &too_many, &its_own_fault);
    }
    pthread_mutex_unlock(&s->lock);
    gpr_free(peer);
    if (drained) {
        wire_call_discard(c); /* core has ended it, and its queue may be shut down */
        return;
    }
    if (!stopping) {
        server_post_call(s, c->cq, c->by_unix);
    }
    if (its_own_fault) {
        wire_call_drop(c, ERR_RESOURCE_EXHAUSTED, TOO_MANY_TEXT);
    } else if (admit(s, c, stopping, too_many, num_rechecks)) {
        wire_call_recv(c);
    }
}

void server_call_retired(struct server *s, struct call *c, bool reset)
{
    pthread_mutex_lock(&s->lock);
    if (reset && c->member && !crowd_reset(c->member, c->opened_ms, clock_mono_ms())) {
        crowd_hang_up(c->member);
    }
    if (c->next) {
        c->next->prev = c->prev;
    }
    if (c->prev) {
        c->prev->next = c->next;
    } else {
        s->live = c->next;
    }
    s->num_live--;
    crowd_discharge(c->member, c->charged_bytes);
    crowd_leave(c->member);
    c->member = NULL;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

void server_sweep_calls(struct server *s)
{
    int64_t now = clock_mono_ms();
    pthread_mutex_lock(&s->lock);
    for (struct call *c = s->live; c; c = c->next) {
        if (wire_call_is_late(c, now - s->options.first_message_ms)) {
            wire_call_cut(c, ERR_DEADLINE_EXCEEDED, "the call took too long");
        }
        if (wire_call_is_stuck(c, now - s->options.unread_end_ms) && c->member) {
            crowd_hang_up(c->member); /* a batch that isn't written comes back no other way */
        }
    }
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
