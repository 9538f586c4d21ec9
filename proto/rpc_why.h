/* Why a call reached no server, in words: core's own are for those who know it. */
#ifndef TANDEM_PROTO_RPC_WHY_H
#define TANDEM_PROTO_RPC_WHY_H

#include <stdbool.h>

#include "base/error.h"
#include "proto/rpc_tls.h"

/* What was called. */
struct rpc_why_of {
    const char *target; /* as the user wrote it */
    const struct rpc_target *at;
    const struct rpc_trust *trust; /* with TLS */
};

/* A call's status and its text: the server's own words as they are, ours where core has made them.
 * May connect once more, to see why it came to nothing. */
void rpc_why(const struct rpc_why_of *of, enum error_code code, const char *text,
             struct error *err);

/* A socket file whose server has as many connections waiting as it may have. */
bool rpc_why_is_crowded(const struct rpc_target *at);

#endif
