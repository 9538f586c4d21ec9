/* Between the files of a cluster's check. Errors here begin with the field's path, "nodes.3.name:
 * ", so that plan/cluster.c can put a file and a line in front. */
#ifndef TANDEM_PLAN_CLUSTER_PRIVATE_H
#define TANDEM_PLAN_CLUSTER_PRIVATE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "plan/fabric.h"
#include "plan/name_table.h"
#include "proto/names.h"

#define CLUSTER_NAME_MAX 64
#define CLUSTER_PATH_MAX 64

/* Each field by itself, as the file has it; and how much it would be, expanded. */
int cluster_check_fields(const ClusterSpec *c, struct error *err);

/* Where in the file a node came from: those of the file come first, then each group's. */
struct cluster_origin {
    size_t num_nodes; /* of the file's list */
    size_t num_groups;
    int32_t *count; /* of each group; owned */
};

/* Groups into nodes, counts into devices; absent indexes and cores. No groups are left. */
void cluster_expand(ClusterSpec *c, struct cluster_origin *origin);
/* "nodes.3" or "groups.0". */
void cluster_path(const struct cluster_origin *origin, size_t node, char out[CLUSTER_PATH_MAX]);

/* Types that are used but not described get the known figures; what devices don't say of their
 * memory is their type's. */
int cluster_fill_types(ClusterSpec *c, const struct cluster_origin *origin, struct error *err);

/* Names and indexes differ, a switch hangs on one other, a domain is in one place. */
int cluster_check_tree(const ClusterSpec *c, const struct cluster_origin *origin,
                       struct error *err);

#endif
