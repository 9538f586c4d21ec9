/* The certificate that listeners show, and what they ask of their clients. TLS 1.2 at least, h2
 * alone, no renegotiation, no resumption. Safe on every thread. */
#ifndef TANDEM_SERVER_RPC_TLS_H
#define TANDEM_SERVER_RPC_TLS_H

#include <openssl/types.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

struct tls_files {
    const char *cert_file; /* PEM: the server's certificate, then those between it and its CA */
    const char *key_file;  /* PEM, 0600, without a passphrase */
    const char *client_ca_file; /* NULL: clients need no certificate */
    bool require_client_cert;   /* false: one that comes is checked, none is fine */
};

struct tls;
/* Reads and checks the files: key and certificate belong together, nobody else can read the key. */
int tls_new(struct tls **out, const struct tls_files *files, struct error *err);
void tls_free(struct tls *t);
/* Reads the files again. On an error what was there stays; connections that are open stay always.
 */
int tls_reload(struct tls *t, struct error *err);
/* The files are others than those that were read, by inode, size or time. */
bool tls_is_stale(struct tls *t);
/* The server's side of one connection; the caller's. NULL: out of memory. */
SSL *tls_session(struct tls *t);
/* When the server's certificate ends, unix seconds. */
int64_t tls_expires_s(struct tls *t);

#endif
