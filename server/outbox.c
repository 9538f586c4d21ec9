#include "server/outbox.h"

#include <stdlib.h>

#include "server/msg.h"

size_t outbox_mark(const struct outbox *o)
{
    return o->entries.len;
}

void outbox_add(struct outbox *o, struct out entry)
{
    buf_append(&o->entries, &entry, sizeof entry);
}

static void release(struct out *e)
{
    if (e->call) {
        call_unref(e->call);
    }
    msg_free(e->message);
    if (e->kind != OUT_TICKET) {
        mail_free(e->mail);
    }
    free(e->error);
}

void outbox_drop(struct outbox *o, size_t mark)
{
    struct out *all = (struct out *)(void *)o->entries.data;
    for (size_t i = mark / sizeof *all; i < o->entries.len / sizeof *all; i++) {
        release(&all[i]);
    }
    o->entries.len = mark;
}

void outbox_run(struct outbox *o, const struct world *world)
{
    struct out *all = (struct out *)(void *)o->entries.data;
    for (size_t i = 0; i < o->entries.len / sizeof *all; i++) {
        world->deliver(world->ctx, &all[i]);
        release(&all[i]);
    }
    o->entries.len = 0;
}
