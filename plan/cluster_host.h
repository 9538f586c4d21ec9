/* Is a host what the cluster file says of it? What tandem-probe found against what is described. */
#ifndef TANDEM_PLAN_CLUSTER_HOST_H
#define TANDEM_PLAN_CLUSTER_HOST_H

#include "proto/names.h"

/* Says each difference as a sentence ("node dgx0: device 3 (h100) is not found"), at most 32, then
 * that there are more. cluster has passed cluster_check; host is ProbeReply.host. Its GPUs are
 * those of the node of its name; its cores and memory are shared by all nodes of CPU devices. */
void cluster_host_compare(const ClusterSpec *cluster, const NodeInfo *host,
                          void (*say)(void *where, const char *words), void *where);

#endif
