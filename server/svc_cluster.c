/* Service Cluster. What there is and how it hangs together are the same answer. */
#include "server/app.h"
#include "server/draining.h"
#include "server/rights.h"

/* Devices of a cluster of which an answer takes milliseconds of the owner thread. */
#define LARGE 1000

static int run_list(void *controller, struct mail *m, struct error *err)
{
    struct controller *c = controller;
    bool is_large = controller_topology(c)->fabric->num_devices > LARGE;
    if (is_large && !controller_may_explain(c)) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED,
                         "the server has been asked a lot about the cluster and its queue: ask "
                         "again in a second");
    }
    ClusterSpec *cluster = draining_look(c, rights_tenant(call_caller(m->call)), -1);
    if (is_large) {
        controller_explained(c);
    }
    controller_reply(c, m->call, cluster);
    return 0;
}

static void list(void *ctx, struct call *c, const ProtobufCMessage *r)
{
    app_to_owner(ctx, c, r, run_list);
}

static void drain(void *ctx, struct call *c, const ProtobufCMessage *r)
{
    app_change(ctx, c, r, draining_on_drain);
}

static void undrain(void *ctx, struct call *c, const ProtobufCMessage *r)
{
    app_change(ctx, c, r, draining_on_undrain);
}

const struct method svc_cluster_methods[] = {
    {"/tandem.v1.Cluster/ListNodes", METHOD_UNARY, METHOD_VIEWER, &list_nodes_request__descriptor,
     list, NULL, NULL},
    {"/tandem.v1.Cluster/GetTopology", METHOD_UNARY, METHOD_VIEWER,
     &get_topology_request__descriptor, list, NULL, NULL},
    {"/tandem.v1.Cluster/Drain", METHOD_UNARY, METHOD_ADMIN, &drain_request__descriptor, drain,
     NULL, NULL},
    {"/tandem.v1.Cluster/Undrain", METHOD_UNARY, METHOD_ADMIN, &drain_request__descriptor, undrain,
     NULL, NULL},
    {0},
};
