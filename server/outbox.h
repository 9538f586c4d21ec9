/* What a batch has to say, until it is committed. Owner thread only. */
#ifndef TANDEM_SERVER_OUTBOX_H
#define TANDEM_SERVER_OUTBOX_H

#include "base/buf.h"
#include "server/world.h"

struct outbox {
    struct buf entries;
};

size_t outbox_mark(const struct outbox *o);
void outbox_add(struct outbox *o, struct out entry);
/* Forgets what came after mark. */
void outbox_drop(struct outbox *o, size_t mark);
/* Delivers all, in order. */
void outbox_run(struct outbox *o, const struct world *world);

#endif
