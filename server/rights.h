/* Roles, and what each may see and change. Pure: who is asking, and what the thing belongs to.
 *
 * admin > tenant-admin > member > viewer. What belongs to another tenant isn't there for anybody
 * but an admin: the words, and the work, are those for a thing that never was. */
#ifndef TANDEM_SERVER_RIGHTS_H
#define TANDEM_SERVER_RIGHTS_H

#include <stdbool.h>

#include "server/rpc/server.h"
#include "server/store/rows.h"

enum role { ROLE_UNKNOWN, ROLE_VIEWER, ROLE_MEMBER, ROLE_TENANT_ADMIN, ROLE_ADMIN };

/* ROLE_UNKNOWN: not the word of a role. */
enum role rights_role(const char *word);
const char *rights_role_name(enum role role);
/* The lowest role that may call a method of that access; ROLE_UNKNOWN: not for users. */
enum role rights_needed(enum method_access access);

bool rights_is_admin(const struct caller *who);
/* The tenant that all it sees belongs to; NULL = any. */
const char *rights_tenant(const struct caller *who);
/* May who change this job, which it sees? */
int rights_change_job(const struct caller *who, const struct job_row *row, struct error *err);
/* How who is called in the events of a job of this tenant: others don't learn an admin's name. */
const char *rights_actor(const struct caller *who, const char *tenant);
/* The tenant that a request is about: asked, or absent the caller's own. Refused in the same words
 * whether there is a tenant of that name or not. */
int rights_ask_tenant(const struct caller *who, const char *asked, const char **tenant,
                      struct error *err);

/* Names of tenants and users: letters, digits, and ._@+- behind the first; at most 64. */
int rights_check_name(const char *field, const char *name, struct error *err);

#endif
