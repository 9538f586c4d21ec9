/* The thread that takes connections and hands them to core.
 *
 * Core's own listener dies for good when the process runs out of descriptors once. This one turns
 * away what would go into the headroom that the database, logs and launches need, and goes on. */
#ifndef TANDEM_SERVER_RPC_ACCEPTOR_H
#define TANDEM_SERVER_RPC_ACCEPTOR_H

#include "server/rpc/listener.h"

struct acceptor;
/* A socket that doesn't block, taken by the callback, and the listener that it came by; from means
 * nothing for unix. */
typedef void acceptor_take(void *ctx, int connection, int listener_idx,
                           const struct sockaddr_storage *from);
/* Takes connections on a thread of its own, and hands each over. The listeners are borrowed. */
int acceptor_new(struct acceptor **out, struct listener *listeners, int num_listeners,
                 acceptor_take *on_connection, void *ctx, struct error *err);
/* Closes listener i and opens it again, soon, on the acceptor's thread. Any thread. */
void acceptor_reopen(struct acceptor *a, int i);
/* Joins the thread: afterwards no callback runs. */
void acceptor_free(struct acceptor *a);

#endif
