#include "server/access.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

#define PRUNE_EVERY_MS (10 * 60 * 1000)
#define PRUNE_ROWS 5000
#define CHANGES_MAX 512
#define DAY_US ((int64_t)24 * 3600 * 1000000)

struct access {
    struct access_options options;
    atomic_bool busy; /* one mail is on its way */
    int64_t prune_due_ms;
};

int access_new(struct access **out, const struct access_options *options)
{
    struct access *a = calloc(1, sizeof *a);
    if (!a) {
        return -1;
    }
    a->options = *options;
    *out = a;
    return 0;
}

void access_free(struct access *a)
{
    free(a);
}

/* ---- into the table ---- */

static bool load_tenant(void *arg, const struct tenant_row *row)
{
    auth_put_tenant(arg, row);
    return true;
}

static bool load_user(void *arg, const struct user_row *row)
{
    auth_put_user(arg, row);
    return true;
}

static bool load_token(void *arg, const struct token_row *row)
{
    auth_put_token(arg, row);
    return true;
}

int access_load(struct access *a, struct store *s, struct error *err)
{
    struct auth *auth = a->options.auth;
    const struct store_token_filter live = {.limit = AUTH_TOKENS_MAX};
    return store_tenant_list(s, NULL, false, load_tenant, auth, err) != 0 ||
                   store_user_list(s, NULL, "", INT32_MAX, load_user, auth, err) != 0 ||
                   store_token_list(s, &live, load_token, auth, err) != 0
               ? -1
               : 0;
}

enum put_kind { PUT_TENANT, PUT_USER, PUT_TOKEN };

struct put_mail {
    struct mail mail; /* first */
    struct access *access;
    enum put_kind kind;
    union {
        struct tenant_row tenant;
        struct user_row user;
        struct token_row token;
    } row;
};

static int run_put(void *owner, struct mail *base, struct error *err)
{
    (void)owner;
    (void)err;
    const struct put_mail *m = (const struct put_mail *)base;
    const struct access_options *o = &m->access->options;
    bool less = false;
    switch (m->kind) {
    case PUT_TENANT:
        less = auth_put_tenant(o->auth, &m->row.tenant);
        break;
    case PUT_USER:
        less = auth_put_user(o->auth, &m->row.user);
        break;
    case PUT_TOKEN:
        less = auth_put_token(o->auth, &m->row.token);
        break;
    }
    if (less) {
        o->changed(o->ctx);
    }
    return 0;
}

static struct put_mail *put_new(struct access *a, enum put_kind kind)
{
    struct put_mail *m = mail_new(sizeof *m, run_put, NULL, NULL);
    m->access = a;
    m->kind = kind;
    return m;
}

void access_put_tenant(struct access *a, struct controller *c, const struct tenant_row *row)
{
    struct put_mail *m = put_new(a, PUT_TENANT);
    m->row.tenant = *row;
    controller_then(c, &m->mail);
}

void access_put_user(struct access *a, struct controller *c, const struct user_row *row)
{
    struct put_mail *m = put_new(a, PUT_USER);
    m->row.user = *row;
    controller_then(c, &m->mail);
}

void access_put_token(struct access *a, struct controller *c, const struct token_row *row)
{
    struct put_mail *m = put_new(a, PUT_TOKEN);
    m->row.token = *row;
    controller_then(c, &m->mail);
}

/* ---- housekeeping ---- */

/* Whatever fails, it comes again with the next batch: it isn't lost. */
struct keep_mail {
    struct mail mail; /* first */
    struct access *access;
    bool prune;
    size_t num_changes, num_counts;
    struct auth_change changes[CHANGES_MAX];
    struct audit_count counts[AUDIT_REFUSALS_MAX + 1];
};

struct kept_mail {
    struct mail mail; /* first */
    struct keep_mail *keep;
};

/* Behind the commit: the keep_mail lives until the batch has ended. */
static int run_kept(void *owner, struct mail *base, struct error *err)
{
    (void)owner;
    (void)err;
    struct keep_mail *k = ((struct kept_mail *)base)->keep;
    audit_counts_saved(k->access->options.audit, k->counts, k->num_counts);
    return 0;
}

static int write_token(struct store *s, const struct auth_change *change, struct error *err)
{
    if (store_token_used(s, change->token_id, change->last_used_us, err) != 0) {
        return -1;
    }
    struct token_row row;
    int rc = change->expired ? store_token_get(s, change->token_id, &row, err) : 0;
    if (rc == 1 && !row.expired) {
        row.expired = true;
        return store_token_update(s, &row, err);
    }
    return rc < 0 ? -1 : 0;
}

static int prune(struct access *a, struct store *s, struct error *err)
{
    if (a->options.audit_days <= 0) {
        return 0;
    }
    int64_t before_us = clock_wall_us() - a->options.audit_days * DAY_US;
    return store_audit_prune(s, before_us, PRUNE_ROWS, err) < 0 ? -1 : 0;
}

static int run_keep(void *controller, struct mail *base, struct error *err)
{
    struct controller *c = controller;
    struct keep_mail *k = (struct keep_mail *)base;
    struct store *s = controller_store(c);
    for (size_t i = 0; i < k->num_changes; i++) {
        if (write_token(s, &k->changes[i], err) != 0) {
            return -1;
        }
    }
    for (size_t i = 0; i < k->num_counts; i++) {
        if (audit_count_write(s, &k->counts[i], err) != 0) {
            return -1;
        }
    }
    if (k->prune && prune(k->access, s, err) != 0) {
        return -1;
    }
    struct kept_mail *then = mail_new(sizeof *then, run_kept, NULL, NULL);
    then->keep = k;
    controller_then(c, &then->mail);
    return 0;
}

static void free_keep(struct mail *base)
{
    atomic_store(&((struct keep_mail *)base)->access->busy, false);
}

void access_tick(struct access *a, struct mailbox *owner)
{
    if (auth_sweep(a->options.auth)) {
        a->options.changed(a->options.ctx);
    }
    if (atomic_load(&a->busy)) {
        return;
    }
    int64_t now_ms = clock_mono_ms();
    struct keep_mail *k = mail_new(sizeof *k, run_keep, NULL, NULL);
    k->access = a;
    k->prune = now_ms >= a->prune_due_ms;
    k->num_changes = auth_changes(a->options.auth, k->changes, CHANGES_MAX);
    k->num_counts = audit_counts(a->options.audit, k->counts);
    if (!k->prune && !k->num_changes && !k->num_counts) {
        mail_free(&k->mail);
        return;
    }
    if (k->prune) {
        a->prune_due_ms = now_ms + PRUNE_EVERY_MS;
    }
    k->mail.free_fn = free_keep;
    atomic_store(&a->busy, true);
    mailbox_post(owner, &k->mail.node);
}
