#include "server/mail.h"

#include <stdlib.h>

#include "proto/text.h"
#include "server/msg.h"

void *mail_new(size_t size, int (*run)(void *, struct mail *, struct error *), struct call *c,
               const ProtobufCMessage *message)
{
    struct mail *m = calloc(1, size);
    ASSERT(m);
    m->run = run;
    m->call = c ? call_ref(c) : NULL;
    m->message = message ? text_clone(message) : NULL;
    return m;
}

void mail_free(struct mail *m)
{
    if (!m) {
        return;
    }
    if (m->free_fn) {
        m->free_fn(m);
    }
    if (m->call) {
        call_unref(m->call);
    }
    msg_free(m->message);
    free(m);
}

void mail_free_chain(struct mailbox_node *chain)
{
    while (chain) {
        struct mailbox_node *next = chain->next;
        mail_free((struct mail *)chain);
        chain = next;
    }
}
