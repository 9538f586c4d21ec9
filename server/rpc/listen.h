/* Where the controller listens: which addresses are allowed, and making room for a socket file. */
#ifndef TANDEM_SERVER_RPC_LISTEN_H
#define TANDEM_SERVER_RPC_LISTEN_H

#include <stdbool.h>

#include "base/error.h"

struct listen_address {
    bool is_unix;
    char target[160]; /* for core: 127.0.0.1:7000, [::1]:0, unix:/path */
    char path[108];   /* unix: the socket file */
};

/* host:port on loopback, or unix:/path. Others are refused: there is no TLS yet. */
int listen_parse(struct listen_address *out, const char *text, struct error *err);
/* unix: removes a socket file that nobody answers on; one that lives is an error. */
int listen_prepare(const struct listen_address *a, struct error *err);
/* Why could core not bind? Tries it by hand for the errno. Returns -1. */
int listen_explain(const struct listen_address *a, struct error *err);

#endif
