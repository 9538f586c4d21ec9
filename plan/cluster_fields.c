/* Each field of a cluster by itself, and the sums that bound what it would be, expanded. */
#include <stdio.h>
#include <string.h>

#include "plan/cluster.h"
#include "plan/cluster_private.h"

/* What is made of a group's name has to fit, too. */
#define GROUP_NAME_MAX 40
#define NICS_MAX 1024

static int refuse(struct error *err, const char *path, const char *field, const char *what)
{
    return error_set(err, ERR_INVALID_ARGUMENT, "%s%s%s: %s", path, path[0] ? "." : "", field,
                     what);
}

static const char name_rule[] =
    "needed: letters, digits, '.', '_', '-', at most 64 characters, of a group 40";

/* Letters, digits, '.', '_' and '-', not first of these: nothing that a set of devices as text
 * (plan/fabric.h) or a shell could mistake. */
static bool cluster_good_name(const char *name)
{
    if (!name || !name[0] || strchr("._-", name[0]) || strlen(name) > CLUSTER_NAME_MAX) {
        return false;
    }
    return name[strspn(name,
                       "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")] == 0;
}

/* A prediction multiplies and divides figures: within these it stays a number. */
static bool is_rate(double x)
{
    return x == 0 || (x >= 1 && x <= 1e24);
}

static bool is_latency(double x)
{
    return x >= 0 && x <= 1e6;
}

static bool is_capability(int32_t x)
{
    return x == 0 || (x >= 10 && x <= 9999);
}

static const char capability_rule[] = "0 (not known), or ten times it: 80 = 8.0";
static const char rate_rule[] = "0 (not known), or 1 to 1e24";
static const char latency_rule[] = "0 to 1e6 seconds";

static int check_network(const char *path, int32_t nics, double bytes_per_s, struct error *err)
{
    if (nics < 0 || nics > NICS_MAX) {
        return refuse(err, path, "nics", "0 to 1024");
    }
    if (!is_rate(bytes_per_s)) {
        return refuse(err, path, "nic_bytes_per_s", rate_rule);
    }
    return 0;
}

static int check_device(const char *path, const DeviceInfo *d, struct error *err)
{
    if (d->index < 0 || d->index >= FABRIC_MAX_DEVICES) {
        return refuse(err, path, "index", "0 to 131071");
    }
    if (d->count < 1 || d->count > FABRIC_MAX_DEVICES) {
        return refuse(err, path, "count", "1 to 131072");
    }
    if (!cluster_good_name(d->type)) {
        return refuse(err, path, "type", name_rule);
    }
    if (d->domain && d->domain[0] && !cluster_good_name(d->domain)) {
        return refuse(err, path, "domain", name_rule);
    }
    if (d->mem_bytes < 0) {
        return refuse(err, path, "mem_bytes", "can't be negative");
    }
    if (!is_capability(d->compute_capability)) {
        return refuse(err, path, "compute_capability", capability_rule);
    }
    const struct {
        const char *field;
        double value;
    } peaks[] = {{"peak_flops_fp32", d->peak_flops_fp32},
                 {"peak_flops_fp64", d->peak_flops_fp64},
                 {"peak_flops_bf16", d->peak_flops_bf16}};
    for (size_t i = 0; i < sizeof peaks / sizeof *peaks; i++) {
        if (!is_rate(peaks[i].value)) {
            return refuse(err, path, peaks[i].field, rate_rule);
        }
    }
    return 0;
}

static int check_switches(const char *path, const NodeInfo *n, struct error *err)
{
    if (n->n_switches > FABRIC_MAX_LEVELS) {
        return refuse(err, path, "switches", "at most 6 levels, from the leaf upwards");
    }
    for (size_t i = 0; i < n->n_switches; i++) {
        if (!cluster_good_name(n->switches[i])) {
            return refuse(err, path, "switches", name_rule);
        }
        for (size_t k = 0; k < i; k++) {
            if (strcmp(n->switches[i], n->switches[k]) == 0) {
                return refuse(err, path, "switches", "the same switch comes twice");
            }
        }
    }
    return 0;
}

