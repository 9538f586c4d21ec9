/* What the files auth*.c share. */
#ifndef TANDEM_SERVER_AUTH_PRIVATE_H
#define TANDEM_SERVER_AUTH_PRIVATE_H

#include <pthread.h>

#include "server/auth.h"
#include "server/rights.h"

enum {
    AUTH_HEADS = 4096, /* chains of a hash table; powers of two */
    AUTH_TOKEN_HEADS = 65536,
    AUTH_SWEEP_HEADS = 1024, /* chains that are looked through under one lock */
    AUTH_ADDRESSES = 1024,
    AUTH_ENDED_MAX = 4096, /* ended tokens that are remembered, to say why one is refused */
};

/* Tokens in a bucket come back at a rate, and so many more than a second's may be taken at once. */
struct bucket {
    double tokens;
    int64_t last_ms; /* 0 = full */
};
/* Takes one: 0, or how many ms until there is one. rate 0 = no limit. */
int64_t bucket_wait_ms(struct bucket *b, int32_t rate, int64_t now_ms);
void bucket_take(struct bucket *b, int32_t rate, int64_t now_ms);

struct tenant_entry {
    struct tenant_entry *next;
    char name[ACCESS_NAME_SIZE];
    bool disabled;
    struct bucket bucket;
};

struct user_entry {
    struct user_entry *next;
    struct tenant_entry *tenant;
    char name[ACCESS_NAME_SIZE];
    enum role role;
    bool disabled;
    struct bucket bucket;
};

struct token_entry {
    struct token_entry *next_by_hash, *next_by_id;
    struct token_entry *next_ended, *next_unsaved;
    struct user_entry *user;
    int64_t id;
    uint8_t sha256[HASH_BYTES];
    int64_t expires_us;
    int64_t expires_mono_ms; /* the same by the clock that can't be set; 0 = never */
    bool expired, revoked;
    bool unsaved; /* in the list of those that have news for the database */
    int64_t last_used_us;
};

/* Refused tokens of one address. */
struct address {
    char peer[48];
    int32_t failures; /* since since_ms */
    int64_t since_ms;
    int64_t waits_until_ms; /* 0 = it needn't */
};

struct attempt_token {
    struct attempt_token *next;
    int64_t job;
    int32_t attempt;
    uint8_t sha256[HASH_BYTES];
};

struct auth {
    bool dev;
    char dev_token[AUTH_TOKEN_SIZE];
    uint8_t dev_sha256[HASH_BYTES];
    LimitsConfig limits; /* no pointers in it */
    struct audit *audit;

    pthread_mutex_t lock;                             /* guards what follows */
    struct attempt_token attempts[AUTH_ATTEMPTS_MAX]; /* a ring, and in chains by hash */
    struct attempt_token *attempt_heads[AUTH_HEADS];
    uint32_t num_attempts;
    struct tenant_entry *tenants[AUTH_HEADS];
    struct user_entry *users[AUTH_HEADS];
    struct token_entry *by_hash[AUTH_TOKEN_HEADS], *by_id[AUTH_TOKEN_HEADS];
    struct token_entry *ended_first, **ended_last; /* oldest first */
    size_t num_tokens, num_ended;
    struct token_entry *unsaved;
    bool some_expired; /* since the last sweep */
    /* No live token ends before that; 0 = none does. */
    int64_t next_expires_us, next_expires_mono_ms;
    struct address addresses[AUTH_ADDRESSES];
};

/* Which chain: of 256 bits that nobody can choose the hash of, any will do. */
static inline size_t auth_slot(const uint8_t sha256[HASH_BYTES])
{
    return (size_t)(sha256[0] << 8 | sha256[1]);
}

/* All with the lock held. */
struct token_entry *auth_find_hash(struct auth *a, const uint8_t sha256[HASH_BYTES]);
struct token_entry *auth_find_id(struct auth *a, int64_t id);
/* The database is to be told of it. */
void auth_note(struct auth *a, struct token_entry *t);
/* Also sees to it that one that has expired stays so. */
bool auth_has_expired(struct auth *a, struct token_entry *t);
/* -1: the user's, or the tenant's, bucket is empty. */
int auth_take_request(struct auth *a, struct user_entry *u, struct error *err);
/* A call without a good token. Fills err: why, or that the address has to wait. */
int auth_refuse(struct auth *a, const char *peer, const char *why, struct error *err);
void auth_table_free(struct auth *a);

#endif
