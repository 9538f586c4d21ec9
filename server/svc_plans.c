/* Service Plans. */
#include "server/app.h"
#include "server/submit.h"

static void plan(void *ctx, struct call *c, const ProtobufCMessage *r)
{
    app_to_owner(ctx, c, r, submit_on_plan);
}

const struct method svc_plans_methods[] = {
    {"/tandem.v1.Plans/Plan", METHOD_UNARY, METHOD_MEMBER, &plan_request__descriptor, plan, NULL,
     NULL},
    {0},
};
