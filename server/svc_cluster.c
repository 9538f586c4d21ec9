/* Service Cluster. With one node, what there is and how it hangs together are the same answer. */
#include "server/app.h"
#include "server/attempts.h"
#include "server/msg.h"
#include "server/rights.h"

static int run_list(void *controller, struct mail *m, struct error *err)
{
    (void)err;
    struct controller *c = controller;
    int64_t holders[DEVICES_MAX];
    controller_holders(c, holders);
    for (int32_t i = 0; i < controller_topology(c)->num_devices; i++) {
        holders[i] = controller_shown(c, holders[i], rights_tenant(call_caller(m->call)));
    }
    ClusterSpec *cluster = topology_cluster(controller_topology(c), holders);
    attempts_show_stuck(c, cluster, rights_tenant(call_caller(m->call)));
    controller_reply(c, m->call, cluster);
    return 0;
}

static void list(void *ctx, struct call *c, const ProtobufCMessage *r)
{
    app_to_owner(ctx, c, r, run_list);
}

const struct method svc_cluster_methods[] = {
    {"/tandem.v1.Cluster/ListNodes", METHOD_UNARY, METHOD_VIEWER, &list_nodes_request__descriptor,
     list, NULL, NULL},
    {"/tandem.v1.Cluster/GetTopology", METHOD_UNARY, METHOD_VIEWER,
     &get_topology_request__descriptor, list, NULL, NULL},
    {0},
};