/* Adds the node's devices, as many as they would be, to *num_devices. */
static int check_node(const NodeInfo *n, size_t place, int64_t *num_devices, struct error *err)
{
    char path[CLUSTER_PATH_MAX], device[CLUSTER_PATH_MAX + 32];
    snprintf(path, sizeof path, "nodes.%zu", place);
    if (!cluster_good_name(n->name)) {
        return refuse(err, path, "name", name_rule);
    }
    if (n->n_devices == 0) {
        return error_set(err, ERR_INVALID_ARGUMENT, "%s.devices: node %s has 0 devices", path,
                         n->name);
    }
    if (n->has_cores && n->cores < 1) {
        return refuse(err, path, "cores", "cores have to be 1 or more");
    }
    if (n->mem_bytes < 0) {
        return refuse(err, path, "mem_bytes", "mem_bytes 0 or more");
    }
    if (check_network(path, n->nics, n->nic_bytes_per_s, err) != 0 ||
        check_switches(path, n, err) != 0) {
        return -1;
    }
    for (size_t i = 0; i < n->n_devices; i++) {
        snprintf(device, sizeof device, "%s.devices.%zu", path, i);
        if (check_device(device, n->devices[i], err) != 0) {
            return -1;
        }
        *num_devices += n->devices[i]->count;
        if (*num_devices > FABRIC_MAX_DEVICES) {
            return error_set(err, ERR_INVALID_ARGUMENT, "%s: more than %d devices in all", device,
                             FABRIC_MAX_DEVICES);
        }
    }
    return 0;
}

static int check_group(const NodeGroup *g, size_t place, int64_t *num_nodes, int64_t *num_devices,
                       struct error *err)
{
    char path[CLUSTER_PATH_MAX];
    snprintf(path, sizeof path, "groups.%zu", place);
    if (!cluster_good_name(g->name) || strlen(g->name) > GROUP_NAME_MAX) {
        return refuse(err, path, "name", name_rule);
    }
    if (g->count < 1 || g->count > CLUSTER_MAX_NODES) {
        return refuse(err, path, "count", "1 to 65536 nodes");
    }
    if (g->devices < 1 || g->devices > FABRIC_MAX_DEVICES) {
        return refuse(err, path, "devices", "1 to 131072, of one node");
    }
    if (!cluster_good_name(g->type)) {
        return refuse(err, path, "type", name_rule);
    }
    if (g->has_cores && g->cores < 1) {
        return refuse(err, path, "cores", "cores have to be 1 or more");
    }
    if (g->mem_bytes < 0) {
        return refuse(err, path, "mem_bytes", "mem_bytes 0 or more");
    }
    if (g->nodes_per_domain < 1) {
        return refuse(err, path, "nodes_per_domain", "1 or more");
    }
    if (g->nodes_per_leaf < 0 || g->nodes_per_leaf % g->nodes_per_domain != 0) {
        return refuse(err, path, "nodes_per_leaf",
                      "0 (all), or a multiple of nodes_per_domain: a domain lies under one leaf");
    }
    if (g->leaves_per_spine < 0) {
        return refuse(err, path, "leaves_per_spine", "0 (all) or more");
    }
    *num_nodes += g->count;
    *num_devices += (int64_t)g->count * g->devices;
    if (*num_nodes > CLUSTER_MAX_NODES || *num_devices > FABRIC_MAX_DEVICES) {
        return error_set(err, ERR_INVALID_ARGUMENT,
                         "%s.count: more than %d nodes or %d devices in all", path,
                         CLUSTER_MAX_NODES, FABRIC_MAX_DEVICES);
    }
    return check_network(path, g->nics, g->nic_bytes_per_s, err);
}

