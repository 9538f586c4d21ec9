#include "plan/fabric.h"

#include <stdlib.h>
#include <string.h>

#include "plan/fabric_private.h"
#include "proto/text.h"

void *fabric_alloc(struct fabric *f, int32_t num, size_t size)
{
    ASSERT(num >= 0);
    return arena_alloc(&f->inside->arena, num ? (size_t)num * size : size);
}

int fabric_new(struct fabric **out, const ClusterSpec *spec, struct error *err)
{
    struct fabric *f = calloc(1, sizeof *f);
    ASSERT(f);
    f->inside = calloc(1, sizeof *f->inside);
    ASSERT(f->inside);
    f->inside->spec = (ClusterSpec *)text_clone(&spec->base);
    f->spec = f->inside->spec;
    if (fabric_build_types(f, err) != 0 || fabric_build_tree(f, err) != 0) {
        fabric_free(f);
        return -1;
    }
    *out = f;
    return 0;
}

void fabric_free(struct fabric *f)
{
    if (!f) {
        return;
    }
    name_table_free(&f->inside->node_names);
    cluster_spec__free_unpacked(f->inside->spec, NULL);
    arena_free(&f->inside->arena);
    free(f->inside);
    free(f);
}

int32_t fabric_find_node(const struct fabric *f, const char *name)
{
    int32_t place = name_table_find(&f->inside->node_names, name);
    return place < 0 ? -1 : f->node_of_spec[place];
}

int32_t fabric_find_device(const struct fabric *f, const char *node, int32_t index)
{
    int32_t n = fabric_find_node(f, node);
    if (n < 0) {
        return -1;
    }
    int32_t low = f->nodes[n].first_device, high = low + f->nodes[n].num_devices;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        int32_t device = f->by_index[middle];
        if (f->devices[device].index == index) {
            return device;
        }
        if (f->devices[device].index < index) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return -1;
}

int32_t fabric_find_type(const struct fabric *f, const char *name)
{
    for (int32_t t = 0; t < f->num_types; t++) {
        if (strcmp(f->types[t].name, name) == 0) {
            return t;
        }
    }
    return -1;
}

int32_t fabric_switch(const struct fabric *f, int32_t device, int32_t level)
{
    int32_t part = f->nodes[f->devices[device].node].up;
    for (int32_t l = 0; l < level && part >= 0; l++) {
        part = f->switches[l][part].up;
    }
    return part;
}

Link fabric_link(const struct fabric *f, int32_t a, int32_t b)
{
    const struct fabric_device *x = &f->devices[a], *y = &f->devices[b];
    if (a == b) {
        return LINK_NONE;
    }
    if (x->domain == y->domain) {
        return LINK_DOMAIN;
    }
    if (x->node == y->node) {
        return LINK_NODE;
    }
    int32_t up = f->nodes[x->node].up, other = f->nodes[y->node].up;
    for (int32_t level = 0; up >= 0 && other >= 0; level++) {
        if (up == other) {
            return level == 0 ? LINK_LEAF : LINK_TREE;
        }
        up = f->switches[level][up].up;
        other = f->switches[level][other].up;
    }
    return LINK_FAR;
}
