/* What server.c and call.c share, and nobody else sees: the call as gRPC core knows it.
 *
 * Core hands back one tag a batch. All tags of one call come to one io thread, so handlers of one
 * call never run side by side; batches may be started from any thread, under the call's lock. A
 * call is live from the moment core hands it over until it is closed and every batch is back; then
 * the core object is released, and what remains is a shell that its holders drop when they like. */
#ifndef TANDEM_SERVER_RPC_WIRE_H
#define TANDEM_SERVER_RPC_WIRE_H

#include <grpc/grpc.h>
#include <pthread.h>
#include <stdatomic.h>

#include "proto/rpc_tags.h"
#include "server/rpc/server.h"

/* Bytes that may wait behind a slow reader, beside CALL_QUEUE_MAX messages. */
#define WIRE_QUEUE_MAX_BYTES ((size_t)8 << 20)

/* An address as text, and a NUL. */
#define WIRE_PEER_SIZE 48

struct wire_tag {
    void (*fn)(struct call *c, bool ok);
    struct call *call;
};

struct wire_message {
    struct wire_message *next;
    grpc_byte_buffer *buffer; /* owned */
    size_t bytes;
};

struct call {
    atomic_int refs;          /* one for the wire while live, one for each holder */
    struct server *server;    /* only while live */
    struct call *next, *prev; /* in the server's list of live calls; guarded by its lock */
    grpc_completion_queue *cq;
    bool by_unix;                /* over a socket file */
    struct crowd_member *member; /* its connection, while live; NULL = not counted */
    int64_t opened_ms;
    char peer[WIRE_PEER_SIZE];   /* where it came from; io thread only */
    const struct method *method; /* io thread only */
    void *ctx;                   /* the method's; io thread only */
    bool dispatched;             /* on_message was called; io thread only */
    bool admitted;               /* caller is set and was let in; guarded by the server's lock */
    bool refused;                /* by a recheck; guarded by the server's lock */
    struct caller caller;        /* strings in caller_text; method: static */
    char *caller_text;           /* owned */
    grpc_call_details details;
    grpc_metadata_array metadata;
    grpc_byte_buffer *incoming; /* owned; what the receive batch left */
    int cancelled;              /* written by core */
    struct wire_tag on_new, on_close, on_recv, on_send, on_status;

    pthread_mutex_t lock; /* guards what follows, and the order of batches */
    grpc_call *core;      /* owned; NULL before and after the live time */
    int batches;          /* outstanding */
    bool closed;          /* the close tag came back: nothing may be started any more */
    bool ending;          /* the status is on its way */
    bool headers_sent;
    bool sending; /* one message is on its way */
    bool recving; /* one receive is outstanding */
    bool held;    /* call_hold: no receive is started */
    bool no_more; /* the client has half-closed */
    bool heard;   /* its first message came */
    struct wire_message *queue, **queue_last;
    uint32_t num_queued;
    size_t queued_bytes;
    size_t sending_bytes; /* of the message that is on its way */
    size_t charged_bytes; /* of its connection's share: all that has not been sent */
    int64_t end_ms;       /* when the end was decided */
    uint64_t num_dropped;
    bool end_pending; /* the status follows behind the queue */
    grpc_status_code end_code;
    char *end_text; /* owned */
    void *data;
    void (*data_free)(void *data);
};

/* A call that waits to be handed out by core; live once its on_new tag is back. */
struct call *wire_call_new(struct server *s, grpc_completion_queue *cq, bool by_unix);
/* Frees one that core never handed out, or that never went live. */
void wire_call_discard(struct call *c);
/* Before anything else is begun on a call that goes live: to be told of its end. The server's lock
 * is held. */
void wire_call_opened(struct call *c);
/* Asks core for the next message, unless held, half-closed, ending or asked already. */
void wire_call_recv(struct call *c);
/* Ends it with a status, dropping what is queued. */
void wire_call_abort(struct call *c, enum error_code code, const char *text);
/* Ends it although a message is stuck on its way to a peer that doesn't read. */
void wire_call_cut(struct call *c, enum error_code code, const char *text);
/* Ends one that nothing was sent on, and that is not to wait until its peer has read why. */
void wire_call_drop(struct call *c, enum error_code code, const char *text);
/* Opened before then, and no message so far. */
bool wire_call_is_late(struct call *c, int64_t then_ms);
/* Ended before then, and still not gone: its peer doesn't read. */
bool wire_call_is_stuck(struct call *c, int64_t then_ms);
bool wire_call_past_deadline(const struct call *c);

/* dispatch.c: the rules of what comes in. */
void server_call_new(struct call *c, bool ok);
void server_call_recv(struct call *c, bool ok);
/* The call is no longer live; its grpc objects are gone. reset: its client took it back. */
void server_call_retired(struct server *s, struct call *c, bool reset);

/* Tables of the server itself; ctx is the struct server. */
extern const struct method health_methods[];
extern const struct method reflection_methods[];

/* Health's state within the server. */
struct health;
struct health *health_new(void);
void health_free(struct health *h);
void health_set(struct health *h, bool serving);
struct health *server_health(struct server *s);

/* The embedded descriptor set, split into its files, with every symbol's file. */
struct descriptors;
int descriptors_new(struct descriptors **out, struct error *err);
void descriptors_free(struct descriptors *d);
const struct descriptors *server_descriptors(const struct server *s);

#endif
