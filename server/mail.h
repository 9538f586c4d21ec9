/* What threads of the controller send each other: a message that knows how it is handled. */
#ifndef TANDEM_SERVER_MAIL_H
#define TANDEM_SERVER_MAIL_H

#include <stddef.h>

#include "base/error.h"
#include "base/mailbox.h"
#include "server/rpc/call.h"

struct mail {
    struct mailbox_node node; /* first */
    /* On the receiving thread; owner is what that thread owns. -1: the call, if any, fails with
     * err. It may run again if what it did could not be committed. */
    int (*run)(void *owner, struct mail *m, struct error *err);
    void (*free_fn)(struct mail *m); /* what a larger struct holds; may be NULL */
    struct call *call;               /* a reference; NULL = not about a call */
    ProtobufCMessage *message;       /* owned; may be NULL */
};

/* size: of the larger struct that begins with a mail. Takes a reference to c and a copy of message;
 * both may be NULL. Never NULL. */
void *mail_new(size_t size, int (*run)(void *, struct mail *, struct error *), struct call *c,
               const ProtobufCMessage *message);
void mail_free(struct mail *m);
void mail_free_chain(struct mailbox_node *chain);

#endif
