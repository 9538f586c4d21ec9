/* Service Admin: tokens are made, rotated and revoked. A secret is in one reply and nowhere else.
 */
#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "server/msg.h"
#include "server/svc_admin.h"

#define SECOND_US ((int64_t)1000000)
#define DAY_S ((int64_t)24 * 3600)
#define TTL_MAX_S (10 * 365 * DAY_S)
#define GRACE_MAX_S (30 * DAY_S)
/* Of a secret, so that it can be told from others: 24 of its 256 bits. */
#define PREFIX_CHARS 10

static int check_label(const char *label, struct error *err)
{
    if (label && strlen(label) >= ACCESS_NAME_SIZE) {
        return error_set(err, ERR_INVALID_ARGUMENT, "label: at most %d bytes",
                         ACCESS_NAME_SIZE - 1);
    }
    for (const char *p = label ? label : ""; *p; p++) {
        if ((unsigned char)*p < 32 || *p == 127) {
            return error_set(err, ERR_INVALID_ARGUMENT, "label: no control characters");
        }
    }
    return 0;
}

/* Room for one more, and somebody to use it. */
static int check_user(struct controller *c, struct mail *m, const struct user_row *user,
                      struct error *err)
{
    int64_t num;
    if (user->disabled) {
        return error_set(err, ERR_FAILED_PRECONDITION, "user %s is disabled", user->name);
    }
    if (store_token_count_live(controller_store(c), user->tenant, user->name, &num, err) != 0) {
        return -1;
    }
    if (num >= AUTH_USER_TOKENS_MAX) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED,
                         "user %s has %d tokens, as many as may be; revoke some", user->name,
                         AUTH_USER_TOKENS_MAX);
    }
    if (auth_num_tokens(app_of(m)->auth) >= AUTH_TOKENS_MAX) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "there are %d tokens, as many as may be",
                         AUTH_TOKENS_MAX);
    }
    return 0;
}

/* Stores a token of user with the row's label and times, and replies with its secret. */
static int make_token(struct controller *c, struct mail *m, const struct user_row *user,
                      struct token_row *row, struct error *err)
{
    char secret[AUTH_SECRET_SIZE];
    snprintf(row->tenant, sizeof row->tenant, "%s", user->tenant);
    snprintf(row->user, sizeof row->user, "%s", user->name);
    if (auth_make_secret(secret, row->sha256, err) != 0) {
        return -1;
    }
    snprintf(row->prefix, sizeof row->prefix, "%.*s", PREFIX_CHARS, secret);
    int rc = store_token_insert(controller_store(c), row, err);
    if (rc == 0) {
        NewToken *reply = msg_new(&new_token__descriptor);
        reply->token = admin_token_message(row);
        msg_text(&reply->secret, secret);
        access_put_token(app_of(m)->access, c, row);
        controller_reply(c, m->call, reply);
    }
    OPENSSL_cleanse(secret, sizeof secret);
    return rc;
}

/* Whom a new token is for: the caller itself, or for an admin anybody at or below it. */
static int find_owner(struct store *s, const struct caller *who, const CreateTokenRequest *r,
                      struct user_row *out, struct error *err)
{
    bool named = r->user && *r->user;
    if (!named && (strcmp(who->user, AUTH_OPERATOR) == 0 || (r->tenant && *r->tenant))) {
        return error_set(err, ERR_INVALID_ARGUMENT, "user: missing");
    }
    const char *name = named ? r->user : who->user;
    if (strcmp(name, who->user) != 0 && rights_role(who->role) < ROLE_TENANT_ADMIN) {
        return error_set(err, ERR_PERMISSION_DENIED,
                         "user: you are %s; only admins make tokens for others", who->user);
    }
    return admin_find_user(s, who, r->tenant, name, out, err);
}

