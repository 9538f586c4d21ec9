/* Numbers of nodes, domains, devices and switches, in the order of the tree: nodes are sorted by
 * the place in the file at which each switch above them, from the top down, their domain and they
 * themselves come first. */
#include <stdlib.h>
#include <string.h>

#include "plan/cluster.h"
#include "plan/fabric_private.h"

struct order {
    int32_t place; /* of the node in the file */
    int32_t num_keys;
    int32_t key[FABRIC_MAX_LEVELS + 2];
};

struct tree {
    struct fabric *f;
    struct name_table switch_names[FABRIC_MAX_LEVELS], domain_names;
    struct order *order;    /* [nodes] */
    int32_t *domain_number; /* by name number; -1 = not seen yet */
    int32_t *switch_number[FABRIC_MAX_LEVELS];
    struct fabric_device *devices;
    struct fabric_part *nodes, *domains, *switches[FABRIC_MAX_LEVELS];
    int32_t *by_index, *node_of_spec;
    int32_t num_devices; /* numbered so far */
};

static int compare_orders(const void *a, const void *b)
{
    const struct order *x = a, *y = b;
    for (int32_t i = 0; i < x->num_keys; i++) {
        if (x->key[i] != y->key[i]) {
            return x->key[i] < y->key[i] ? -1 : 1;
        }
    }
    return 0;
}

static int count_levels(struct fabric *f, struct error *err)
{
    for (size_t n = 0; n < f->spec->n_nodes; n++) {
        const NodeInfo *node = f->spec->nodes[n];
        if (node->n_switches > FABRIC_MAX_LEVELS) {
            return error_set(err, ERR_INVALID_ARGUMENT,
                             "node %s: %zu levels of switches; at most %d", node->name,
                             node->n_switches, FABRIC_MAX_LEVELS);
        }
        if (f->num_levels < (int32_t)node->n_switches) {
            f->num_levels = (int32_t)node->n_switches;
        }
    }
    return 0;
}

/* The number of name, and in first[] the node at which it came first. */
static int32_t note(struct name_table *names, const char *name, int32_t node, int32_t *first)
{
    int32_t known = names->num, i = name_table_add(names, name);
    if (i == known) {
        first[i] = node;
    }
    return i;
}

static void order_node(struct tree *t, int32_t n, int32_t **first_of_switch,
                       int32_t *first_of_domain)
{
    const NodeInfo *node = t->f->spec->nodes[n];
    int32_t levels = t->f->num_levels;
    struct order *o = &t->order[n];
    o->place = n;
    o->num_keys = levels + 2;
    for (int32_t l = 0; l < levels; l++) {
        int32_t *key = &o->key[levels - 1 - l];
        *key = -1;
        if (l < (int32_t)node->n_switches) {
            int32_t s = note(&t->switch_names[l], node->switches[l], n, first_of_switch[l]);
            *key = first_of_switch[l][s];
        }
    }
    o->key[levels] = n;
    for (size_t i = 0; i < node->n_devices; i++) {
        const char *name = cluster_domain(node, node->devices[i]);
        int32_t d = note(&t->domain_names, name, n, first_of_domain);
        if (first_of_domain[d] < o->key[levels]) {
            o->key[levels] = first_of_domain[d];
        }
    }
    o->key[levels + 1] = n;
}

/* Switches and domains by name, and the order of the nodes. */
static void sort_nodes(struct tree *t)
{
    size_t num = t->f->spec->n_nodes;
    int32_t *first_of_switch[FABRIC_MAX_LEVELS] = {0};
    int32_t *first_of_domain = calloc((size_t)t->f->num_devices + 1, sizeof *first_of_domain);
    t->order = calloc(num + 1, sizeof *t->order);
    ASSERT(first_of_domain && t->order);
    for (int32_t l = 0; l < t->f->num_levels; l++) {
        first_of_switch[l] = calloc(num, sizeof(int32_t));
        ASSERT(first_of_switch[l]);
    }
    for (size_t n = 0; n < num; n++) {
        order_node(t, (int32_t)n, first_of_switch, first_of_domain);
    }
    qsort(t->order, num, sizeof *t->order, compare_orders);
    for (int32_t l = 0; l < t->f->num_levels; l++) {
        free(first_of_switch[l]);
    }
    free(first_of_domain);
}

static void alloc_parts(struct tree *t)
{
    struct fabric *f = t->f;
    f->num_nodes = (int32_t)f->spec->n_nodes;
    f->num_domains = t->domain_names.num;
    f->devices = t->devices = fabric_alloc(f, f->num_devices, sizeof *t->devices);
    f->nodes = t->nodes = fabric_alloc(f, f->num_nodes, sizeof *t->nodes);
    f->domains = t->domains = fabric_alloc(f, f->num_domains, sizeof *t->domains);
    f->by_index = t->by_index = fabric_alloc(f, f->num_devices, sizeof *t->by_index);
    f->node_of_spec = t->node_of_spec = fabric_alloc(f, f->num_nodes, sizeof *t->node_of_spec);
    t->domain_number = malloc(((size_t)f->num_domains + 1) * sizeof *t->domain_number);
    ASSERT(t->domain_number);
    memset(t->domain_number, -1, (size_t)f->num_domains * sizeof *t->domain_number);
    for (int32_t l = 0; l < f->num_levels; l++) {
        int32_t num = t->switch_names[l].num;
        f->num_switches[l] = num;
        f->switches[l] = t->switches[l] = fabric_alloc(f, num, sizeof *t->switches[l]);
        t->switch_number[l] = malloc((size_t)num * sizeof **t->switch_number);
        ASSERT(t->switch_number[l]);
        memset(t->switch_number[l], -1, (size_t)num * sizeof **t->switch_number);
    }
}

