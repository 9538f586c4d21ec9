/* Tokens, and the answer to a call. What is kept of tenants, users and their tokens: auth_table.c;
 * how often one may ask: auth_limits.c. */
#include "server/auth.h"

#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fs.h"
#include "server/audit.h"
#include "server/auth_private.h"

#define MINUTE_US 60000000

static void hash_token(const char *token, uint8_t out[HASH_BYTES])
{
    SHA256((const unsigned char *)token, strlen(token), out);
}

int auth_make_token(char token[AUTH_TOKEN_SIZE], uint8_t sha256[HASH_BYTES], struct error *err)
{
    unsigned char bytes[32];
    if (RAND_bytes(bytes, sizeof bytes) != 1) {
        return error_set(err, ERR_INTERNAL, "no random bytes for a token");
    }
    for (size_t i = 0; i < sizeof bytes; i++) {
        snprintf(token + 2 * i, 3, "%02x", bytes[i]);
    }
    OPENSSL_cleanse(bytes, sizeof bytes);
    hash_token(token, sha256);
    return 0;
}

int auth_make_secret(char secret[AUTH_SECRET_SIZE], uint8_t sha256[HASH_BYTES], struct error *err)
{
    size_t n = strlen(AUTH_SECRET_PREFIX);
    memcpy(secret, AUTH_SECRET_PREFIX, n);
    if (auth_make_token(secret + n, sha256, err) != 0) {
        return -1;
    }
    hash_token(secret, sha256);
    return 0;
}

static int load_dev_token(struct auth *a, const char *path, struct error *err)
{
    if (fs_exists(path)) {
        char *text;
        size_t len;
        if (fs_read_file(path, 4096, &text, &len, err) != 0) {
            return -1;
        }
        text[strcspn(text, "\r\n \t")] = 0;
        bool fits = strlen(text) == AUTH_TOKEN_SIZE - 1;
        if (fits) {
            memcpy(a->dev_token, text, AUTH_TOKEN_SIZE);
        }
        free(text);
        if (!fits) {
            return error_set(err, ERR_INVALID_ARGUMENT,
                             "%s: not a token of %d digits; remove it and a new one is made", path,
                             AUTH_TOKEN_SIZE - 1);
        }
        hash_token(a->dev_token, a->dev_sha256);
        return 0;
    }
    if (auth_make_token(a->dev_token, a->dev_sha256, err) != 0) {
        return -1;
    }
    char line[AUTH_TOKEN_SIZE + 1];
    int n = snprintf(line, sizeof line, "%s\n", a->dev_token);
    return fs_write_atomic(path, line, (size_t)n, 0600, err);
}

int auth_new(struct auth **out, const struct auth_options *options, struct error *err)
{
    struct auth *a = calloc(1, sizeof *a);
    if (!a) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "out of memory");
    }
    pthread_mutex_init(&a->lock, NULL);
    a->limits = options->limits ? *options->limits : (LimitsConfig)LIMITS_CONFIG__INIT;
    a->audit = options->audit;
    a->ended_last = &a->ended_first;
    a->dev = options->dev_token_path != NULL;
    if (a->dev && load_dev_token(a, options->dev_token_path, err) != 0) {
        auth_free(a);
        return -1;
    }
    *out = a;
    return 0;
}

void auth_free(struct auth *a)
{
    if (a) {
        auth_table_free(a);
        pthread_mutex_destroy(&a->lock);
        OPENSSL_cleanse(a->dev_token, sizeof a->dev_token);
        free(a);
    }
}

const char *auth_dev_token(const struct auth *a)
{
    return a->dev ? a->dev_token : NULL;
}

const LimitsConfig *auth_limits(const struct auth *a)
{
    return &a->limits;
}

/* ---- attempts ---- */

/* Lock held. */
static void forget_attempt(struct auth *a, const struct attempt_token *t)
{
    struct attempt_token **p = &a->attempt_heads[auth_slot(t->sha256) % AUTH_HEADS];
    while (*p && *p != t) {
        p = &(*p)->next;
    }
    if (*p) {
        *p = t->next;
    }
}

void auth_add_attempt(struct auth *a, int64_t job, int32_t attempt,
                      const uint8_t sha256[HASH_BYTES])
{
    pthread_mutex_lock(&a->lock);
    struct attempt_token *t = &a->attempts[a->num_attempts++ % AUTH_ATTEMPTS_MAX];
    forget_attempt(a, t);
    struct attempt_token **head = &a->attempt_heads[auth_slot(sha256) % AUTH_HEADS];
    t->job = job;
    t->attempt = attempt;
    memcpy(t->sha256, sha256, HASH_BYTES);
    t->next = *head;
    *head = t;
    pthread_mutex_unlock(&a->lock);
}

/* Lock held. */
static bool find_attempt(struct auth *a, const uint8_t sha256[HASH_BYTES], struct caller *caller)
{
    bool found = false;
    for (const struct attempt_token *t = a->attempt_heads[auth_slot(sha256) % AUTH_HEADS]; t;
         t = t->next) {
        if (CRYPTO_memcmp(t->sha256, sha256, HASH_BYTES) == 0) {
            caller->job_id = t->job;
            caller->attempt = t->attempt;
            found = true;
        }
    }
    return found;
}

