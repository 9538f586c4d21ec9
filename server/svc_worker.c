/* Service Worker: the Attach stream of each tandem-node. */
#include "server/app.h"
#include "server/attempts.h"

static void attach(void *ctx, struct call *c, const ProtobufCMessage *up)
{
    app_to_owner(ctx, c, up, attempts_on_up);
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
