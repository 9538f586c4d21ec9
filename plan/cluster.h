/* A cluster as a file or a message describes it: checked once, before anything plans on it. */
#ifndef TANDEM_PLAN_CLUSTER_H
#define TANDEM_PLAN_CLUSTER_H

#include "base/error.h"
#include "proto/names.h"

#define CLUSTER_MAX_NODES 65536

/* Checks every field, expands groups and counts, fills in what is absent: a device's index (its
 * place in the list), a node's cores (one a device), the figures of known types. Afterwards there
 * are no groups, types describes every type that a device has, and fabric_new takes it. Checking
 * again changes nothing. An error names file and field. The cluster was unpacked by protobuf-c and
 * may be changed in part where it is refused. file: for messages. */
int cluster_check(const char *file, ClusterSpec *cluster, struct error *err);

/* Reads a cluster file and checks it; errors have the line and column as well. *out: freed by
 * cluster_spec__free_unpacked(out, NULL). */
int cluster_read(const char *path, ClusterSpec **out, struct error *err);

/* The same from text; file: for messages. */
int cluster_parse(const char *file, const char *text, size_t len, ClusterSpec **out,
                  struct error *err);

/* The fast domain that a device is in: its own word, else its node's name. */
static inline const char *cluster_domain(const NodeInfo *node, const DeviceInfo *device)
{
    return device->domain && device->domain[0] ? device->domain : node->name;
}

#endif
