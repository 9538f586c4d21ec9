/* Service Cluster. What there is and how it hangs together are the same answer. */
#include <stdlib.h>

#include "server/app.h"
#include "server/attempts.h"
#include "server/msg.h"
#include "server/rights.h"

/* The cluster as the tenant sees it; NULL: all of it. */
static ClusterSpec *look(struct controller *c, const char *tenant)
{
    size_t num = (size_t)controller_topology(c)->fabric->num_devices;
    int64_t *holders = calloc(num + 1, sizeof *holders);
    int64_t *claims = calloc(num + 1, sizeof *claims);
    ASSERT(holders && claims);
    controller_holders(c, holders);
    controller_claims(c, claims);
    for (size_t i = 0; i < num; i++) {
        holders[i] = controller_shown(c, holders[i], tenant);
        claims[i] = controller_shown(c, claims[i], tenant);
    }
    ClusterSpec *cluster = topology_message(controller_topology(c), holders, claims);
    attempts_show_stuck(c, cluster, tenant);
    free(holders);
    free(claims);
    return cluster;
}

static int run_list(void *controller, struct mail *m, struct error *err)
{
    (void)err;
    struct controller *c = controller;
    controller_reply(c, m->call, look(c, rights_tenant(call_caller(m->call))));
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
