/* server/rpc/call.h without gRPC: a call whose other end is a user or a tandem-node of the
 * simulation. What a dead controller says is not heard. */
#ifndef TANDEM_TESTS_SIM_CALL_H
#define TANDEM_TESTS_SIM_CALL_H

#include "server/rpc/call.h"
#include "tests/sim/sim.h"

struct sim_peer {
    void (*message)(void *peer, const ProtobufCMessage *m); /* a reply, or one of a stream */
    void (*end)(void *peer, enum error_code code, const char *text);
    void (*freed)(void *peer); /* nobody holds the call any more; may be NULL */
};

/* One reference. who's strings must live on. */
struct call *sim_call_new(struct sim *s, const struct caller *who, const struct sim_peer *peer,
                          void *arg);
/* The other end is gone. */
void sim_call_over(struct call *c);

#endif
