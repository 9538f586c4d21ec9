/* The thread that takes connections and hands them to core.
 *
 * Core's own listener dies for good when the process runs out of descriptors once. This one turns
 * away what would go into the headroom that the database, logs and launches need, and goes on. */
#ifndef TANDEM_SERVER_RPC_ACCEPTOR_H
#define TANDEM_SERVER_RPC_ACCEPTOR_H

#include "server/rpc/listener.h"

struct acceptor;
/* Takes connections on a thread of its own, and hands each over: connection is a socket that
 * doesn't block, taken by the callback. The listeners are borrowed. */
int acceptor_new(struct acceptor **out, const struct listener *listeners, int num_listeners,
                 void (*on_connection)(void *ctx, int connection, bool is_unix), void *ctx,
                 struct error *err);
/* Joins the thread: afterwards no callback runs. */
void acceptor_free(struct acceptor *a);

#endif
