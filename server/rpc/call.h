/* One RPC as the controller's code sees it. A call is reference-counted; every function here is
 * safe on every thread and does nothing once the call is over. Replies may be started from the
 * owner thread; nothing here blocks. */
#ifndef TANDEM_SERVER_RPC_CALL_H
#define TANDEM_SERVER_RPC_CALL_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct call;

struct call *call_ref(struct call *c);
void call_unref(struct call *c);

/* Who is calling, as the authenticator said. Lives as long as the call. */
struct caller {
    const char *user;   /* "dev" */
    const char *tenant; /* "default" */
    const char *role;   /* admin, tenant-admin, member, viewer, worker */
    int64_t token_id;   /* 0 = it came in without one of the table of tokens */
    int64_t job_id;     /* workers: the attempt they may speak for */
    int32_t attempt;
    const char *peer;   /* set by the server: where the call came from, see authenticate */
    const char *method; /* set by the server: "Jobs/Cancel" */
};
const struct caller *call_caller(const struct call *c);

/* A message, in or out, has at most so many bytes: what every gRPC client takes by default. A
 * larger reply fails with RESOURCE_EXHAUSTED, a larger streamed message is lost and counted. */
#define CALL_MESSAGE_MAX_BYTES ((size_t)4 << 20)

/* Unary: one of these two, once. The text of a failure is cut at 1 KB. */
void call_reply(struct call *c, const ProtobufCMessage *reply);
void call_fail(struct call *c, enum error_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void call_fail_error(struct call *c, const struct error *err);

/* Streams. Queued behind what is being sent; false: the queue is full (CALL_QUEUE_MAX messages)
 * or the call is over; the message is lost and counted. */
#define CALL_QUEUE_MAX 256
bool call_send(struct call *c, const ProtobufCMessage *message);
/* Tells the client that the stream is open, before there is any message: by its headers. */
void call_open(struct call *c);
/* The same bytes to many: pack once, send to each. */
struct call_packed;
struct call_packed *call_pack(const ProtobufCMessage *message);
bool call_send_packed(struct call *c, const struct call_packed *p);
void call_packed_free(struct call_packed *p);
/* Messages that are queued now. */
uint32_t call_queued(struct call *c);
/* Messages that were lost so far. */
uint64_t call_dropped(struct call *c);
/* Bidi: while held, no further message is read, and the client's sends fill its window and wait.
 * One message more may come. */
void call_hold(struct call *c, bool hold);
/* Ends a stream with OK after what is queued. */
void call_finish(struct call *c);
/* True once the peer is gone or the call has ended. */
bool call_is_over(struct call *c);

/* A handler's own pointer, freed by free_fn (may be NULL) when the call is freed. */
void call_set_data(struct call *c, void *data, void (*free_fn)(void *data));
void *call_data(struct call *c);

#endif
