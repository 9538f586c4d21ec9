#include "server/app.h"

void app_to_owner(struct app *a, struct call *c, const ProtobufCMessage *request,
                  int (*run)(void *controller, struct mail *m, struct error *err))
{
    struct mail *m = mail_new(sizeof *m, run, c, request);
    mailbox_post(controller_mailbox(a->controller), &m->node);
}

void app_to_query(struct app *a, struct call *c, const ProtobufCMessage *request,
                  int (*run)(void *query, struct mail *m, struct error *err))
{
    query_post(a->query, mail_new(sizeof(struct mail), run, c, request));
}
