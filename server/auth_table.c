/* Tenants, users and tokens in memory, in chains by hash. Tenants and users stay for as long as
 * the process; a token that has ended stays for a while, so that its owner hears why it is refused.
 */
#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "server/auth_private.h"

static uint64_t hash_text(uint64_t h, const char *text)
{
    for (; *text; text++) {
        h = (h ^ (unsigned char)*text) * 1099511628211u;
    }
    return (h ^ 0xff) * 1099511628211u;
}

static struct tenant_entry **tenant_head(struct auth *a, const char *name)
{
    return &a->tenants[hash_text(14695981039346656037u, name) >> 20 & (AUTH_HEADS - 1)];
}

static struct user_entry **user_head(struct auth *a, const char *tenant, const char *name)
{
    uint64_t h = hash_text(hash_text(14695981039346656037u, tenant), name);
    return &a->users[h >> 20 & (AUTH_HEADS - 1)];
}

static struct token_entry **hash_head(struct auth *a, const uint8_t sha256[HASH_BYTES])
{
    return &a->by_hash[auth_slot(sha256)];
}

static struct token_entry **id_head(struct auth *a, int64_t id)
{
    return &a->by_id[id & (AUTH_TOKEN_HEADS - 1)];
}

static struct tenant_entry *find_tenant(struct auth *a, const char *name)
{
    struct tenant_entry *t = *tenant_head(a, name);
    while (t && strcmp(t->name, name) != 0) {
        t = t->next;
    }
    return t;
}

static struct user_entry *find_user(struct auth *a, const char *tenant, const char *name)
{
    struct user_entry *u = *user_head(a, tenant, name);
    while (u && (strcmp(u->name, name) != 0 || strcmp(u->tenant->name, tenant) != 0)) {
        u = u->next;
    }
    return u;
}

struct token_entry *auth_find_hash(struct auth *a, const uint8_t sha256[HASH_BYTES])
{
    struct token_entry *found = NULL;
    for (struct token_entry *t = *hash_head(a, sha256); t; t = t->next_by_hash) {
        if (CRYPTO_memcmp(t->sha256, sha256, HASH_BYTES) == 0) {
            found = t;
        }
    }
    return found;
}

struct token_entry *auth_find_id(struct auth *a, int64_t id)
{
    struct token_entry *t = *id_head(a, id);
    while (t && t->id != id) {
        t = t->next_by_id;
    }
    return t;
}

bool auth_put_tenant(struct auth *a, const struct tenant_row *row)
{
    pthread_mutex_lock(&a->lock);
    struct tenant_entry *t = find_tenant(a, row->name);
    if (!t) {
        struct tenant_entry **head = tenant_head(a, row->name);
        t = calloc(1, sizeof *t);
        ASSERT(t);
        memcpy(t->name, row->name, sizeof t->name);
        t->next = *head;
        *head = t;
    }
    bool less = row->disabled && !t->disabled;
    t->disabled = row->disabled;
    pthread_mutex_unlock(&a->lock);
    return less;
}

bool auth_put_user(struct auth *a, const struct user_row *row)
{
    pthread_mutex_lock(&a->lock);
    struct user_entry *u = find_user(a, row->tenant, row->name);
    if (!u) {
        struct user_entry **head = user_head(a, row->tenant, row->name);
        u = calloc(1, sizeof *u);
        ASSERT(u);
        memcpy(u->name, row->name, sizeof u->name);
        u->tenant = find_tenant(a, row->tenant);
        ASSERT(u->tenant);
        u->next = *head;
        *head = u;
    }
    enum role role = rights_role(row->role);
    bool less = (row->disabled && !u->disabled) || role < u->role;
    u->role = role;
    u->disabled = row->disabled;
    pthread_mutex_unlock(&a->lock);
    return less;
}

void auth_note(struct auth *a, struct token_entry *t)
{
    if (!t->unsaved) {
        t->unsaved = true;
        t->next_unsaved = a->unsaved;
        a->unsaved = t;
    }
}

static void unlink_token(struct auth *a, struct token_entry *t)
{
    struct token_entry **p = &a->unsaved;
    while (t->unsaved && *p != t) {
        p = &(*p)->next_unsaved;
    }
    if (t->unsaved) {
        *p = t->next_unsaved;
    }
    p = hash_head(a, t->sha256);
    while (*p != t) {
        p = &(*p)->next_by_hash;
    }
    *p = t->next_by_hash;
    p = id_head(a, t->id);
    while (*p != t) {
        p = &(*p)->next_by_id;
    }
    *p = t->next_by_id;
}

/* Puts an ended token behind the others; the oldest of too many is forgotten. */
static void remember_ended(struct auth *a, struct token_entry *t)
{
    t->next_ended = NULL;
    *a->ended_last = t;
    a->ended_last = &t->next_ended;
    if (++a->num_ended > AUTH_ENDED_MAX) {
        struct token_entry *oldest = a->ended_first;
        a->ended_first = oldest->next_ended;
        a->num_ended--;
        unlink_token(a, oldest);
        free(oldest);
        a->num_tokens--;
    }
}

