#include "plan/cluster.h"

#include <stdlib.h>
#include <string.h>

#include "plan/mesh.h"

#define NAME_MAX_BYTES 64

static int compare_indexes(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

static int check_indexes(const char *file, const NodeInfo *n, struct error *err)
{
    int32_t *indexes = calloc(n->n_devices, sizeof *indexes);
    ASSERT(indexes);
    for (size_t i = 0; i < n->n_devices; i++) {
        indexes[i] = n->devices[i]->index;
    }
    qsort(indexes, n->n_devices, sizeof *indexes, compare_indexes);
    int rc = 0;
    for (size_t i = 1; i < n->n_devices && rc == 0; i++) {
        if (indexes[i] == indexes[i - 1]) {
            rc = error_set(err, ERR_INVALID_ARGUMENT, "%s: node %s has two devices with index %d",
                           file, n->name, indexes[i]);
        }
    }
    free(indexes);
    return rc;
}

static int check_devices(const char *file, NodeInfo *n, struct error *err)
{
    for (size_t i = 0; i < n->n_devices; i++) {
        DeviceInfo *d = n->devices[i];
        if (!d->has_index) {
            d->has_index = 1;
            d->index = (int32_t)i;
        }
        /* Written so that NaN fails. */
        if (d->index < 0 || d->mem_bytes < 0 || !(d->peak_flops_fp32 >= 0) ||
            !(d->peak_flops_fp64 >= 0) || !(d->peak_flops_bf16 >= 0)) {
            return error_set(err, ERR_INVALID_ARGUMENT,
                             "%s: node %s, device %d: index, memory and peaks can't be negative",
                             file, n->name, d->index);
        }
    }
    return check_indexes(file, n, err);
}

static int check_node(const char *file, NodeInfo *n, size_t place, struct error *err)
{
    if (!n->name || !n->name[0] || strlen(n->name) > NAME_MAX_BYTES) {
        return error_set(err, ERR_INVALID_ARGUMENT,
                         "%s: nodes.%zu.name: needed, at most %d characters", file, place,
                         NAME_MAX_BYTES);
    }
    if (n->n_devices == 0 || n->n_devices > MESH_MAX_RANKS) {
        return error_set(err, ERR_INVALID_ARGUMENT, "%s: node %s has %zu devices; 1 to %d", file,
                         n->name, n->n_devices, MESH_MAX_RANKS);
    }
    if (!n->has_cores) {
        n->has_cores = 1;
        n->cores = (int32_t)n->n_devices;
    }
    if (n->cores < 1 || n->mem_bytes < 0) {
        return error_set(err, ERR_INVALID_ARGUMENT,
                         "%s: node %s: cores have to be 1 or more, mem_bytes 0 or more", file,
                         n->name);
    }
    return check_devices(file, n, err);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int check_names(const char *file, const ClusterSpec *c, struct error *err)
{
    const char **names = calloc(c->n_nodes, sizeof *names);
    ASSERT(names);
    for (size_t i = 0; i < c->n_nodes; i++) {
        names[i] = c->nodes[i]->name;
    }
    qsort(names, c->n_nodes, sizeof *names, compare_names);
    int rc = 0;
    for (size_t i = 1; i < c->n_nodes && rc == 0; i++) {
        if (strcmp(names[i], names[i - 1]) == 0) {
            rc =
                error_set(err, ERR_INVALID_ARGUMENT, "%s: two nodes are called %s", file, names[i]);
        }
    }
    free(names);
    return rc;
}

int cluster_check(const char *file, ClusterSpec *cluster, struct error *err)
{
    if (cluster->n_nodes == 0 || cluster->n_nodes > CLUSTER_MAX_NODES) {
        return error_set(err, ERR_INVALID_ARGUMENT, "%s: %zu nodes; 1 to %d", file,
                         cluster->n_nodes, CLUSTER_MAX_NODES);
    }
    for (size_t i = 0; i < cluster->n_nodes; i++) {
        if (check_node(file, cluster->nodes[i], i, err) != 0) {
            return -1;
        }
    }
    return check_names(file, cluster, err);
}
