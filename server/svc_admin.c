/* Service Admin: who may come in, and what they did. */
#include "server/svc_admin.h"

#include "server/msg.h"

static void get_server_info(void *ctx, struct call *c, const ProtobufCMessage *r)
{
    (void)r;
    const struct app *a = ctx;
    const struct caller *who = call_caller(c);
    ServerInfo *info = msg_new(&server_info__descriptor);
    msg_text(&info->version, TANDEM_VERSION);
    MSG_SET(info, started_us, a->started_us);
    msg_text(&info->data_dir, a->data_dir);
    MSG_SET(info, schema_version, a->schema_version);
    msg_text(&info->user, who->user);
    msg_text(&info->tenant, who->tenant);
    msg_text(&info->role, who->role);
    char why[512];
    if (room_is_out(a->room, why, sizeof why)) {
        char *problem = NULL;
        msg_text(&problem, why);
        msg_push(&info->problems, &info->n_problems, problem);
    }
    call_reply(c, &info->base);
    msg_free(info);
}

static void create_tenant(void *ctx, struct call *c, const ProtobufCMessage *r)
{
    app_change(ctx, c, r, admin_create_tenant);
}

static void set_tenant(void *ctx, struct call *c, const ProtobufCMessage *r)
{
    app_change(ctx, c, r, admin_set_tenant);
}

static void set_quota(void *ctx, struct call *c, const ProtobufCMessage *r)
{
    app_change(ctx, c, r, admin_set_quota);
}

static void list_tenants(void *ctx, struct call *c, const ProtobufCMessage *r)
{
    app_to_query(ctx, c, r, admin_list_tenants);
}

static void create_user(void *ctx, struct call *c, const ProtobufCMessage *r)
{
    app_change(ctx, c, r, admin_create_user);
}

static void set_user(void *ctx, struct call *c, const ProtobufCMessage *r)
{
    app_change(ctx, c, r, admin_set_user);
}

static void list_users(void *ctx, struct call *c, const ProtobufCMessage *r)
{
    app_to_query(ctx, c, r, admin_list_users);
}

static void create_token(void *ctx, struct call *c, const ProtobufCMessage *r)
{
    app_change(ctx, c, r, admin_create_token);
}

static void rotate_token(void *ctx, struct call *c, const ProtobufCMessage *r)
{
    app_change(ctx, c, r, admin_rotate_token);
}

static void revoke_token(void *ctx, struct call *c, const ProtobufCMessage *r)
{
    app_change(ctx, c, r, admin_revoke_token);
}

static void list_tokens(void *ctx, struct call *c, const ProtobufCMessage *r)
{
    app_to_query(ctx, c, r, admin_list_tokens);
}

static void list_audit(void *ctx, struct call *c, const ProtobufCMessage *r)
{
    app_to_query(ctx, c, r, admin_list_audit);
}

static void get_usage(void *ctx, struct call *c, const ProtobufCMessage *r)
{
    app_to_owner(ctx, c, r, admin_get_usage);
}

#define ADMIN "/tandem.v1.Admin/"

const struct method svc_admin_methods[] = {
    {ADMIN "GetServerInfo", METHOD_UNARY, METHOD_VIEWER, &server_info_request__descriptor,
     get_server_info, NULL, NULL},
    {ADMIN "CreateTenant", METHOD_UNARY, METHOD_ADMIN, &create_tenant_request__descriptor,
     create_tenant, NULL, NULL},
    {ADMIN "SetTenant", METHOD_UNARY, METHOD_ADMIN, &set_tenant_request__descriptor, set_tenant,
     NULL, NULL},
    {ADMIN "SetQuota", METHOD_UNARY, METHOD_ADMIN, &set_quota_request__descriptor, set_quota, NULL,
     NULL},
    {ADMIN "ListTenants", METHOD_UNARY, METHOD_TENANT_ADMIN, &list_tenants_request__descriptor,
     list_tenants, NULL, NULL},
    {ADMIN "CreateUser", METHOD_UNARY, METHOD_TENANT_ADMIN, &create_user_request__descriptor,
     create_user, NULL, NULL},
    {ADMIN "SetUser", METHOD_UNARY, METHOD_TENANT_ADMIN, &set_user_request__descriptor, set_user,
     NULL, NULL},
    {ADMIN "ListUsers", METHOD_UNARY, METHOD_TENANT_ADMIN, &list_users_request__descriptor,
     list_users, NULL, NULL},
    /* Everybody has tokens of its own; those of others are an admin's. */
    {ADMIN "CreateToken", METHOD_UNARY, METHOD_VIEWER, &create_token_request__descriptor,
     create_token, NULL, NULL},
    {ADMIN "RotateToken", METHOD_UNARY, METHOD_VIEWER, &rotate_token_request__descriptor,
     rotate_token, NULL, NULL},
    {ADMIN "RevokeToken", METHOD_UNARY, METHOD_VIEWER, &revoke_token_request__descriptor,
     revoke_token, NULL, NULL},
    {ADMIN "ListTokens", METHOD_UNARY, METHOD_VIEWER, &list_tokens_request__descriptor, list_tokens,
     NULL, NULL},
    {ADMIN "ListAudit", METHOD_UNARY, METHOD_TENANT_ADMIN, &list_audit_request__descriptor,
     list_audit, NULL, NULL},
    /* Of its own tenant. */
    {ADMIN "GetUsage", METHOD_UNARY, METHOD_VIEWER, &get_usage_request__descriptor, get_usage, NULL,
     NULL},
    {0},
};
