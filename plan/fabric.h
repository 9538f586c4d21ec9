/* A cluster as one looks at it to place a gang: devices by number, and for each the node, fast
 * domain and switches that it hangs on. Made once from a checked ClusterSpec, never changed. What
 * is free or drained is not in here (plan/free_map.h).
 *
 * Devices are numbered in the order of the tree: those of a domain are neighbours, as are those of
 * a leaf, and of each switch above it; within a domain, those of a node. So a range of numbers is
 * a part of the machine. Nodes and domains are numbered in the same order. */
#ifndef TANDEM_PLAN_FABRIC_H
#define TANDEM_PLAN_FABRIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"
#include "plan/device_set.h"
#include "proto/names.h"

#define FABRIC_MAX_DEVICES (1 << 17)
#define FABRIC_MAX_TYPES 32
#define FABRIC_MAX_LEVELS 6 /* of switches; the leaf is level 0 */

struct fabric_device {
    int32_t node, domain;
    int16_t type;      /* in types */
    int32_t index;     /* on its node, as people and ranks call it */
    int64_t mem_bytes; /* 0 = not known */
};

/* A node, a domain or a switch: a range of devices. */
struct fabric_part {
    const char *name;
    int32_t first_device, num_devices;
    int32_t up; /* the part that it lies in: of a node or domain its leaf, of a switch the next
                 * one above it; -1 = none */
};

struct fabric_type {
    const char *name;
    double peak_fp32, peak_fp64, peak_bf16; /* FLOP/s; 0 = not known */
    double domain_bytes_per_s, domain_latency_s;
    double mem_bytes_per_s;
    int32_t capability; /* ten times the compute capability; 0 = not known */
    bool is_cpu;
};

struct fabric_link {
    double bytes_per_s, latency_s;
};

struct fabric {
    int32_t num_devices, num_nodes, num_domains, num_types, num_levels;
    const struct fabric_device *devices;
    /* Parts of a level cover each device at most once, ascending. A node's domain may be larger
     * than it (NVL72) or smaller (a split host). */
    const struct fabric_part *nodes, *domains;
    const struct fabric_part *switches[FABRIC_MAX_LEVELS];
    int32_t num_switches[FABRIC_MAX_LEVELS];
    const struct fabric_type *types;
    /* NODE to FAR; DOMAIN stands with the type. Where a file doesn't say: fabric_build.c. */
    struct fabric_link links[LINK_FAR + 1];
    const ClusterSpec *spec; /* its own copy, groups expanded, in the file's order */

    const int32_t *node_of_spec; /* [num_nodes] number of the node that is spec->nodes[i] */
    const int32_t
        *by_index; /* [num_devices] devices of each node in its range, indexes ascending */
    struct fabric_inside *inside; /* plan/fabric.c */
};

/* spec has passed cluster_check (which expands groups and fills figures in). */
int fabric_new(struct fabric **out, const ClusterSpec *spec, struct error *err);
void fabric_free(struct fabric *f);

/* -1: no such node, device or type. */
int32_t fabric_find_node(const struct fabric *f, const char *name);
int32_t fabric_find_device(const struct fabric *f, const char *node, int32_t index);
int32_t fabric_find_type(const struct fabric *f, const char *name);

/* The way from one device to another; LINK_NONE for the same. */
Link fabric_link(const struct fabric *f, int32_t a, int32_t b);

/* The switch of a level over a device; -1 = none. */
int32_t fabric_switch(const struct fabric *f, int32_t device, int32_t level);

/* "alpha:0-3,beta:1"; nothing for the empty set. */
void fabric_print_set(const struct fabric *f, const struct device_set *s, struct buf *out);
/* The reverse; devices that are not in f (any more) are left out and counted. */
int fabric_parse_set(const struct fabric *f, const char *text, struct device_set **out,
                     int32_t *num_unknown, struct error *err);

#endif
