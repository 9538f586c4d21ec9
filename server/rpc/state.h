/* The server's own state, for server.c (set-up, threads, end) and dispatch.c (calls). */
#ifndef TANDEM_SERVER_RPC_STATE_H
#define TANDEM_SERVER_RPC_STATE_H

#include <pthread.h>

#include "server/rpc/acceptor.h"
#include "server/rpc/bridge.h"
#include "server/rpc/connections.h"
#include "server/rpc/crowd.h"
#include "server/rpc/listener.h"
#include "server/rpc/peers.h"
#include "server/rpc/selfcheck.h"
#include "server/rpc/tls.h"
#include "server/rpc/wire.h"

#define SERVER_SHUTDOWN_TEXT "server is shutting down"

enum {
    SERVER_MAX_LISTENERS = 10,
    SERVER_MAX_THREADS = 16,
    SERVER_MAX_METHODS = 256,
    SERVER_POSTED_PER_THREAD = 32, /* calls that core may hand over before we ask for more */
    SERVER_MAX_STREAMS = 1024,     /* calls on one connection */
};

struct method_entry {
    const struct method *method;
    void *ctx;
};

struct io_thread {
    pthread_t thread;
    struct server *server;
    grpc_completion_queue *cq; /* owned */
    bool running;
};

struct server {
    struct server_options options; /* the lists are borrowed only by server_new */
    /* Owned. [true] serves the trusted socket files, [false] the rest: what a call may do without a
     * token follows from which of them it came by, and from nothing that a peer can say. */
    grpc_server *cores[2];
    struct io_thread threads[SERVER_MAX_THREADS];
    int num_threads;
    struct listener listeners[SERVER_MAX_LISTENERS]; /* owned */
    int num_listeners;
    struct acceptor *acceptor;                       /* owned; while started */
    struct selfcheck *selfcheck;                     /* owned; while started */
    struct tls *tls;                                 /* owned; NULL = plain */
    struct peers *peers;                             /* owned; with TLS */
    struct bridge *bridge;                           /* owned; with TLS, while started */
    int64_t warned_limit_ms;                         /* of the acceptor's thread */
    int64_t warned_expiry_ms;                        /* of selfcheck's thread */
    struct method_entry methods[SERVER_MAX_METHODS]; /* sorted by path */
    size_t num_methods;
    struct descriptors *descriptors; /* owned */
    struct health *health;           /* owned */
    struct connections *connections; /* owned; that core has */
    bool started, stopped;           /* of the owner of the server */
    bool client_cert;                /* TLS asks for one */

    pthread_mutex_t lock; /* guards what follows; taken before a call's own lock */
    pthread_cond_t changed;
    struct call *live;
    int num_live;
    uint64_t num_rechecks;
    struct crowd *crowd; /* owned; of the live calls */
    bool stopping;
    bool drained; /* server_stop has seen the last call off: none enters any more */
    bool serving, doors_open; /* healthy: both */
};

/* Ends calls whose first message doesn't come. */
void server_sweep_calls(struct server *s);
/* Lets a core hand over one call more. */
void server_post_call(struct server *s, grpc_completion_queue *cq, bool by_unix);

#endif
