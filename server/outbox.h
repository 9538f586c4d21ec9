/* What a batch says to others once it is committed. Owner thread only. */
#ifndef TANDEM_SERVER_OUTBOX_H
#define TANDEM_SERVER_OUTBOX_H

#include "base/buf.h"
#include "server/feed.h"
#include "server/launching.h"
#include "server/lease.h"
#include "server/mail.h"

enum out_kind { OUT_REPLY, OUT_SEND, OUT_END, OUT_LAUNCH, OUT_FEED, OUT_TICKET, OUT_LEASE };

struct out {
    enum out_kind kind;
    struct call *call;         /* a reference */
    ProtobufCMessage *message; /* owned */
    struct mail *mail;         /* owned; TICKET: borrowed */
    struct error *error;       /* owned */
};

struct outbox {
    struct buf entries;
};

size_t outbox_mark(const struct outbox *o);
void outbox_add(struct outbox *o, struct out entry);
/* Forgets what came after mark. */
void outbox_drop(struct outbox *o, size_t mark);
void outbox_run(struct outbox *o, struct launching *launching, struct feed *feed,
                struct lease *lease);

#endif
