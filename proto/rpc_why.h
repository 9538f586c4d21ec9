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
 * May connect once more, to see why it came to nothing. True: the server is there, and wasn't
 * reached for what may be over in a moment. */
bool rpc_why(const struct rpc_why_of *of, enum error_code code, const char *text,
             struct error *err);

#endif