static int check_type(const ClusterSpec *c, size_t place, struct error *err)
{
    const DeviceType *t = c->types[place];
    char path[CLUSTER_PATH_MAX];
    snprintf(path, sizeof path, "types.%zu", place);
    if (!cluster_good_name(t->name)) {
        return refuse(err, path, "name", name_rule);
    }
    for (size_t i = 0; i < place; i++) {
        if (strcmp(c->types[i]->name, t->name) == 0) {
            return refuse(err, path, "name", "this type is described twice");
        }
    }
    if (t->mem_bytes < 0) {
        return refuse(err, path, "mem_bytes", "can't be negative");
    }
    const struct {
        const char *field;
        double value;
    } figures[] = {{"peak_flops_fp32", t->peak_flops_fp32},
                   {"peak_flops_bf16", t->peak_flops_bf16},
                   {"peak_flops_fp64", t->peak_flops_fp64},
                   {"domain_bytes_per_s", t->domain_bytes_per_s},
                   {"mem_bytes_per_s", t->mem_bytes_per_s}};
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) {
        if (!is_rate(figures[i].value)) {
            return refuse(err, path, figures[i].field, rate_rule);
        }
    }
    if (!is_latency(t->domain_latency_s)) {
        return refuse(err, path, "domain_latency_s", latency_rule);
    }
    return is_capability(t->compute_capability)
               ? 0
               : refuse(err, path, "compute_capability", capability_rule);
}

static int check_link(const ClusterSpec *c, size_t place, struct error *err)
{
    static const char *const names[] = {"node", "leaf", "tree", "far"};
    const LinkInfo *l = c->links[place];
    char path[CLUSTER_PATH_MAX];
    bool known = false;
    snprintf(path, sizeof path, "links.%zu", place);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        known = known || (l->link && strcmp(l->link, names[i]) == 0);
    }
    if (!known) {
        return refuse(err, path, "link", "node, leaf, tree or far");
    }
    for (size_t i = 0; i < place; i++) {
        if (strcmp(c->links[i]->link, l->link) == 0) {
            return refuse(err, path, "link", "this link is described twice");
        }
    }
    if (l->has_bytes_per_s && (l->bytes_per_s == 0 || !is_rate(l->bytes_per_s))) {
        return refuse(err, path, "bytes_per_s", "1 to 1e24");
    }
    if (!is_latency(l->latency_s)) {
        return refuse(err, path, "latency_s", latency_rule);
    }
    return 0;
}

int cluster_check_fields(const ClusterSpec *c, struct error *err)
{
    int64_t num_nodes = (int64_t)c->n_nodes, num_devices = 0;
    if (c->n_nodes > CLUSTER_MAX_NODES || c->n_nodes + c->n_groups == 0) {
        return error_set(err, ERR_INVALID_ARGUMENT, "nodes: %zu nodes; 1 to %d", c->n_nodes,
                         CLUSTER_MAX_NODES);
    }
    /* What cluster_fill_types added counts, too. */
    if (c->n_types > 2 * FABRIC_MAX_TYPES) {
        return error_set(err, ERR_INVALID_ARGUMENT, "types: at most %d", 2 * FABRIC_MAX_TYPES);
    }
    for (size_t i = 0; i < c->n_types; i++) {
        if (check_type(c, i, err) != 0) {
            return -1;
        }
    }
    for (size_t i = 0; i < c->n_links; i++) {
        if (check_link(c, i, err) != 0) {
            return -1;
        }
    }
    for (size_t i = 0; i < c->n_nodes; i++) {
        if (check_node(c->nodes[i], i, &num_devices, err) != 0) {
            return -1;
        }
    }
    for (size_t i = 0; i < c->n_groups; i++) {
        if (check_group(c->groups[i], i, &num_nodes, &num_devices, err) != 0) {
            return -1;
        }
    }
    return 0;
}
