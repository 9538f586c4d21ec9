/* Making certificates: a CA of one's own, and what it signs. EC keys on P-256, SHA-256. */
#ifndef TANDEM_CLIENTS_CLI_CERT_H
#define TANDEM_CLIENTS_CLI_CERT_H

#include <openssl/types.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

struct cert {
    X509 *x509;    /* owned */
    EVP_PKEY *key; /* owned */
};

enum cert_kind { CERT_CA, CERT_SERVER, CERT_CLIENT };

struct cert_wish {
    enum cert_kind kind;
    const char *name;         /* whose: the common name, at most 64 bytes */
    const char *const *hosts; /* of a server: names and addresses */
    int num_hosts;
    int64_t from_s, until_s; /* unix seconds */
};

/* With a new key; signed by issuer, or by itself if that is NULL. */
int cert_make(struct cert *out, const struct cert_wish *wish, const struct cert *issuer,
              struct error *err);
int cert_read(struct cert *out, const char *cert_path, const char *key_path, struct error *err);
/* The key 0600, the certificate 0644; each replaces a file at once. */
int cert_write(const struct cert *c, const char *cert_path, const char *key_path,
               struct error *err);
void cert_free(struct cert *c);

/* The names and addresses of a server's certificate, malloc'ed, at most max. How many. */
int cert_hosts(const struct cert *c, char **out, int max);

#endif