static bool has_ended(const struct token_entry *t)
{
    return t->revoked || t->expired;
}

bool auth_has_expired(struct auth *a, struct token_entry *t)
{
    if (t->expired || t->expires_us == 0) {
        return t->expired;
    }
    if (clock_wall_us() < t->expires_us && clock_mono_ms() < t->expires_mono_ms) {
        return false;
    }
    if (!has_ended(t)) {
        remember_ended(a, t);
    }
    t->expired = true;
    a->some_expired = true;
    auth_note(a, t);
    return true;
}

/* However the wall clock is set later, the token has at most the time that it has now. */
static void set_expiry(struct token_entry *t, int64_t expires_us)
{
    if (expires_us != t->expires_us) {
        int64_t left_us = expires_us - clock_wall_us();
        t->expires_us = expires_us;
        t->expires_mono_ms = clock_mono_ms() + (left_us > 0 ? left_us / 1000 : 0);
    }
}

static void expect_expiry(struct auth *a, const struct token_entry *t)
{
    if (t->expires_us == 0 || has_ended(t)) {
        return;
    }
    if (a->next_expires_us == 0 || t->expires_us < a->next_expires_us) {
        a->next_expires_us = t->expires_us;
    }
    if (a->next_expires_mono_ms == 0 || t->expires_mono_ms < a->next_expires_mono_ms) {
        a->next_expires_mono_ms = t->expires_mono_ms;
    }
}

bool auth_put_token(struct auth *a, const struct token_row *row)
{
    pthread_mutex_lock(&a->lock);
    struct token_entry *t = auth_find_id(a, row->id);
    if (!t) {
        t = calloc(1, sizeof *t);
        ASSERT(t);
        t->id = row->id;
        a->num_tokens++;
        memcpy(t->sha256, row->sha256, HASH_BYTES);
        t->user = find_user(a, row->tenant, row->user);
        ASSERT(t->user);
        t->last_used_us = row->last_used_us;
        struct token_entry **head = hash_head(a, t->sha256);
        t->next_by_hash = *head;
        *head = t;
        head = id_head(a, t->id);
        t->next_by_id = *head;
        *head = t;
    }
    set_expiry(t, row->expires_us);
    bool had_ended = has_ended(t);
    t->revoked = t->revoked || row->revoked_us != 0;
    t->expired = t->expired || row->expired;
    expect_expiry(a, t);
    bool less = has_ended(t) && !had_ended;
    if (less) {
        remember_ended(a, t);
    }
    pthread_mutex_unlock(&a->lock);
    return less;
}

size_t auth_num_tokens(struct auth *a)
{
    pthread_mutex_lock(&a->lock);
    size_t num = a->num_tokens;
    pthread_mutex_unlock(&a->lock);
    return num;
}

/* Lock held. */
static void sweep_chain(struct auth *a, size_t i)
{
    for (struct token_entry *t = a->by_id[i]; t;) {
        if (!has_ended(t) && auth_has_expired(a, t)) {
            t = a->by_id[i]; /* the chain may have lost one that ended long ago */
        } else {
            expect_expiry(a, t);
            t = t->next_by_id;
        }
    }
}

bool auth_sweep(struct auth *a)
{
    pthread_mutex_lock(&a->lock);
    bool due = a->next_expires_us && (clock_wall_us() >= a->next_expires_us ||
                                      clock_mono_ms() >= a->next_expires_mono_ms);
    if (due) {
        a->next_expires_us = a->next_expires_mono_ms = 0;
    }
    for (size_t i = 0; due && i < AUTH_TOKEN_HEADS; i++) {
        if (i % AUTH_SWEEP_HEADS == 0) {
            /* Those who call get in between. What is put then is expected by auth_put_token. */
            pthread_mutex_unlock(&a->lock);
            pthread_mutex_lock(&a->lock);
        }
        sweep_chain(a, i);
    }
    bool any = a->some_expired;
    a->some_expired = false;
    pthread_mutex_unlock(&a->lock);
    return any;
}

size_t auth_changes(struct auth *a, struct auth_change *out, size_t max)
{
    size_t num = 0;
    pthread_mutex_lock(&a->lock);
    while (a->unsaved && num < max) {
        struct token_entry *t = a->unsaved;
        a->unsaved = t->next_unsaved;
        t->unsaved = false;
        out[num++] = (struct auth_change){t->id, t->last_used_us, t->expired};
    }
    pthread_mutex_unlock(&a->lock);
    return num;
}

void auth_table_free(struct auth *a)
{
    for (size_t i = 0; i < AUTH_TOKEN_HEADS; i++) {
        while (a->by_id[i]) {
            struct token_entry *t = a->by_id[i];
            a->by_id[i] = t->next_by_id;
            free(t);
        }
    }
    for (size_t i = 0; i < AUTH_HEADS; i++) {
        while (a->users[i]) {
            struct user_entry *u = a->users[i];
            a->users[i] = u->next;
            free(u);
        }
        while (a->tenants[i]) {
            struct tenant_entry *t = a->tenants[i];
            a->tenants[i] = t->next;
            free(t);
        }
    }
}
