/* Service Admin: lists, from the database. */
#include <string.h>

#include "server/msg.h"
#include "server/svc_admin.h"

/* Others wait while one looks through the audit. */
#define AUDIT_WINDOW 20000

static int32_t page(int32_t limit)
{
    return limit < 1 ? 100 : limit > ADMIN_PAGE_MAX ? ADMIN_PAGE_MAX : limit;
}

static const char *given(const char *text)
{
    return text && *text ? text : NULL;
}

Tenant *admin_tenant_message(const struct tenant_row *row)
{
    Tenant *t = msg_new(&tenant__descriptor);
    msg_text(&t->name, row->name);
    MSG_SET(t, created_us, row->created_us);
    MSG_SET(t, disabled, row->disabled);
    MSG_SET(t, num_users, row->num_users);
    MSG_SET(t, num_jobs, row->num_jobs);
    t->quota = msg_new(&quota__descriptor);
    MSG_SET(t->quota, devices, row->quota_devices);
    MSG_SET(t->quota, max_devices, row->max_devices);
    MSG_SET(t->quota, weight, row->weight);
    MSG_SET(t, devices_in_use, row->devices_in_use);
    int64_t beyond = row->quota_devices < 0 ? 0 : row->devices_in_use - row->quota_devices;
    MSG_SET(t, devices_borrowed, beyond > 0 ? beyond : 0);
    return t;
}

User *admin_user_message(const struct user_row *row)
{
    User *u = msg_new(&user__descriptor);
    msg_text(&u->name, row->name);
    msg_text(&u->tenant, row->tenant);
    msg_text(&u->role, row->role);
    MSG_SET(u, disabled, row->disabled);
    MSG_SET(u, created_us, row->created_us);
    return u;
}

Token *admin_token_message(const struct token_row *row)
{
    Token *t = msg_new(&token__descriptor);
    MSG_SET(t, id, row->id);
    msg_text(&t->label, row->label);
    msg_text(&t->user, row->user);
    msg_text(&t->tenant, row->tenant);
    MSG_SET(t, created_us, row->created_us);
    MSG_SET(t, expires_us, row->expires_us);
    MSG_SET(t, revoked_us, row->revoked_us);
    MSG_SET(t, last_used_us, row->last_used_us);
    msg_text(&t->prefix, row->prefix);
    return t;
}

static bool push_tenant(void *arg, const struct tenant_row *row)
{
    ListTenantsReply *reply = arg;
    msg_push(&reply->tenants, &reply->n_tenants, admin_tenant_message(row));
    return true;
}

static bool push_user(void *arg, const struct user_row *row)
{
    ListUsersReply *reply = arg;
    msg_push(&reply->users, &reply->n_users, admin_user_message(row));
    return true;
}

static bool push_token(void *arg, const struct token_row *row)
{
    ListTokensReply *reply = arg;
    msg_push(&reply->tokens, &reply->n_tokens, admin_token_message(row));
    return true;
}

static bool push_audit(void *arg, const struct audit_row *row)
{
    ListAuditReply *reply = arg;
    AuditRow *a = msg_new(&audit_row__descriptor);
    MSG_SET(a, id, row->id);
    MSG_SET(a, time_us, row->time_us);
    msg_text(&a->tenant, row->tenant);
    msg_text(&a->user, row->user);
    MSG_SET(a, token_id, row->token_id);
    msg_text(&a->method, row->method);
    msg_text(&a->object, row->object);
    msg_text(&a->result, row->result);
    msg_text(&a->peer, row->peer);
    msg_push(&reply->rows, &reply->n_rows, a);
    return true;
}

/* Sends the reply unless the list failed, and frees it. */
static int send(struct mail *m, int rc, void *reply)
{
    if (rc == 0) {
        call_reply(m->call, reply);
    }
    msg_free(reply);
    return rc;
}

int admin_list_tenants(void *query, struct mail *m, struct error *err)
{
    struct query *q = query;
    ListTenantsReply *reply = msg_new(&list_tenants_reply__descriptor);
    return send(m,
                store_tenant_list(q->reader, rights_tenant(call_caller(m->call)), true, push_tenant,
                                  reply, err),
                reply);
}

/* A tenant that was asked for by name is one that there is: an empty list would hide a slip. */
static int check_tenant(struct query *q, const char *asked, struct error *err)
{
    struct tenant_row row;
    if (!given(asked)) {
        return 0;
    }
    int rc = store_tenant_get(q->reader, asked, &row, err);
    return rc == 0  ? error_set(err, ERR_NOT_FOUND, "there is no tenant %.64s", asked)
           : rc < 0 ? -1
                    : 0;
}

int admin_list_users(void *query, struct mail *m, struct error *err)
{
    struct query *q = query;
    const ListUsersRequest *r = (const ListUsersRequest *)m->message;
    const char *tenant;
    if (rights_ask_tenant(call_caller(m->call), r->tenant, &tenant, err) != 0 ||
        check_tenant(q, r->tenant, err) != 0) {
        return -1;
    }
    ListUsersReply *reply = msg_new(&list_users_reply__descriptor);
    return send(m,
                store_user_list(q->reader, tenant, r->after ? r->after : "", page(r->limit),
                                push_user, reply, err),
                reply);
}

int admin_list_tokens(void *query, struct mail *m, struct error *err)
{
    struct query *q = query;
    const ListTokensRequest *r = (const ListTokensRequest *)m->message;
    const struct caller *who = call_caller(m->call);
    const char *tenant, *user = given(r->user);
    if (rights_ask_tenant(who, r->tenant, &tenant, err) != 0 ||
        check_tenant(q, r->tenant, err) != 0) {
        return -1;
    }
    if (rights_role(who->role) < ROLE_TENANT_ADMIN) {
        if (user && strcmp(user, who->user) != 0) {
            return error_set(err, ERR_PERMISSION_DENIED,
                             "user: you are %s; only admins see the tokens of others", who->user);
        }
        user = who->user;
    }
    struct store_token_filter filter = {.tenant = tenant,
                                        .user = user,
                                        .after_id = r->after_id,
                                        .limit = page(r->limit),
                                        .ended = r->all};
    if (rights_is_admin(who) && !given(r->tenant)) {
        filter.tenant = NULL;
    }
    ListTokensReply *reply = msg_new(&list_tokens_reply__descriptor);
    return send(m, store_token_list(q->reader, &filter, push_token, reply, err), reply);
}

int admin_list_audit(void *query, struct mail *m, struct error *err)
{
    struct query *q = query;
    const ListAuditRequest *r = (const ListAuditRequest *)m->message;
    const struct caller *who = call_caller(m->call);
    const char *tenant;
    if (rights_ask_tenant(who, r->tenant, &tenant, err) != 0) {
        return -1;
    }
    const struct store_audit_filter filter = {.tenant =
                                                  rights_is_admin(who) ? given(r->tenant) : tenant,
                                              .user = given(r->user),
                                              .method = given(r->method),
                                              .from_us = r->from_us,
                                              .to_us = r->to_us,
                                              .before_id = r->before_id,
                                              .limit = page(r->limit),
                                              .window = AUDIT_WINDOW};
    ListAuditReply *reply = msg_new(&list_audit_reply__descriptor);
    reply->has_next_before_id = 1;
    return send(
        m, store_audit_list(q->reader, &filter, push_audit, reply, &reply->next_before_id, err),
        reply);
}
