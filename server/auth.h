/* Who may call. A unix socket in a 0700 folder is trusted; loopback TCP needs the dev token; a
 * worker needs its attempt's token. Tokens are 256 random bits, kept as SHA-256 and compared in
 * constant time. Safe on every thread. */
#ifndef TANDEM_SERVER_AUTH_H
#define TANDEM_SERVER_AUTH_H

#include <stdint.h>

#include "base/error.h"
#include "server/rpc/server.h"
#include "server/store/rows.h"

/* Hexadecimal digits and a NUL. */
#define AUTH_TOKEN_SIZE 65
/* Tokens of attempts that are remembered, so that a late one hears why it is refused. */
#define AUTH_ATTEMPTS_MAX 4096

struct auth;

/* Reads the dev token from path, or makes it (0600). NULL: there is none, only the socket gets in.
 */
int auth_new(struct auth **out, const char *token_path, struct error *err);
void auth_free(struct auth *a);
/* Lives as long as a. */
const char *auth_dev_token(const struct auth *a);

int auth_make_token(char token[AUTH_TOKEN_SIZE], uint8_t sha256[HASH_BYTES], struct error *err);

/* An attempt's token is good from now on. The oldest of AUTH_ATTEMPTS_MAX is forgotten. */
void auth_add_attempt(struct auth *a, int64_t job, int32_t attempt,
                      const uint8_t sha256[HASH_BYTES]);

/* See server_options.authenticate. */
int auth_check(struct auth *a, const char *bearer, bool unix_socket, enum method_access access,
               struct caller *caller, struct error *err);

#endif
