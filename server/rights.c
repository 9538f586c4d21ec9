#include "server/rights.h"

#include <string.h>

#include "server/store/access_rows.h"

static const char *const names[] = {"", "viewer", "member", "tenant-admin", "admin"};

enum role rights_role(const char *word)
{
    for (int i = ROLE_VIEWER; word && i <= ROLE_ADMIN; i++) {
        if (strcmp(word, names[i]) == 0) {
            return (enum role)i;
        }
    }
    return ROLE_UNKNOWN;
}

const char *rights_role_name(enum role role)
{
    return names[role];
}

enum role rights_needed(enum method_access access)
{
    switch (access) {
    case METHOD_VIEWER:
        return ROLE_VIEWER;
    case METHOD_MEMBER:
        return ROLE_MEMBER;
    case METHOD_TENANT_ADMIN:
        return ROLE_TENANT_ADMIN;
    case METHOD_ADMIN:
        return ROLE_ADMIN;
    case METHOD_NOBODY:
    case METHOD_PUBLIC:
    case METHOD_WORKER:
        break;
    }
    return ROLE_UNKNOWN;
}

bool rights_is_admin(const struct caller *who)
{
    return rights_role(who->role) == ROLE_ADMIN;
}

const char *rights_tenant(const struct caller *who)
{
    return rights_is_admin(who) ? NULL : who->tenant;
}

int rights_change_job(const struct caller *who, const struct job_row *row, struct error *err)
{
    enum role role = rights_role(who->role);
    if (role == ROLE_ADMIN) {
        return 0;
    }
    if (strcmp(who->tenant, row->tenant) != 0) {
        return error_set(err, ERR_NOT_FOUND, "there is no job %lld", (long long)row->id);
    }
    if (role == ROLE_TENANT_ADMIN || (role == ROLE_MEMBER && strcmp(who->user, row->user) == 0)) {
        return 0;
    }
    return error_set(err, ERR_PERMISSION_DENIED,
                     "job %lld is %s's: only %s and the admins of tenant %s may change it",
                     (long long)row->id, row->user, row->user, row->tenant);
}

const char *rights_actor(const struct caller *who, const char *tenant)
{
    return strcmp(who->tenant, tenant) == 0 ? who->user : "admin";
}

int rights_ask_tenant(const struct caller *who, const char *asked, const char **tenant,
                      struct error *err)
{
    *tenant = asked && *asked ? asked : who->tenant;
    if (rights_is_admin(who) || strcmp(*tenant, who->tenant) == 0) {
        return 0;
    }
    return error_set(err, ERR_PERMISSION_DENIED, "tenant: you are in %s, not in \"%.64s\"",
                     who->tenant, *tenant);
}

int rights_check_name(const char *field, const char *name, struct error *err)
{
    static const char first[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    static const char rest[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._@+-";
    if (!name || !*name) {
        return error_set(err, ERR_INVALID_ARGUMENT, "%s: missing", field);
    }
    if (strlen(name) >= ACCESS_NAME_SIZE) {
        return error_set(err, ERR_INVALID_ARGUMENT, "%s: at most %d characters", field,
                         ACCESS_NAME_SIZE - 1);
    }
    if (!strchr(first, *name) || strspn(name, rest) != strlen(name)) {
        return error_set(err, ERR_INVALID_ARGUMENT,
                         "%s: letters, digits and ._@+- only, a letter or digit first", field);
    }
    return 0;
}
