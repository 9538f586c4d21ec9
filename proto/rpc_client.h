/* A client of the controller over gRPC C core: unary calls, server streams, one bidi stream. The
 * only client file; CLI, tandem-node and tests use it. Blocking, with deadlines. A channel may be
 * used by several threads; a stream by one reader and one writer. */
#ifndef TANDEM_PROTO_RPC_CLIENT_H
#define TANDEM_PROTO_RPC_CLIENT_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

struct rpc_channel;
struct rpc_stream;

struct rpc_channel_options {
    const char *target; /* host:port, tls://host:port or unix:/path; see rpc_tls.h */
    const char *token;  /* sent as "authorization: Bearer ..."; NULL = none */
    bool wait_ready;    /* calls wait for the server to come up, until their deadline */
    /* Asked now and then while rpc_call waits; true: it gives up (ERR_CANCELLED). NULL = never. */
    bool (*has_given_up)(void);
    /* For TLS; NULL = where rpc_trust_load (rpc_tls.h) finds them. A ca_file means TLS. */
    const char *ca_file, *cert_file, *key_file;
};

/* Doesn't connect yet. Off loopback everything is TLS, the token above all. */
int rpc_channel_open(struct rpc_channel **out, const struct rpc_channel_options *options,
                     struct error *err);
void rpc_channel_close(struct rpc_channel *c);

/* After a call that reached nobody: waits until a server is there, timeout_ms at most. To sleep
 * instead would leave core alone, which does its part of a connection while somebody waits for it.
 */
void rpc_channel_wait(struct rpc_channel *c, int64_t timeout_ms);

/* method: "/tandem.v1.Jobs/Submit". *reply is unpacked with descriptor; freed by
 * protobuf_c_message_free_unpacked(reply, NULL). A server's status becomes err; a server that
 * can't be reached gives ERR_UNAVAILABLE. deadline_ms: from now; it must be positive. */
int rpc_call(struct rpc_channel *c, const char *method, const ProtobufCMessage *request,
             const ProtobufCMessageDescriptor *descriptor, ProtobufCMessage **reply,
             int64_t deadline_ms, struct error *err);

/* Server stream: request, then half-close. Bidi: request NULL. */
int rpc_stream_open(struct rpc_channel *c, const char *method, const ProtobufCMessage *request,
                    struct rpc_stream **out, struct error *err);
/* Blocks until the message is handed to the transport. */
int rpc_stream_send(struct rpc_stream *s, const ProtobufCMessage *message, struct error *err);
/* The client sends no more; the server may go on. */
int rpc_stream_half_close(struct rpc_stream *s, struct error *err);
/* Next message within timeout_ms (-1 = for ever). 1 = *reply is there; 0 = the stream ended with
 * OK; -1 = err (ERR_DEADLINE_EXCEEDED after timeout_ms: the stream goes on, call again). */
int rpc_stream_recv(struct rpc_stream *s, const ProtobufCMessageDescriptor *descriptor,
                    ProtobufCMessage **reply, int64_t timeout_ms, struct error *err);
/* The reader: has the server taken it up? It says so with its first message at the latest. */
bool rpc_stream_is_open(struct rpc_stream *s);
/* Any thread: both directions end; a blocked recv or send returns. */
void rpc_stream_cancel(struct rpc_stream *s);
/* Once no other thread uses it any more. */
void rpc_stream_close(struct rpc_stream *s);

/* Where the server is and by what right, as the CLI finds it: --server, TANDEM_SERVER, then the
 * user's config folder (which tandemd --dev writes); the token file by TANDEM_TOKEN_FILE. Strings
 * are malloc'ed. token may come out NULL (unix sockets need none, or the file isn't there). */
int rpc_find_server(const char *server_flag, char **target, char **token, struct error *err);

#endif