/* ---- users ---- */

/* Lock held. May the token's user be let in at all? */
static int check_token(struct auth *a, struct token_entry *t, struct error *err)
{
    if (t->revoked) {
        return error_set(err, ERR_UNAUTHENTICATED, "the token was revoked");
    }
    if (auth_has_expired(a, t)) {
        return error_set(err, ERR_UNAUTHENTICATED, "the token has expired");
    }
    if (t->user->disabled || t->user->tenant->disabled) {
        return error_set(err, ERR_UNAUTHENTICATED, "the token's user or tenant is disabled");
    }
    return 0;
}

static int check_role(enum role role, enum method_access access, const struct caller *who,
                      struct error *err)
{
    enum role needed = rights_needed(access);
    if (role >= needed) {
        return 0;
    }
    return error_set(err, ERR_PERMISSION_DENIED, "this needs the role %s; %s is %s in tenant %s",
                     rights_role_name(needed), who->user, rights_role_name(role), who->tenant);
}

/* Lock held. A call with a token of the table. */
static int check_user(struct auth *a, struct token_entry *t, const struct method *method,
                      struct caller *who, struct error *err)
{
    int64_t now_us = clock_wall_us(), minute_us = now_us - now_us % MINUTE_US;
    struct user_entry *u = t->user;
    /* Entries of users and tenants stay for as long as the table. */
    who->user = u->name;
    who->tenant = u->tenant->name;
    who->role = rights_role_name(u->role);
    who->token_id = t->id;
    if (minute_us > t->last_used_us) {
        t->last_used_us = minute_us;
        auth_note(a, t);
    }
    return auth_take_request(a, u, err) != 0 ? -1 : check_role(u->role, method->access, who, err);
}

static const char *why_refused(const struct auth *a, const char *bearer)
{
    if (!a->dev) {
        return bearer ? "the token is not known here" : "a token is needed";
    }
    return bearer ? "the token is not this server's (dev-token in its data folder)"
                  : "a token is needed: the server wrote it to dev-token in its data folder "
                    "(TANDEM_TOKEN_FILE says where it is)";
}

/* Lock held. */
static int check_locked(struct auth *a, const char *bearer, const uint8_t sha256[HASH_BYTES],
                        bool unix_socket, const char *peer, const struct method *method,
                        struct caller *who, struct error *err)
{
    struct error why = {0};
    if (method->access == METHOD_WORKER) {
        if (!bearer || !find_attempt(a, sha256, who)) {
            /* Never "try again": a late tandem-node must hear that it isn't wanted, however many
             * there were before it. */
            return error_set(err, ERR_UNAUTHENTICATED, "this needs the token of an attempt");
        }
        who->user = who->role = "worker";
        return 0;
    }
    bool dev_token = bearer && a->dev && CRYPTO_memcmp(sha256, a->dev_sha256, HASH_BYTES) == 0;
    if (dev_token || (unix_socket && !bearer)) {
        who->user = a->dev ? "dev" : AUTH_OPERATOR;
        who->role = rights_role_name(ROLE_ADMIN);
        return 0;
    }
    struct token_entry *t = bearer ? auth_find_hash(a, sha256) : NULL;
    if (!t || check_token(a, t, &why) != 0) {
        return auth_refuse(a, peer, t ? why.text : why_refused(a, bearer), err);
    }
    return check_user(a, t, method, who, err);
}

int auth_check(struct auth *a, const char *bearer, bool unix_socket, const char *peer,
               const struct method *method, struct caller *caller, struct error *err)
{
    uint8_t sha256[HASH_BYTES] = {0};
    struct error why = {0};
    *caller = (struct caller){.user = "", .tenant = "default", .role = ""};
    if (bearer) {
        hash_token(bearer, sha256);
    }
    pthread_mutex_lock(&a->lock);
    int rc = check_locked(a, bearer, sha256, unix_socket, peer, method, caller, &why);
    pthread_mutex_unlock(&a->lock);
    if (rc == 0) {
        return 0;
    }
    if (a->audit && why.code == ERR_PERMISSION_DENIED) {
        audit_refusal(a->audit, caller, method->path, peer, "denied");
    } else if (a->audit && !*caller->user) {
        audit_refusal(a->audit, NULL, "", peer, "denied: no good token");
    }
    if (err) {
        *err = why;
    }
    return -1;
}

int auth_still_allowed(struct auth *a, const struct caller *who, enum method_access access,
                       struct error *err)
{
    if (!who->token_id) {
        return 0;
    }
    int rc = 0;
    pthread_mutex_lock(&a->lock);
    struct token_entry *t = auth_find_id(a, who->token_id);
    if (!t) {
        rc = error_set(err, ERR_UNAUTHENTICATED, "the token was revoked");
    } else if (check_token(a, t, err) != 0 || check_role(t->user->role, access, who, err) != 0) {
        rc = -1;
    } else if (t->user->role < ROLE_ADMIN && rights_is_admin(who)) {
        /* It was opened with the sight of all tenants. */
        rc = error_set(err, ERR_PERMISSION_DENIED, "%s is no admin any more", who->user);
    }
    pthread_mutex_unlock(&a->lock);
    return rc;
}
