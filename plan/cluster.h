/* A cluster as a file or a message describes it: checked once, before anything plans on it. */
#ifndef TANDEM_PLAN_CLUSTER_H
#define TANDEM_PLAN_CLUSTER_H

#include "base/error.h"
#include "proto/names.h"

#define CLUSTER_MAX_NODES 65536

/* Names present, different and short; sizes not negative; device indexes different. A device
 * without an index gets its place in the list; cores that are absent are one a device. The cluster
 * was unpacked by protobuf-c. file: for messages. */
int cluster_check(const char *file, ClusterSpec *cluster, struct error *err);

/* The fast domain that a device is in: its own word, else its node's name. */
static inline const char *cluster_domain(const NodeInfo *node, const DeviceInfo *device)
{
    return device->domain && device->domain[0] ? device->domain : node->name;
}

#endif
