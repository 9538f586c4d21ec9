/* What the nodes of a cluster are to each other: names and indexes differ, switches are a tree,
 * fast domains are in one place. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/cluster.h"
#include "plan/cluster_private.h"

struct check {
    const ClusterSpec *c;
    const struct cluster_origin *origin;
    struct error *err;
};

static int refuse(const struct check *k, size_t node, const char *field, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

static int refuse(const struct check *k, size_t node, const char *field, const char *fmt, ...)
{
    char path[CLUSTER_PATH_MAX], text[512];
    va_list args;
    cluster_path(k->origin, node, path);
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    bool in_file = node < k->origin->num_nodes;
    return error_set(k->err, ERR_INVALID_ARGUMENT, "%s%s%s: %s", path, in_file ? "." : "",
                     in_file ? field : "", text);
}

static int compare_indexes(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

static int check_indexes(const struct check *k, size_t node)
{
    const NodeInfo *n = k->c->nodes[node];
    int32_t *indexes = calloc(n->n_devices, sizeof *indexes);
    ASSERT(indexes);
    for (size_t i = 0; i < n->n_devices; i++) {
        indexes[i] = n->devices[i]->index;
    }
    qsort(indexes, n->n_devices, sizeof *indexes, compare_indexes);
    int rc = 0;
    if (indexes[n->n_devices - 1] >= FABRIC_MAX_DEVICES) {
        rc = refuse(k, node, "devices", "node %s: device indexes count on to %d; at most %d",
                    n->name, indexes[n->n_devices - 1], FABRIC_MAX_DEVICES - 1);
    }
    for (size_t i = 1; i < n->n_devices && rc == 0; i++) {
        if (indexes[i] == indexes[i - 1]) {
            rc = refuse(k, node, "devices", "node %s has two devices with index %d", n->name,
                        indexes[i]);
        }
    }
    free(indexes);
    return rc;
}

static int check_names(const struct check *k)
{
    struct name_table names = {0};
    int rc = 0;
    for (size_t n = 0; n < k->c->n_nodes && rc == 0; n++) {
        int32_t known = names.num;
        if (name_table_add(&names, k->c->nodes[n]->name) != known) {
            rc = refuse(k, n, "name", "two nodes are called %s", k->c->nodes[n]->name);
        } else {
            rc = check_indexes(k, n);
        }
    }
    name_table_free(&names);
    return rc;
}

struct seen_switch {
    size_t level;
    const char *up; /* NULL = none */
};

static int check_switch(const struct check *k, size_t node, size_t level,
                        const struct seen_switch *seen)
{
    const NodeInfo *n = k->c->nodes[node];
    const char *up = level + 1 < n->n_switches ? n->switches[level + 1] : NULL;
    if (seen->level != level) {
        return refuse(k, node, "switches", "%s is on level %zu here and on level %zu elsewhere",
                      n->switches[level], level, seen->level);
    }
    if ((up == NULL) != (seen->up == NULL) || (up && strcmp(up, seen->up) != 0)) {
        return refuse(k, node, "switches", "%s hangs on %s here and on %s elsewhere",
                      n->switches[level], up ? up : "nothing", seen->up ? seen->up : "nothing");
    }
    return 0;
}

static int check_switches(const struct check *k)
{
    struct name_table names = {0};
    size_t most = 0;
    int rc = 0;
    for (size_t n = 0; n < k->c->n_nodes; n++) {
        most += k->c->nodes[n]->n_switches;
    }
    struct seen_switch *seen = calloc(most + 1, sizeof *seen);
    ASSERT(seen);
    for (size_t n = 0; n < k->c->n_nodes; n++) {
        const NodeInfo *node = k->c->nodes[n];
        for (size_t l = 0; l < node->n_switches && rc == 0; l++) {
            int32_t known = names.num, s = name_table_add(&names, node->switches[l]);
            if (s == known) {
                seen[s].level = l;
                seen[s].up = l + 1 < node->n_switches ? node->switches[l + 1] : NULL;
            } else {
                rc = check_switch(k, n, l, &seen[s]);
            }
        }
    }
    free(seen);
    name_table_free(&names);
    return rc;
}

struct seen_domain {
    size_t node; /* the first */
    bool spans;
};

static const char *leaf_of(const NodeInfo *n)
{
    return n->n_switches ? n->switches[0] : NULL;
}

static int note_domain(const struct check *k, size_t node, const char *name,
                       struct seen_domain *seen)
{
    const NodeInfo *here = k->c->nodes[node], *first = k->c->nodes[seen->node];
    const char *leaf = leaf_of(here), *other = leaf_of(first);
    if (seen->node == node) {
        return 0;
    }
    seen->spans = true;
    if ((leaf == NULL) != (other == NULL) || (leaf && strcmp(leaf, other) != 0)) {
        return refuse(k, node, "switches",
                      "domain %s is under %s here and, with node %s, under %s: its nodes have to "
                      "hang on one leaf",
                      name, leaf ? leaf : "no leaf", first->name, other ? other : "no leaf");
    }
    return 0;
}

/* A domain of several nodes has all of each: else devices couldn't be numbered so that nodes and
 * domains are ranges, and no such machine is known. */
static int check_whole(const struct check *k, size_t node, const struct name_table *names,
                       const struct seen_domain *seen)
{
    const NodeInfo *n = k->c->nodes[node];
    const char *first = cluster_domain(n, n->devices[0]);
    for (size_t i = 1; i < n->n_devices; i++) {
        const char *other = cluster_domain(n, n->devices[i]);
        if (strcmp(first, other) == 0) {
            continue;
        }
        bool first_spans = seen[name_table_find(names, first)].spans;
        if (first_spans || seen[name_table_find(names, other)].spans) {
            return refuse(k, node, "devices",
                          "domain %s spans nodes, so all devices of node %s have to be in it",
                          first_spans ? first : other, n->name);
        }
    }
    return 0;
}

static int check_domains(const struct check *k)
{
    struct name_table names = {0};
    size_t most = 0;
    int rc = 0;
    for (size_t n = 0; n < k->c->n_nodes; n++) {
        most += k->c->nodes[n]->n_devices;
    }
    struct seen_domain *seen = calloc(most, sizeof *seen);
    ASSERT(seen);
    for (size_t n = 0; n < k->c->n_nodes; n++) {
        const NodeInfo *node = k->c->nodes[n];
        for (size_t i = 0; i < node->n_devices && rc == 0; i++) {
            const char *name = cluster_domain(node, node->devices[i]);
            int32_t known = names.num, d = name_table_add(&names, name);
            if (d == known) {
                seen[d].node = n;
            }
            rc = note_domain(k, n, name, &seen[d]);
        }
    }
    for (size_t n = 0; n < k->c->n_nodes && rc == 0; n++) {
        rc = check_whole(k, n, &names, seen);
    }
    free(seen);
    name_table_free(&names);
    return rc;
}

int cluster_check_tree(const ClusterSpec *c, const struct cluster_origin *origin, struct error *err)
{
    const struct check k = {c, origin, err};
    if (check_names(&k) != 0 || check_switches(&k) != 0) {
        return -1;
    }
    return check_domains(&k);
}
