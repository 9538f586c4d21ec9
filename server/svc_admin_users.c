/* Service Admin: tenants and users are made and changed. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "server/svc_admin.h"

/* Who stands as actor in events without being a user. */
static const char *const reserved[] = {AUTH_OPERATOR, "worker",  "supervisor", "scheduler",
                                       "launcher",    "tandemd", "admin",      NULL};

static int check_user_name(const char *name, struct error *err)
{
    if (rights_check_name("name", name, err) != 0) {
        return -1;
    }
    for (const char *const *r = reserved; *r; r++) {
        if (strcmp(*r, name) == 0) {
            return error_set(err, ERR_INVALID_ARGUMENT,
                             "name: \"%s\" is a part of the system in events; take another", name);
        }
    }
    return 0;
}

static int get_tenant(struct store *s, const char *name, struct tenant_row *out, struct error *err)
{
    int rc = store_tenant_get(s, name, out, err);
    return rc == 0 ? error_set(err, ERR_NOT_FOUND, "there is no tenant %s", name) : rc < 0 ? -1 : 0;
}

/* The caller itself, by a token: who comes in by the socket can lock nobody out for good. */
static bool is_self(const struct caller *who, const char *tenant, const char *user)
{
    return who->token_id && strcmp(who->tenant, tenant) == 0 &&
           (!user || strcmp(who->user, user) == 0);
}

static int refuse_self(const char *what, struct error *err)
{
    return error_set(err, ERR_FAILED_PRECONDITION,
                     "that would shut yourself out: another admin can %s, or the operator, over "
                     "the server's socket",
                     what);
}

/* ---- tenants ---- */

/* how: what the audit has behind the name. */
static int save_tenant(struct controller *c, struct mail *m, const struct tenant_row *row,
                       const char *how, struct error *err)
{
    if (store_tenant_put(controller_store(c), row, err) != 0 ||
        audit_change(c, call_caller(m->call), err, "tenant %s%s", row->name, how) != 0) {
        return -1;
    }
    access_put_tenant(app_of(m)->access, c, row);
    controller_reply(c, m->call, admin_tenant_message(row));
    return 0;
}

int admin_create_tenant(void *controller, struct mail *m, struct error *err)
{
    struct controller *c = controller;
    const CreateTenantRequest *r = (const CreateTenantRequest *)m->message;
    struct tenant_row row;
    int64_t num;
    if (rights_check_name("name", r->name, err) != 0) {
        return -1;
    }
    int rc = store_tenant_get(controller_store(c), r->name, &row, err);
    if (rc != 0) {
        return rc < 0 ? -1
                      : error_set(err, ERR_ALREADY_EXISTS, "there is a tenant %s already", r->name);
    }
    if (store_tenant_count(controller_store(c), &num, err) != 0) {
        return -1;
    }
    if (num >= AUTH_TENANTS_MAX) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "there are %d tenants, as many as may be",
                         AUTH_TENANTS_MAX);
    }
    row = (struct tenant_row){
        .created_us = clock_wall_us(), .quota_devices = -1, .max_devices = -1, .weight = 1};
    snprintf(row.name, sizeof row.name, "%s", r->name);
    return save_tenant(c, m, &row, "", err);
}

int admin_set_tenant(void *controller, struct mail *m, struct error *err)
{
    struct controller *c = controller;
    const SetTenantRequest *r = (const SetTenantRequest *)m->message;
    struct tenant_row row;
    if (rights_check_name("name", r->name, err) != 0) {
        return -1;
    }
    if (!r->has_disabled) {
        return error_set(err, ERR_INVALID_ARGUMENT, "disabled: missing; nothing else can be set");
    }
    if (get_tenant(controller_store(c), r->name, &row, err) != 0) {
        return -1;
    }
    if (r->disabled && is_self(call_caller(m->call), r->name, NULL)) {
        return refuse_self("disable this tenant", err);
    }
    row.disabled = r->disabled;
    return save_tenant(c, m, &row, row.disabled ? ": disabled" : ": enabled", err);
}

/* ---- users ---- */

