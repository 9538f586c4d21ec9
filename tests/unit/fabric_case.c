#include "tests/unit/fabric_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "plan/cluster.h"
#include "proto/text.h"

struct fabric *fabric_case(const char *text)
{
    ProtobufCMessage *m = NULL;
    struct fabric *f = NULL;
    struct error err = {0};
    if (text_parse("c.yaml", text, strlen(text), &cluster_spec__descriptor, &m, &err) != 0) {
        fail_msg("%s", err.text);
    }
    ClusterSpec *spec = (ClusterSpec *)m;
    if (cluster_check("c.yaml", spec, &err) != 0 || fabric_new(&f, spec, &err) != 0) {
        fail_msg("%s", err.text);
    }
    cluster_spec__free_unpacked(spec, NULL);
    return f;
}

static DeviceInfo *new_device(int32_t index, const char *type)
{
    DeviceInfo *d = malloc(sizeof *d);
    ASSERT(d);
    device_info__init(d);
    d->has_index = 1;
    d->index = index;
    d->type = strdup(type);
    return d;
}

static char *new_name(const char *prefix, int number)
{
    struct buf b = {0};
    buf_printf(&b, "%s%d", prefix, number);
    return buf_take(&b);
}

struct fabric *fabric_case_tree(int num_nodes, int nodes_per_leaf, int leaves_per_spine,
                                const char *type)
{
    ClusterSpec *spec = malloc(sizeof *spec);
    ASSERT(spec);
    cluster_spec__init(spec);
    spec->nodes = calloc((size_t)num_nodes, sizeof *spec->nodes);
    ASSERT(spec->nodes);
    for (int n = 0; n < num_nodes; n++) {
        NodeInfo *node = malloc(sizeof *node);
        ASSERT(node);
        node_info__init(node);
        node->name = new_name("n", n);
        node->switches = calloc(2, sizeof *node->switches);
        node->devices = calloc(8, sizeof *node->devices);
        ASSERT(node->switches && node->devices);
        node->switches[node->n_switches++] = new_name("leaf", n / nodes_per_leaf);
        node->switches[node->n_switches++] =
            new_name("spine", n / nodes_per_leaf / leaves_per_spine);
        while (node->n_devices < 8) {
            node->devices[node->n_devices] = new_device((int32_t)node->n_devices, type);
            node->n_devices++;
        }
        spec->nodes[spec->n_nodes++] = node;
    }
    struct fabric *f = NULL;
    struct error err = {0};
    if (fabric_new(&f, spec, &err) != 0) {
        fail_msg("%s", err.text);
    }
    cluster_spec__free_unpacked(spec, NULL);
    return f;
}
