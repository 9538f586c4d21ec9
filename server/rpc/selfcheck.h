/* A thread that looks at the server from outside: every few seconds it connects to each listener
 * as a client does, and wants to hear HTTP/2 (through TLS, where the listener speaks it).
 *
 * A listener that fails several times in a row makes the server unhealthy, and is opened again if
 * it is deaf: its socket file was removed, say. One that turns connections away for want of
 * descriptors is left as it is. */
#ifndef TANDEM_SERVER_RPC_SELFCHECK_H
#define TANDEM_SERVER_RPC_SELFCHECK_H

#include "server/rpc/listener.h"

struct selfcheck;
struct selfcheck_options {
    const struct listener *listeners; /* their addresses are copied */
    int num_listeners;
    bool tls;         /* TCP ones speak TLS */
    bool client_cert; /* and ask for a certificate that this thread hasn't: a handshake is enough */
    /* On the thread. tick: once a round. */
    void (*reopen)(void *ctx, int i);
    void (*healthy)(void *ctx, bool ok);
    void (*tick)(void *ctx);
    void *ctx;
};
int selfcheck_new(struct selfcheck **out, const struct selfcheck_options *options,
                  struct error *err);
/* Joins. */
void selfcheck_free(struct selfcheck *s);

#endif