/* Puts num devices from first on at the end of a part; false: it had devices elsewhere, or lies in
 * something else. */
static bool extend(struct fabric_part *p, const char *name, int32_t first, int32_t num, int32_t up)
{
    if (!p->name) {
        *p = (struct fabric_part){name, first, num, up};
        return true;
    }
    bool fits = p->first_device + p->num_devices == first && p->up == up;
    p->num_devices += num;
    return fits;
}

struct numbered {
    const DeviceInfo *info;
    int32_t domain;
};

static int compare_indexes(const void *a, const void *b)
{
    const struct numbered *x = a, *y = b;
    return (x->info->index > y->info->index) - (x->info->index < y->info->index);
}

/* Same domain: by index. */
static int compare_domains(const void *a, const void *b)
{
    const struct numbered *x = a, *y = b;
    return x->domain != y->domain ? (x->domain > y->domain) - (x->domain < y->domain)
                                  : compare_indexes(a, b);
}

static int32_t number_of(int32_t *numbers, int32_t name, int32_t *next)
{
    if (numbers[name] < 0) {
        numbers[name] = (*next)++;
    }
    return numbers[name];
}

static int number_devices(struct tree *t, const NodeInfo *node, int32_t n, int32_t *next_domain,
                          struct error *err)
{
    size_t num = node->n_devices;
    struct numbered *d = calloc(num, sizeof *d);
    int rc = 0;
    ASSERT(d);
    for (size_t i = 0; i < num; i++) {
        d[i].info = node->devices[i];
    }
    qsort(d, num, sizeof *d, compare_indexes);
    for (size_t i = 0; i < num; i++) {
        int32_t name = name_table_find(&t->domain_names, cluster_domain(node, d[i].info));
        d[i].domain = number_of(t->domain_number, name, next_domain);
    }
    qsort(d, num, sizeof *d, compare_domains);
    for (size_t i = 0; i < num && rc == 0; i++) {
        int32_t device = t->num_devices + (int32_t)i;
        int32_t type = fabric_find_type(t->f, d[i].info->type);
        t->devices[device] = (struct fabric_device){
            .node = n,
            .domain = d[i].domain,
            .type = (int16_t)type,
            .index = d[i].info->index,
            .mem_bytes = d[i].info->mem_bytes,
        };
        if (!extend(&t->domains[d[i].domain], cluster_domain(node, d[i].info), device, 1,
                    t->nodes[n].up)) {
            rc = error_set(err, ERR_INVALID_ARGUMENT,
                           "domain %s: its nodes have to be wholly in it, under one leaf",
                           cluster_domain(node, d[i].info));
        }
    }
    free(d);
    return rc;
}

static int compare_device_indexes(const void *a, const void *b, void *devices)
{
    const struct fabric_device *d = devices;
    int32_t x = d[*(const int32_t *)a].index, y = d[*(const int32_t *)b].index;
    return (x > y) - (x < y);
}

static int number_node(struct tree *t, int32_t n, int32_t *next_domain, int32_t *next_switch,
                       struct error *err)
{
    const NodeInfo *node = t->f->spec->nodes[t->order[n].place];
    int32_t num = (int32_t)node->n_devices, up = -1;
    for (int32_t l = (int32_t)node->n_switches - 1; l >= 0; l--) {
        int32_t name = name_table_find(&t->switch_names[l], node->switches[l]);
        int32_t s = number_of(t->switch_number[l], name, &next_switch[l]);
        if (!extend(&t->switches[l][s], node->switches[l], t->num_devices, num, up)) {
            return error_set(err, ERR_INVALID_ARGUMENT, "switch %s hangs on two others",
                             node->switches[l]);
        }
        up = s;
    }
    t->nodes[n] = (struct fabric_part){node->name, t->num_devices, num, up};
    t->node_of_spec[t->order[n].place] = n;
    if (number_devices(t, node, n, next_domain, err) != 0) {
        return -1;
    }
    for (int32_t i = 0; i < num; i++) {
        t->by_index[t->num_devices + i] = t->num_devices + i;
    }
    qsort_r(t->by_index + t->num_devices, (size_t)num, sizeof *t->by_index, compare_device_indexes,
            t->devices);
    t->num_devices += num;
    return 0;
}

int fabric_build_tree(struct fabric *f, struct error *err)
{
    struct tree t = {.f = f};
    int32_t next_domain = 0, next_switch[FABRIC_MAX_LEVELS] = {0};
    int rc = count_levels(f, err);
    if (rc == 0) {
        sort_nodes(&t);
        alloc_parts(&t);
    }
    for (int32_t n = 0; rc == 0 && n < f->num_nodes; n++) {
        rc = number_node(&t, n, &next_domain, next_switch, err);
    }
    for (size_t n = 0; n < f->spec->n_nodes; n++) {
        name_table_add(&f->inside->node_names, f->spec->nodes[n]->name);
    }
    for (int32_t l = 0; l < FABRIC_MAX_LEVELS; l++) {
        name_table_free(&t.switch_names[l]);
        free(t.switch_number[l]);
    }
    name_table_free(&t.domain_names);
    free(t.domain_number);
    free(t.order);
    return rc;
}
