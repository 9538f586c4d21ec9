/* Where a server is and whom a client believes: addresses, the CA, the client's own certificate;
 * and a look at a server's certificate that says in words why a handshake fails. OpenSSL alone;
 * the connections themselves are core's (rpc_client.c).
 *
 * Off loopback all is TLS. On loopback it is plain, unless the address says tls:// or
 * TANDEM_CA_FILE is set. */
#ifndef TANDEM_PROTO_RPC_TLS_H
#define TANDEM_PROTO_RPC_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct rpc_target {
    char core[512]; /* as core resolves it: "unix:/path", "ipv4:10.1.2.3:7443", "dns:host:7443" */
    char host[256]; /* what the certificate must be for; "" for unix */
    char port[8];
    bool tls;
};

/* text: host:port, tls://host:port, [v6]:port or unix:/path. ca_file: NULL = TANDEM_CA_FILE. */
int rpc_target_parse(struct rpc_target *out, const char *text, const char *ca_file,
                     struct error *err);

/* PEM texts with the files that they are from, owned. NULL = none. */
struct rpc_trust {
    char *ca_file, *ca_pem; /* never NULL once loaded */
    bool ca_is_systems;     /* nobody has named it */
    char *cert_file, *cert_pem;
    char *key_file, *key_pem;
};

/* Files by name, or NULL: the CA by TANDEM_CA_FILE, then ca.pem in the user's config folder, then
 * what the system trusts; certificate and key by TANDEM_CERT_FILE and TANDEM_KEY_FILE. */
int rpc_trust_load(struct rpc_trust *out, const char *ca_file, const char *cert_file,
                   const char *key_file, struct error *err);
void rpc_trust_free(struct rpc_trust *t);

/* What a server showed. */
struct rpc_view {
    char version[16]; /* "TLSv1.3" */
    char subject[128];
    char issuer[128];
    char names[256]; /* "localhost, 10.1.2.3" */
    int64_t ends_s;  /* unix seconds */
    bool trusted;    /* of the CA, for this host, now */
};

/* Connects, shakes hands, checks the certificate and leaves. *out is filled as far as it came, even
 * when it fails. ERR_UNAVAILABLE: nobody answers; ERR_DEADLINE_EXCEEDED: somebody does, but doesn't
 * go on with the handshake; ERR_FAILED_PRECONDITION: one of the two sides doesn't trust the other,
 * or it isn't TLS. */
int rpc_tls_look(const struct rpc_target *target, const struct rpc_trust *trust,
                 struct rpc_view *out, struct error *err);
/* When the certificate in a PEM text ends; 0: it holds none. */
int64_t rpc_tls_pem_ends_s(const char *pem);

/* A file of the user's config folder ($XDG_CONFIG_HOME/tandem or ~/.config/tandem). */
bool rpc_config_path(char *out, size_t size, const char *name);

#endif
