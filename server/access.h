/* Tenants, users and tokens on the owner's side: what the database has is put into the table that
 * io threads read, at the start and then behind each commit that changed it; and the housekeeping
 * that needs no caller: when tokens were used, which have expired, refusals, old audit rows. */
#ifndef TANDEM_SERVER_ACCESS_H
#define TANDEM_SERVER_ACCESS_H

#include "server/audit.h"
#include "server/controller.h"

struct access;

struct access_options {
    struct auth *auth; /* none of these is owned */
    struct audit *audit;
    int32_t audit_days; /* 0 = for ever */
    /* Rights have changed and the table knows it. Any thread. */
    void (*changed)(void *ctx);
    void *ctx;
};

int access_new(struct access **out, const struct access_options *options);
void access_free(struct access *a);
/* Fills the table. Before anybody may call. */
int access_load(struct access *a, struct store *s, struct error *err);

/* Owner thread, in the transaction that writes the row: the table follows behind the commit, before
 * any reply that is added later. */
void access_put_tenant(struct access *a, struct controller *c, const struct tenant_row *row);
void access_put_user(struct access *a, struct controller *c, const struct user_row *row);
void access_put_token(struct access *a, struct controller *c, const struct token_row *row);

/* Main thread, about once a second: ends what has expired, posts what is to be written. */
void access_tick(struct access *a, struct mailbox *owner);

#endif
