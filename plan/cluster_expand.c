/* Groups into nodes, counts into devices. Sizes were bounded by cluster_check_fields. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "plan/cluster_private.h"

static void *need(void *p)
{
    ASSERT(p);
    return p;
}

static char *name_new(const char *name, const char *part, int32_t number)
{
    struct buf b = {0};
    buf_printf(&b, "%s%s%d", name, part, number);
    return buf_take(&b);
}

static DeviceInfo *device_copy(const DeviceInfo *d)
{
    DeviceInfo *copy = need(malloc(sizeof *copy));
    *copy = *d;
    copy->base.n_unknown_fields = 0;
    copy->base.unknown_fields = NULL;
    copy->type = need(strdup(d->type));
    copy->domain = d->domain ? need(strdup(d->domain)) : NULL;
    copy->reason = d->reason ? need(strdup(d->reason)) : NULL;
    return copy;
}

static void expand_devices(NodeInfo *n)
{
    size_t num = 0, next = 0;
    for (size_t i = 0; i < n->n_devices; i++) {
        num += (size_t)n->devices[i]->count;
    }
    DeviceInfo **devices = need(calloc(num, sizeof(DeviceInfo *)));
    for (size_t i = 0; i < n->n_devices; i++) {
        DeviceInfo *d = n->devices[i];
        int32_t count = d->count, first = d->has_index ? d->index : (int32_t)next;
        d->has_count = 0;
        d->count = 1;
        for (int32_t k = 0; k < count; k++) {
            DeviceInfo *one = k == 0 ? d : device_copy(d);
            one->has_index = 1;
            one->index = first + k;
            devices[next++] = one;
        }
    }
    free(n->devices);
    n->devices = devices;
    n->n_devices = num;
    if (!n->has_cores) {
        n->has_cores = 1;
        n->cores = (int32_t)num;
    }
}

static char **switches_new(const NodeGroup *g, int32_t place, size_t *num)
{
    int32_t per_leaf = g->nodes_per_leaf ? g->nodes_per_leaf : g->count;
    int32_t num_leaves = (g->count - 1) / per_leaf + 1;
    int32_t per_spine = g->leaves_per_spine ? g->leaves_per_spine : num_leaves;
    int32_t num_spines = (num_leaves - 1) / per_spine + 1;
    int32_t leaf = place / per_leaf;
    char **switches = need(calloc(3, sizeof *switches));
    *num = 0;
    switches[(*num)++] = name_new(g->name, "-leaf", leaf);
    if (num_leaves > 1) {
        switches[(*num)++] = name_new(g->name, "-spine", leaf / per_spine);
    }
    if (num_spines > 1) {
        switches[(*num)++] = name_new(g->name, "-core", 0);
    }
    return switches;
}

static NodeInfo *node_new(const NodeGroup *g, int32_t place)
{
    NodeInfo *n = need(malloc(sizeof *n));
    node_info__init(n);
    n->name = name_new(g->name, "", place);
    n->has_cores = 1;
    n->cores = g->has_cores ? g->cores : g->devices;
    n->has_mem_bytes = g->has_mem_bytes;
    n->mem_bytes = g->mem_bytes;
    n->has_nics = g->has_nics;
    n->nics = g->nics;
    n->has_nic_bytes_per_s = g->has_nic_bytes_per_s;
    n->nic_bytes_per_s = g->nic_bytes_per_s;
    n->switches = switches_new(g, place, &n->n_switches);
    n->devices = need(calloc((size_t)g->devices, sizeof(DeviceInfo *)));
    for (int32_t i = 0; i < g->devices; i++) {
        DeviceInfo *d = need(malloc(sizeof *d));
        device_info__init(d);
        d->has_index = 1;
        d->index = i;
        d->type = need(strdup(g->type));
        if (g->nodes_per_domain > 1) {
            d->domain = name_new(g->name, "-domain", place / g->nodes_per_domain);
        }
        n->devices[n->n_devices++] = d;
    }
    return n;
}

void cluster_expand(ClusterSpec *c, struct cluster_origin *origin)
{
    *origin = (struct cluster_origin){c->n_nodes, c->n_groups, NULL};
    origin->count = need(calloc(c->n_groups + 1, sizeof *origin->count));
    size_t num = c->n_nodes;
    for (size_t i = 0; i < c->n_nodes; i++) {
        expand_devices(c->nodes[i]);
    }
    for (size_t i = 0; i < c->n_groups; i++) {
        origin->count[i] = c->groups[i]->count;
        num += (size_t)c->groups[i]->count;
    }
    c->nodes = need(realloc(c->nodes, num * sizeof(NodeInfo *)));
    for (size_t i = 0; i < c->n_groups; i++) {
        for (int32_t k = 0; k < origin->count[i]; k++) {
            c->nodes[c->n_nodes++] = node_new(c->groups[i], k);
        }
        node_group__free_unpacked(c->groups[i], NULL);
    }
    free(c->groups);
    c->groups = NULL;
    c->n_groups = 0;
}

void cluster_path(const struct cluster_origin *origin, size_t node, char out[CLUSTER_PATH_MAX])
{
    if (node < origin->num_nodes) {
        snprintf(out, CLUSTER_PATH_MAX, "nodes.%zu", node);
        return;
    }
    size_t group = 0;
    for (node -= origin->num_nodes; group + 1 < origin->num_groups; group++) {
        if (node < (size_t)origin->count[group]) {
            break;
        }
        node -= (size_t)origin->count[group];
    }
    snprintf(out, CLUSTER_PATH_MAX, "groups.%zu", group);
}
