/* Who may call. The trusted unix socket (0600, in the data folder) is an implicit admin: the user
 * "dev" of --dev, else the operator. All others show a token: a user's (tnd_ and 256 random bits),
 * an attempt's (good for its stream alone), or with --dev the dev token. Tokens are kept as SHA-256
 * and compared in constant time.
 *
 * Here is the table of tenants, users and tokens that io threads read. The owner of the state
 * changes it after the commit that changed the database (server/access.h). Safe on every thread. */
#ifndef TANDEM_SERVER_AUTH_H
#define TANDEM_SERVER_AUTH_H

#include <stdint.h>

#include "base/error.h"
#include "proto/names.h"
#include "server/rpc/server.h"
#include "server/store/access_rows.h"

/* Hexadecimal digits and a NUL: tokens of attempts and --dev. */
#define AUTH_TOKEN_SIZE 65
/* By this, programs that look for leaked secrets know a user's token. */
#define AUTH_SECRET_PREFIX "tnd_"
#define AUTH_SECRET_SIZE (AUTH_TOKEN_SIZE + 4)
/* Tokens of attempts that are remembered, so that a late one hears why it is refused. */
#define AUTH_ATTEMPTS_MAX 4096
/* What the table holds at most; the service refuses to make more. */
#define AUTH_TENANTS_MAX 1000
#define AUTH_TENANT_USERS_MAX 10000
#define AUTH_USER_TOKENS_MAX 100
#define AUTH_TOKENS_MAX 200000
/* The caller over the trusted socket without --dev. */
#define AUTH_OPERATOR "operator"

struct auth;
struct audit;

struct auth_options {
    const char *dev_token_path; /* --dev: read, or made (0600); NULL: not --dev */
    const LimitsConfig *limits; /* NULL = the defaults; copied */
    struct audit *audit;        /* hears of refusals; may be NULL; not owned */
};

int auth_new(struct auth **out, const struct auth_options *options, struct error *err);
void auth_free(struct auth *a);
/* NULL without --dev. Lives as long as a. */
const char *auth_dev_token(const struct auth *a);
const LimitsConfig *auth_limits(const struct auth *a);

/* 256 random bits as 64 digits, and their hash. */
int auth_make_token(char token[AUTH_TOKEN_SIZE], uint8_t sha256[HASH_BYTES], struct error *err);
/* The same behind AUTH_SECRET_PREFIX; the hash is of the whole. */
int auth_make_secret(char secret[AUTH_SECRET_SIZE], uint8_t sha256[HASH_BYTES], struct error *err);

/* An attempt's token is good from now on. The oldest of AUTH_ATTEMPTS_MAX is forgotten. */
void auth_add_attempt(struct auth *a, int64_t job, int32_t attempt,
                      const uint8_t sha256[HASH_BYTES]);

/* The table, as the database has it. Users come behind their tenants, tokens behind their users.
 * A token that is revoked or has expired ends here, too. True: somebody may do less than before. */
bool auth_put_tenant(struct auth *a, const struct tenant_row *row);
bool auth_put_user(struct auth *a, const struct user_row *row);
bool auth_put_token(struct auth *a, const struct token_row *row);

/* In the table, also ended ones that are remembered. */
size_t auth_num_tokens(struct auth *a);

/* See server_options. */
int auth_check(struct auth *a, const char *bearer, bool unix_socket, const char *peer,
               const struct method *method, struct caller *caller, struct error *err);
int auth_still_allowed(struct auth *a, const struct caller *caller, enum method_access access,
                       struct error *err);

/* Looks at the clock: true if a token has expired since the last look, whoever noticed first. */
bool auth_sweep(struct auth *a);
/* What the database doesn't know yet: tokens that were used, to the minute, or have expired; at
 * most max. Each is given once: who takes it sees to it that it is written. */
struct auth_change {
    int64_t token_id;
    int64_t last_used_us;
    bool expired;
};
size_t auth_changes(struct auth *a, struct auth_change *out, size_t max);

#endif
