/* The gRPC side of the controller: listens, authenticates, decodes, bounds, dispatches. It knows
 * methods as a table and nothing of what they do.
 *
 * Handlers run on the io threads and must not block: they post to a mailbox or answer at once. */
#ifndef TANDEM_SERVER_RPC_SERVER_H
#define TANDEM_SERVER_RPC_SERVER_H

#include <protobuf-c/protobuf-c.h>

#include "server/rpc/call.h"
#include "server/rpc/tls.h"

enum method_kind { METHOD_UNARY, METHOD_SERVER_STREAM, METHOD_BIDI };
/* Who may call a method. For users it is the lowest role; what of a tenant's things each may then
 * see or change is the handler's question (server/rights.h). */
enum method_access {
    METHOD_NOBODY, /* no right was given: server_new refuses the table */
    METHOD_PUBLIC, /* health, reflection */
    METHOD_WORKER, /* an attempt's token */
    METHOD_VIEWER, /* reads its tenant; its own tokens */
    METHOD_MEMBER, /* submits, changes its own jobs */
    METHOD_TENANT_ADMIN,
    METHOD_ADMIN,
};

struct method {
    const char *path; /* "/tandem.v1.Jobs/Submit" */
    enum method_kind kind;
    enum method_access access;
    const ProtobufCMessageDescriptor *request;
    /* The request, decoded and checked (borrowed for the call of this function). Unary and server
     * stream: once. Bidi: once for each message. */
    void (*on_message)(void *ctx, struct call *c, const ProtobufCMessage *request);
    /* Bidi and server stream: may be NULL. on_half_close: the client sends no more. on_closed: the
     * call is over, for whatever reason; called exactly once if on_message was ever called. */
    void (*on_half_close)(void *ctx, struct call *c);
    void (*on_closed)(void *ctx, struct call *c);
};

struct server;

struct server_options {
    /* NULL-terminated: host:port (off loopback with TLS only; port 0 = any), unix:/path. */
    const char *const *listen;
    /* A socket file among the first so many of these is trusted: who may open it needs no token.
     * The rest need one, as TCP does. */
    int num_trusted;
    /* Tables of methods, each ended by path NULL; the list by NULL. A method that is in the
     * descriptors and in no table answers UNIMPLEMENTED, by name. */
    const struct method *const *tables;
    void *ctx;
    /* May this call be made? bearer: the token or NULL. unix_socket: the call came over a
     * trusted socket file. peer: the address it came from, without a port ("10.1.2.3",
     * "fd00::7"); "unix" for a socket file, "loopback" for plain TCP, which is this host. Fills
     * *caller (strings: static or owned by ctx, valid as long as the server; or copied by the
     * server at once). -1: refused. Runs on io threads. */
    int (*authenticate)(void *ctx, const char *bearer, bool unix_socket, const char *peer,
                        const struct method *method, struct caller *caller, struct error *err);
    /* For each open stream at server_recheck: is the caller still who it was, and may it still read
     * this? -1: the stream ends with err. May be NULL: nobody loses a right. Must not block, nor
     * call the server. */
    int (*still_allowed)(void *ctx, const struct caller *caller, const struct method *method,
                         struct error *err);
    int num_threads;          /* that work the sockets; 0 = 2. One more only answers */
    size_t max_request_bytes; /* 0 = 4 MiB */
    /* What core may hold of what it reads: 0 = 512 MiB, and as much of the trusted socket files. */
    size_t max_reading_bytes;
    /* NULL: none. Else every host:port speaks TLS, on loopback too. Borrowed by server_new. */
    const struct tls_files *tls;
    /* Of connections over TLS; 0 = no limit. Those of this host are counted in the first only. */
    int max_connections, max_connections_per_address;
    int64_t handshake_ms; /* 0 = BRIDGE_HANDSHAKE_MS */
    /* What is too slow to be meant well is ended after so long: a call without its first message, a
     * connection whose client doesn't read how a call has ended, one without a call. 0 = half a
     * minute, ten minutes, half an hour. */
    int64_t first_message_ms, unread_end_ms, idle_connection_ms;
};

/* Listens, but serves nobody before server_start: connections wait. */
int server_new(struct server **out, const struct server_options *options, struct error *err);
/* The bound port of listener i (host:port ones), until server_stop. */
int server_port(const struct server *s, int i);
int server_start(struct server *s, struct error *err);
/* Rights have changed: ends the streams that still_allowed refuses, those that are being opened
 * right now included. Returns how many it refused; one whose peer doesn't read is cut off by the
 * next recheck. Any thread. */
int server_recheck(struct server *s);
/* Health: serving or not. While a listener fails its checks (selfcheck.h) it is not, in any case.
 */
void server_set_serving(struct server *s, bool serving);
/* Reads the certificate again; what is open stays open. Changed files are also noticed within
 * seconds. On an error the old one stays. */
int server_reload_tls(struct server *s, struct error *err);
/* No new calls; open streams end with UNAVAILABLE "server is shutting down"; at most grace_ms. */
void server_stop(struct server *s, int64_t grace_ms);
void server_free(struct server *s);

#endif
