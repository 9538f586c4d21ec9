/* Service Worker: the Attach stream of each tandem-node. */
#include <stdatomic.h>
#include <stdlib.h>

#include "server/app.h"
#include "server/attempts.h"

/* A node that comes back after a long time has much to say. Reading stops while so much of it waits
 * for the owner, and goes on when half of it is done. */
#define PENDING_MAX 2000

struct load {
    atomic_int pending;
};

static void done(struct mail *m)
{
    struct load *l = call_data(m->call);
    if (atomic_fetch_sub(&l->pending, 1) == PENDING_MAX / 2) {
        call_hold(m->call, false);
    }
}

static void attach(void *ctx, struct call *c, const ProtobufCMessage *up)
{
    struct app *a = ctx;
    struct load *l = call_data(c);
    if (!l) {
        l = calloc(1, sizeof *l);
        ASSERT(l);
        call_set_data(c, l, free);
    }
    struct mail *m = mail_new(sizeof *m, attempts_on_up, c, up);
    m->free_fn = done;
    if (atomic_fetch_add(&l->pending, 1) + 1 >= PENDING_MAX) {
        call_hold(c, true);
        /* The owner may have been quicker than the hold. */
        if (atomic_load(&l->pending) < PENDING_MAX / 2) {
            call_hold(c, false);
        }
    }
    mailbox_post(controller_mailbox(a->controller), &m->node);
}

static void half_close(void *ctx, struct call *c)
{
    (void)ctx;
    call_finish(c);
}

static void closed(void *ctx, struct call *c)
{
    app_to_owner(ctx, c, NULL, attempts_on_closed);
}

const struct method svc_worker_methods[] = {
    {"/tandem.v1.Worker/Attach", METHOD_BIDI, METHOD_WORKER, &worker_up__descriptor, attach,
     half_close, closed},
    {0},
};
