#include "server/auth.h"

#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <openssl/sha.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"

struct attempt_token {
    int64_t job;
    int32_t attempt;
    uint8_t sha256[HASH_BYTES];
};

struct auth {
    bool dev; /* one implicit admin */
    char dev_token[AUTH_TOKEN_SIZE];
    uint8_t dev_sha256[HASH_BYTES];
    pthread_mutex_t lock;
    struct attempt_token attempts[AUTH_ATTEMPTS_MAX]; /* a ring, guarded by lock */
    uint32_t num_added;
};

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

int auth_new(struct auth **out, const char *token_path, struct error *err)
{
    struct auth *a = calloc(1, sizeof *a);
    if (!a) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "out of memory");
    }
    pthread_mutex_init(&a->lock, NULL);
    a->dev = token_path != NULL;
    if (a->dev && load_dev_token(a, token_path, err) != 0) {
        auth_free(a);
        return -1;
    }
    *out = a;
    return 0;
}

void auth_free(struct auth *a)
{
    if (a) {
        pthread_mutex_destroy(&a->lock);
        OPENSSL_cleanse(a->dev_token, sizeof a->dev_token);
        free(a);
    }
}

const char *auth_dev_token(const struct auth *a)
{
    return a->dev_token;
}

void auth_add_attempt(struct auth *a, int64_t job, int32_t attempt,
                      const uint8_t sha256[HASH_BYTES])
{
    pthread_mutex_lock(&a->lock);
    struct attempt_token *t = &a->attempts[a->num_added++ % AUTH_ATTEMPTS_MAX];
    t->job = job;
    t->attempt = attempt;
    memcpy(t->sha256, sha256, HASH_BYTES);
    pthread_mutex_unlock(&a->lock);
}

static bool find_attempt(struct auth *a, const uint8_t sha256[HASH_BYTES], struct caller *caller)
{
    bool found = false;
    pthread_mutex_lock(&a->lock);
    uint32_t num = a->num_added < AUTH_ATTEMPTS_MAX ? a->num_added : AUTH_ATTEMPTS_MAX;
    for (uint32_t i = 0; i < num; i++) {
        const struct attempt_token *t = &a->attempts[i];
        if (CRYPTO_memcmp(t->sha256, sha256, HASH_BYTES) == 0) {
            caller->job_id = t->job;
            caller->attempt = t->attempt;
            found = true;
        }
    }
    pthread_mutex_unlock(&a->lock);
    return found;
}

int auth_check(struct auth *a, const char *bearer, bool unix_socket, enum method_access access,
               struct caller *caller, struct error *err)
{
    *caller = (struct caller){.user = "", .tenant = "default", .role = "viewer"};
    if (access == METHOD_PUBLIC) {
        return 0;
    }
    uint8_t sha256[HASH_BYTES] = {0};
    if (bearer) {
        hash_token(bearer, sha256);
    }
    if (access == METHOD_WORKER) {
        if (!bearer || !find_attempt(a, sha256, caller)) {
            return error_set(err, ERR_UNAUTHENTICATED, "this needs the token of an attempt");
        }
        caller->user = "worker";
        caller->role = "worker";
        return 0;
    }
    bool token_fits = a->dev && bearer && CRYPTO_memcmp(sha256, a->dev_sha256, HASH_BYTES) == 0;
    if (!token_fits && (!unix_socket || bearer)) {
        return error_set(err, ERR_UNAUTHENTICATED,
                         !a->dev ? "a token of this server is needed"
                         : bearer
                             ? "the token is not this server's (dev-token in its data folder)"
                             : "a token is needed: the server wrote it to dev-token in its data "
                               "folder (TANDEM_TOKEN_FILE says where it is)");
    }
    caller->user = a->dev ? "dev" : "operator";
    caller->role = "admin";
    return 0;
}
