/* Tables tenants, users, tokens, audit: who may come in, and what they did. Of tokens the database
 * has hashes only. Every function returns -1 and fills err when the database fails. */
#ifndef TANDEM_SERVER_STORE_ACCESS_ROWS_H
#define TANDEM_SERVER_STORE_ACCESS_ROWS_H

#include "server/store/store.h"

/* Names of tenants and users, and a NUL. */
#define ACCESS_NAME_SIZE 65
#define ACCESS_PREFIX_SIZE 16

struct tenant_row {
    char name[ACCESS_NAME_SIZE];
    int64_t created_us;
    bool disabled;
    int32_t num_users, num_jobs;        /* lists only */
    int64_t quota_devices, max_devices; /* -1 = none, no limit */
    double weight;
    int64_t devices_in_use; /* lists only */
};

struct user_row {
    char tenant[ACCESS_NAME_SIZE];
    char name[ACCESS_NAME_SIZE];
    char role[16]; /* viewer, member, tenant-admin, admin */
    bool disabled;
    int64_t created_us;
};

struct token_row {
    int64_t id;
    char tenant[ACCESS_NAME_SIZE];
    char user[ACCESS_NAME_SIZE];
    char label[ACCESS_NAME_SIZE];
    uint8_t sha256[HASH_BYTES];
    char prefix[ACCESS_PREFIX_SIZE];
    int64_t created_us;
    int64_t expires_us; /* 0 = never */
    bool expired;       /* seen past expires_us */
    int64_t revoked_us; /* 0 = it isn't */
    int64_t last_used_us;
};

struct audit_row {
    int64_t id;
    int64_t time_us;
    const char *tenant, *user;
    int64_t token_id;
    const char *method, *object, *result, *peer;
};

/* ---- tenants and users: get: 1 found, 0 not; put: inserts or replaces what may change ---- */
int store_tenant_get(struct store *s, const char *name, struct tenant_row *out, struct error *err);
/* All but quota and weight: these are set apart. */
int store_tenant_put(struct store *s, const struct tenant_row *row, struct error *err);
int store_tenant_set_quota(struct store *s, const struct tenant_row *row, struct error *err);
int store_tenant_count(struct store *s, int64_t *out, struct error *err);
int store_user_get(struct store *s, const char *tenant, const char *name, struct user_row *out,
                   struct error *err);
int store_user_put(struct store *s, const struct user_row *row, struct error *err);
/* Of one tenant. */
int store_user_count(struct store *s, const char *tenant, int64_t *out, struct error *err);

/* Rows come to fn one by one, borrowed for its call; it returns false to stop. */
typedef bool (*store_tenant_fn)(void *arg, const struct tenant_row *row);
typedef bool (*store_user_fn)(void *arg, const struct user_row *row);
typedef bool (*store_token_fn)(void *arg, const struct token_row *row);
typedef bool (*store_audit_fn)(void *arg, const struct audit_row *row);

/* By name; only: NULL = all; counted: fills what is for lists only. */
int store_tenant_list(struct store *s, const char *only, bool counted, store_tenant_fn fn,
                      void *arg, struct error *err);
/* By name, those after `after` ("" = from the first); tenant NULL = all. */
int store_user_list(struct store *s, const char *tenant, const char *after, int32_t limit,
                    store_user_fn fn, void *arg, struct error *err);

/* ---- tokens ---- */
/* Fills row->id. */
int store_token_insert(struct store *s, struct token_row *row, struct error *err);
int store_token_get(struct store *s, int64_t id, struct token_row *out, struct error *err);
/* expires_us, expired, revoked_us. */
int store_token_update(struct store *s, const struct token_row *row, struct error *err);
/* Later only. */
int store_token_used(struct store *s, int64_t id, int64_t last_used_us, struct error *err);
/* Neither revoked nor expired. */
int store_token_count_live(struct store *s, const char *tenant, const char *user, int64_t *out,
                           struct error *err);
struct store_token_filter {
    const char *tenant, *user; /* NULL = all */
    int64_t after_id;
    int32_t limit;
    bool ended; /* revoked and expired ones too */
};
int store_token_list(struct store *s, const struct store_token_filter *filter, store_token_fn fn,
                     void *arg, struct error *err);

/* ---- audit ---- */
/* id: the new row's; may be NULL. */
int store_audit_insert(struct store *s, const struct audit_row *row, int64_t *id,
                       struct error *err);
int store_audit_set_result(struct store *s, int64_t id, const char *result, struct error *err);
struct store_audit_filter {
    const char *tenant, *user, *method; /* NULL = all */
    int64_t from_us, to_us;             /* to_us 0 = to the newest */
    int64_t before_id;                  /* 0 = from the newest */
    int32_t limit;
    int32_t window; /* rows of the tenant that are looked through at most */
};
/* Newest first. *next: the before_id to go on with, 0 = that was all. */
int store_audit_list(struct store *s, const struct store_audit_filter *filter, store_audit_fn fn,
                     void *arg, int64_t *next, struct error *err);
/* Removes at most limit rows older than before_us, and tokens that ended before that. Returns how
 * many rows there were, -1 on failure. */
int store_audit_prune(struct store *s, int64_t before_us, int32_t limit, struct error *err);

#endif