static int save_user(struct controller *c, struct mail *m, const struct user_row *row,
                     struct error *err)
{
    if (store_user_put(controller_store(c), row, err) != 0 ||
        audit_change(c, call_caller(m->call), err, "user %s/%s: %s%s", row->tenant, row->name,
                     row->role, row->disabled ? ", disabled" : "") != 0) {
        return -1;
    }
    access_put_user(app_of(m)->access, c, row);
    controller_reply(c, m->call, admin_user_message(row));
    return 0;
}

/* The role of that word, unless it is above the caller's own. */
static int check_role(const struct caller *who, const char *word, struct error *err)
{
    enum role role = rights_role(word);
    if (role == ROLE_UNKNOWN) {
        return error_set(err, ERR_INVALID_ARGUMENT,
                         "role: viewer, member, tenant-admin or admin, not \"%.32s\"", word);
    }
    if (role > rights_role(who->role)) {
        return error_set(err, ERR_PERMISSION_DENIED, "role: you are %s and can't make anybody %s",
                         who->role, word);
    }
    return 0;
}

int admin_find_user(struct store *s, const struct caller *who, const char *tenant, const char *name,
                    struct user_row *out, struct error *err)
{
    const char *of;
    if (rights_check_name("name", name, err) != 0 ||
        rights_ask_tenant(who, tenant, &of, err) != 0) {
        return -1;
    }
    int rc = store_user_get(s, of, name, out, err);
    if (rc != 1) {
        return rc < 0
                   ? -1
                   : error_set(err, ERR_NOT_FOUND, "there is no user %s in tenant %.64s", name, of);
    }
    if (rights_role(out->role) > rights_role(who->role)) {
        return error_set(err, ERR_PERMISSION_DENIED, "user %s is %s, above you", name, out->role);
    }
    return 0;
}

int admin_create_user(void *controller, struct mail *m, struct error *err)
{
    struct controller *c = controller;
    struct store *s = controller_store(c);
    const CreateUserRequest *r = (const CreateUserRequest *)m->message;
    const struct caller *who = call_caller(m->call);
    const char *tenant, *role = r->role && *r->role ? r->role : "member";
    struct tenant_row of;
    struct user_row row;
    int64_t num;
    if (check_user_name(r->name, err) != 0 ||
        rights_ask_tenant(who, r->tenant, &tenant, err) != 0 || check_role(who, role, err) != 0 ||
        rights_check_name("tenant", tenant, err) != 0 || get_tenant(s, tenant, &of, err) != 0 ||
        store_user_count(s, tenant, &num, err) != 0) {
        return -1;
    }
    int rc = store_user_get(s, tenant, r->name, &row, err);
    if (rc != 0) {
        return rc < 0 ? -1
                      : error_set(err, ERR_ALREADY_EXISTS,
                                  "there is a user %s in tenant %s already", r->name, tenant);
    }
    if (num >= AUTH_TENANT_USERS_MAX) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "tenant %s has %d users, as many as may be",
                         tenant, AUTH_TENANT_USERS_MAX);
    }
    row = (struct user_row){.created_us = clock_wall_us()};
    snprintf(row.name, sizeof row.name, "%s", r->name);
    snprintf(row.tenant, sizeof row.tenant, "%s", tenant);
    snprintf(row.role, sizeof row.role, "%s", role);
    return save_user(c, m, &row, err);
}

int admin_set_user(void *controller, struct mail *m, struct error *err)
{
    struct controller *c = controller;
    const SetUserRequest *r = (const SetUserRequest *)m->message;
    const struct caller *who = call_caller(m->call);
    struct user_row row;
    if (!r->role && !r->has_disabled) {
        return error_set(err, ERR_INVALID_ARGUMENT, "role or disabled: say what is to change");
    }
    if (r->role && check_role(who, r->role, err) != 0) {
        return -1;
    }
    if (admin_find_user(controller_store(c), who, r->tenant, r->name, &row, err) != 0) {
        return -1;
    }
    bool lower = r->role && rights_role(r->role) < rights_role(row.role);
    if (((r->has_disabled && r->disabled) || lower) && is_self(who, row.tenant, row.name)) {
        return refuse_self("do this", err);
    }
    if (r->role) {
        snprintf(row.role, sizeof row.role, "%s", r->role);
    }
    if (r->has_disabled) {
        row.disabled = r->disabled;
    }
    return save_user(c, m, &row, err);
}