int admin_create_token(void *controller, struct mail *m, struct error *err)
{
    struct controller *c = controller;
    const CreateTokenRequest *r = (const CreateTokenRequest *)m->message;
    const struct caller *who = call_caller(m->call);
    struct user_row user;
    if (check_label(r->label, err) != 0) {
        return -1;
    }
    if (r->ttl_s < 0 || r->ttl_s > TTL_MAX_S) {
        return error_set(err, ERR_INVALID_ARGUMENT, "ttl_s: from 0 to %lld, %lld days",
                         (long long)TTL_MAX_S, (long long)(TTL_MAX_S / DAY_S));
    }
    if (r->ttl_s == 0 && rights_role(who->role) < ROLE_TENANT_ADMIN) {
        return error_set(err, ERR_PERMISSION_DENIED,
                         "ttl_s: only admins make tokens that never expire");
    }
    if (find_owner(controller_store(c), who, r, &user, err) != 0 ||
        check_user(c, m, &user, err) != 0) {
        return -1;
    }
    struct token_row row = {.created_us = clock_wall_us()};
    row.expires_us = r->ttl_s ? row.created_us + r->ttl_s * SECOND_US : 0;
    snprintf(row.label, sizeof row.label, "%s", r->label ? r->label : "");
    if (make_token(c, m, &user, &row, err) != 0) {
        return -1;
    }
    return audit_change(c, who, err, "token %lld of %s/%s", (long long)row.id, row.tenant,
                        row.user);
}

/* One that who may change. What it may not see isn't there. */
static int find_token(struct store *s, const struct caller *who, int64_t id, struct token_row *out,
                      struct user_row *user, struct error *err)
{
    int rc = store_token_get(s, id, out, err);
    if (rc < 0) {
        return -1;
    }
    bool seen = rc == 1 && (rights_is_admin(who) || strcmp(out->tenant, who->tenant) == 0) &&
                (rights_role(who->role) >= ROLE_TENANT_ADMIN || strcmp(out->user, who->user) == 0);
    if (!seen) {
        return error_set(err, ERR_NOT_FOUND, "there is no token %lld", (long long)id);
    }
    return admin_find_user(s, who, out->tenant, out->user, user, err);
}

static int put_old(struct controller *c, struct mail *m, const struct token_row *row,
                   struct error *err)
{
    if (store_token_update(controller_store(c), row, err) != 0) {
        return -1;
    }
    access_put_token(app_of(m)->access, c, row);
    return 0;
}

int admin_rotate_token(void *controller, struct mail *m, struct error *err)
{
    struct controller *c = controller;
    const RotateTokenRequest *r = (const RotateTokenRequest *)m->message;
    const struct caller *who = call_caller(m->call);
    int64_t now_us = clock_wall_us();
    struct token_row old;
    struct user_row user;
    if (r->grace_s < 0 || r->grace_s > GRACE_MAX_S) {
        return error_set(err, ERR_INVALID_ARGUMENT, "grace_s: from 0 to %lld, %lld days",
                         (long long)GRACE_MAX_S, (long long)(GRACE_MAX_S / DAY_S));
    }
    if (find_token(controller_store(c), who, r->id, &old, &user, err) != 0) {
        return -1;
    }
    if (old.revoked_us || old.expired || (old.expires_us && old.expires_us <= now_us)) {
        return error_set(err, ERR_FAILED_PRECONDITION, "token %lld %s: make a new one",
                         (long long)old.id, old.revoked_us ? "was revoked" : "has expired");
    }
    if (check_user(c, m, &user, err) != 0) {
        return -1;
    }
    struct token_row row = {.created_us = now_us};
    memcpy(row.label, old.label, sizeof row.label);
    row.expires_us = old.expires_us ? now_us + (old.expires_us - old.created_us) : 0;
    int64_t until_us = now_us + r->grace_s * SECOND_US;
    if (r->grace_s == 0) {
        old.revoked_us = now_us;
    } else if (!old.expires_us || until_us < old.expires_us) {
        old.expires_us = until_us;
    }
    if (put_old(c, m, &old, err) != 0 || make_token(c, m, &user, &row, err) != 0) {
        return -1;
    }
    return audit_change(c, who, err, "token %lld of %s/%s, now %lld", (long long)old.id, old.tenant,
                        old.user, (long long)row.id);
}

int admin_revoke_token(void *controller, struct mail *m, struct error *err)
{
    struct controller *c = controller;
    const RevokeTokenRequest *r = (const RevokeTokenRequest *)m->message;
    const struct caller *who = call_caller(m->call);
    struct token_row row;
    struct user_row user;
    if (find_token(controller_store(c), who, r->id, &row, &user, err) != 0) {
        return -1;
    }
    if (!row.revoked_us) {
        row.revoked_us = clock_wall_us();
        if (put_old(c, m, &row, err) != 0 ||
            audit_change(c, who, err, "token %lld of %s/%s", (long long)row.id, row.tenant,
                         row.user) != 0) {
            return -1;
        }
    }
    controller_reply(c, m->call, admin_token_message(&row));
    return 0;
}
