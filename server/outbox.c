#include "server/outbox.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/fs.h"
#include "proto/names.h"
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

/* The ticket is smaller than what a pipe holds: this never blocks. */
static void write_ticket(struct launch_mail *m)
{
    size_t len = launch_ticket__get_packed_size(m->ticket);
    uint8_t *data = malloc(len);
    ASSERT(data);
    launch_ticket__pack(m->ticket, data);
    fs_write_all(m->ticket_fd, data, len);
    free(data);
    close(m->ticket_fd);
    m->ticket_fd = -1;
}

void outbox_run(struct outbox *o, struct launching *launching, struct feed *feed,
                struct lease *lease)
{
    struct out *all = (struct out *)(void *)o->entries.data;
    for (size_t i = 0; i < o->entries.len / sizeof *all; i++) {
        struct out *e = &all[i];
        switch (e->kind) {
        case OUT_REPLY:
            call_reply(e->call, e->message);
            break;
        case OUT_SEND:
            call_send(e->call, e->message);
            break;
        case OUT_END:
            call_fail_error(e->call, e->error);
            break;
        case OUT_LAUNCH:
            launching_post(launching, (struct launch_mail *)e->mail);
            e->mail = NULL;
            break;
        case OUT_FEED:
            feed_post(feed, (struct feed_mail *)e->mail);
            e->mail = NULL;
            break;
        case OUT_TICKET:
            write_ticket((struct launch_mail *)e->mail);
            break;
        case OUT_LEASE:
            lease_add(lease, e->call);
            break;
        }
        release(e);
    }
    o->entries.len = 0;
}
