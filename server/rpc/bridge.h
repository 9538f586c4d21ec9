/* The thread that speaks TLS: shakes hands with whom the acceptor has let in, and passes bytes
 * between the network and core, which takes plain sockets only.
 *
 * A handshake has a deadline, and when too many are under way the oldest is dropped: who is slow
 * on purpose can't keep the others out. */
#ifndef TANDEM_SERVER_RPC_BRIDGE_H
#define TANDEM_SERVER_RPC_BRIDGE_H

#include "server/rpc/peers.h"
#include "server/rpc/tls.h"

/* A connection that says nothing is dropped after this. */
#define BRIDGE_HANDSHAKE_MS 10000

struct bridge;
struct bridge_options {
    struct tls *tls;     /* borrowed, as long as the bridge */
    struct peers *peers; /* borrowed */
    /* Gives core its end; on the bridge's thread. The callback takes fd. */
    void (*on_open)(void *ctx, int fd);
    void *ctx;
    int64_t handshake_ms; /* 0 = BRIDGE_HANDSHAKE_MS */
};
int bridge_new(struct bridge **out, const struct bridge_options *options, struct error *err);
/* Takes the socket, which doesn't block and was counted by peers_enter. Any thread. */
void bridge_add(struct bridge *b, int fd, const struct peer_address *from);
/* After this on_open isn't called any more; what is open goes on. */
void bridge_stop_opening(struct bridge *b);
/* Lets what core has said last go out, for at most a second; then closes all, and joins. */
void bridge_free(struct bridge *b);

#endif
