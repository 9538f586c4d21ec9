#include "server/app.h"

struct app_mail {
    struct mail mail; /* first */
    struct app *app;
    bool change;
    int (*then)(void *owner, struct mail *m, struct error *err);
};

struct app *app_of(struct mail *m)
{
    return ((struct app_mail *)m)->app;
}

static int run_noted(void *owner, struct mail *base, struct error *err)
{
    const struct app_mail *m = (const struct app_mail *)base;
    struct error why = {0};
    if (m->then(owner, base, &why) == 0) {
        return 0;
    }
    const struct caller *who = call_caller(base->call);
    if (why.code == ERR_PERMISSION_DENIED) {
        struct error denied;
        error_set(&denied, why.code, "denied: %s", why.text);
        audit_refusal(m->app->audit, who, who->method, who->peer, denied.text);
    } else if (why.code == ERR_NOT_FOUND && m->change) {
        /* Of another tenant, or never there: the row doesn't say more than the reply. */
        audit_refusal(m->app->audit, who, who->method, who->peer, why.text);
    }
    if (err) {
        *err = why;
    }
    return -1;
}

static struct mail *new_mail(struct app *a, struct call *c, const ProtobufCMessage *request,
                             bool change, int (*run)(void *, struct mail *, struct error *))
{
    struct app_mail *m = mail_new(sizeof *m, run_noted, c, request);
    m->app = a;
    m->change = change;
    m->then = run;
    return &m->mail;
}

void app_change(struct app *a, struct call *c, const ProtobufCMessage *request,
                int (*run)(void *controller, struct mail *m, struct error *err))
{
    mailbox_post(controller_mailbox(a->controller), &new_mail(a, c, request, true, run)->node);
}

void app_to_owner(struct app *a, struct call *c, const ProtobufCMessage *request,
                  int (*run)(void *controller, struct mail *m, struct error *err))
{
    mailbox_post(controller_mailbox(a->controller), &new_mail(a, c, request, false, run)->node);
}

void app_to_query(struct app *a, struct call *c, const ProtobufCMessage *request,
                  int (*run)(void *query, struct mail *m, struct error *err))
{
    query_post(a->query, new_mail(a, c, request, false, run));
}
