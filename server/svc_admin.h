/* What the files svc_admin*.c share. */
#ifndef TANDEM_SERVER_SVC_ADMIN_H
#define TANDEM_SERVER_SVC_ADMIN_H

#include "server/access.h"
#include "server/app.h"
#include "server/rights.h"

#define ADMIN_PAGE_MAX 1000

/* ---- owner thread ---- */
/* The user that a request of who is about; tenant as asked, absent = the caller's. Also refused: a
 * user above who. */
int admin_find_user(struct store *s, const struct caller *who, const char *tenant, const char *name,
                    struct user_row *out, struct error *err);
int admin_create_tenant(void *controller, struct mail *m, struct error *err);
int admin_set_tenant(void *controller, struct mail *m, struct error *err);
int admin_set_quota(void *controller, struct mail *m, struct error *err);
int admin_create_user(void *controller, struct mail *m, struct error *err);
int admin_set_user(void *controller, struct mail *m, struct error *err);
int admin_create_token(void *controller, struct mail *m, struct error *err);
int admin_rotate_token(void *controller, struct mail *m, struct error *err);
int admin_revoke_token(void *controller, struct mail *m, struct error *err);

/* Asks the owner first, then the query thread. */
int admin_get_usage(void *controller, struct mail *m, struct error *err);

/* ---- query thread ---- */
int admin_list_tenants(void *query, struct mail *m, struct error *err);
int admin_list_users(void *query, struct mail *m, struct error *err);
int admin_list_tokens(void *query, struct mail *m, struct error *err);
int admin_list_audit(void *query, struct mail *m, struct error *err);

Tenant *admin_tenant_message(const struct tenant_row *row);
User *admin_user_message(const struct user_row *row);
Token *admin_token_message(const struct token_row *row);

#endif
