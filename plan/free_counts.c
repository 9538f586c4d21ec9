#include "plan/free_counts.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

/* What doesn't change: shared by all copies of a map. */
struct shape {
    atomic_int refs;
    int32_t num_types, num_devices;
    struct free_cells *types;
    /* All counts lie in one array: for each type cells, leaves, cells by number. */
    int32_t *first_cell, *first_leaf, *first_with;
    int32_t *device_cell, *cell_leaf; /* in its type; cell_leaf by first_cell + cell */
    const int16_t *device_type;
    int32_t num_counts;
    int32_t *store; /* of what types points to */
};

struct free_counts {
    struct shape *shape;
    int32_t *num;   /* by type */
    int32_t *count; /* num_counts */
};

static void *need(size_t num, size_t size)
{
    void *p = calloc(num ? num : 1, size);
    ASSERT(p);
    return p;
}

int32_t free_counts_leaf(const struct fabric *f, int32_t domain)
{
    if (f->domains[domain].up >= 0) {
        return f->domains[domain].up;
    }
    while (domain > 0 && f->domains[domain - 1].up < 0) {
        int32_t first = f->domains[domain].first_device;
        if (f->devices[first].node != f->devices[first - 1].node) {
            break;
        }
        domain--;
    }
    return -1 - domain;
}

/* ---- the shape ---- */

/* Cells of a type so far, while devices are walked in the order of the tree. */
struct walk {
    int32_t last_domain, last_key, cells, leaves, in_cell;
    int32_t *domain, *leaf_cell, *leaf_key, *cell_leaf, *cells_of;
};

static void note_mem(struct free_cells *t, int64_t mem_bytes)
{
    if (mem_bytes <= 0) {
        return;
    }
    if (t->min_mem_bytes == 0 || mem_bytes < t->min_mem_bytes) {
        t->min_mem_bytes = mem_bytes;
    }
    if (mem_bytes > t->max_mem_bytes) {
        t->max_mem_bytes = mem_bytes;
    }
}

static void add_cell(struct walk *w, int32_t domain, int32_t key)
{
    if (w->cells == 0 || key != w->last_key) {
        w->leaf_key[w->leaves] = key;
        w->leaf_cell[w->leaves++] = w->cells;
    }
    w->domain[w->cells] = domain;
    w->cell_leaf[w->cells++] = w->leaves - 1;
    w->last_domain = domain;
    w->last_key = key;
    w->in_cell = 0;
}

static void walk_devices(struct shape *s, const struct fabric *f, struct walk *walks)
{
    int32_t domain = -1, key = 0;
    for (int32_t d = 0; d < f->num_devices; d++) {
        const struct fabric_device *dev = &f->devices[d];
        struct walk *w = &walks[dev->type];
        struct free_cells *t = &s->types[dev->type];
        if (dev->domain != domain) {
            domain = dev->domain;
            key = free_counts_leaf(f, domain);
        }
        if (w->cells == 0 || w->last_domain != domain) {
            add_cell(w, domain, key);
        }
        s->device_cell[d] = w->cells - 1;
        if (w->in_cell > 0) {
            w->cells_of[w->in_cell]--;
        }
        w->cells_of[++w->in_cell]++;
        t->max_devices = w->in_cell > t->max_devices ? w->in_cell : t->max_devices;
        t->num_devices++;
        note_mem(t, dev->mem_bytes);
    }
}

/* Room for what the walk writes: no type has more cells than devices. */
static void lay_out(struct shape *s, const struct fabric *f, struct walk *walks)
{
    int32_t *devices = need((size_t)s->num_types, sizeof *devices);
    int16_t *types = need((size_t)f->num_devices, sizeof *types);
    for (int32_t d = 0; d < f->num_devices; d++) {
        types[d] = f->devices[d].type;
        devices[types[d]]++;
    }
    s->device_type = types;
    s->store = need(5 * (size_t)f->num_devices + 2 * (size_t)s->num_types, sizeof *s->store);
    int32_t *at = s->store;
    for (int32_t t = 0; t < s->num_types; t++) {
        size_t n = (size_t)devices[t];
        walks[t].domain = at;
        walks[t].leaf_key = at + n;
        walks[t].cell_leaf = at + 2 * n;
        walks[t].leaf_cell = at + 3 * n;
        walks[t].cells_of = at + 4 * n + 1;
        at += 5 * n + 2;
    }
    free(devices);
}

static struct shape *shape_new(const struct fabric *f)
{
    struct shape *s = need(1, sizeof *s);
    size_t num = (size_t)f->num_types;
    atomic_init(&s->refs, 1);
    s->num_types = f->num_types;
    s->num_devices = f->num_devices;
    s->types = need(num, sizeof *s->types);
    s->first_cell = need(num, sizeof(int32_t));
    s->first_leaf = need(num, sizeof(int32_t));
    s->first_with = need(num, sizeof(int32_t));
    s->device_cell = need((size_t)f->num_devices, sizeof(int32_t));
    struct walk *walks = need(num, sizeof *walks);
    lay_out(s, f, walks);
    walk_devices(s, f, walks);
    for (int32_t t = 0; t < s->num_types; t++) {
        struct free_cells *c = &s->types[t];
        walks[t].leaf_cell[walks[t].leaves] = walks[t].cells;
        c->num_cells = walks[t].cells;
        c->num_leaves = walks[t].leaves;
        c->domain = walks[t].domain;
        c->leaf_cell = walks[t].leaf_cell;
        c->leaf_key = walks[t].leaf_key;
        c->cells_of = walks[t].cells_of;
        s->first_cell[t] = s->num_counts;
        s->first_leaf[t] = s->num_counts + c->num_cells;
        s->first_with[t] = s->first_leaf[t] + c->num_leaves;
        s->num_counts = s->first_with[t] + c->max_devices + 1;
    }
    s->cell_leaf = need((size_t)s->num_counts, sizeof(int32_t));
    for (int32_t t = 0; t < s->num_types; t++) {
        memcpy(&s->cell_leaf[s->first_cell[t]], walks[t].cell_leaf,
               (size_t)walks[t].cells * sizeof(int32_t));
    }
    free(walks);
    return s;
}

static void shape_unref(struct shape *s)
{
    if (atomic_fetch_sub(&s->refs, 1) > 1) {
        return;
    }
    free(s->types);
    free(s->first_cell);
    free(s->first_leaf);
    free(s->first_with);
    free(s->device_cell);
    free(s->cell_leaf);
    free((void *)s->device_type);
    free(s->store);
    free(s);
}

/* ---- counts ---- */

static void change(struct free_counts *c, int32_t device, int32_t by)
{
    const struct shape *s = c->shape;
    int32_t type = s->device_type[device];
    int32_t cell = s->first_cell[type] + s->device_cell[device];
    int32_t *with = &c->count[s->first_with[type]];
    with[c->count[cell]]--;
    c->count[cell] += by;
    with[c->count[cell]]++;
    c->count[s->first_leaf[type] + s->cell_leaf[cell]] += by;
    c->num[type] += by;
}

struct free_counts *free_counts_new(const struct fabric *f)
{
    struct free_counts *c = need(1, sizeof *c);
    struct shape *s = c->shape = shape_new(f);
    c->num = need((size_t)s->num_types, sizeof *c->num);
    c->count = need((size_t)s->num_counts, sizeof *c->count);
    for (int32_t t = 0; t < s->num_types; t++) {
        c->count[s->first_with[t]] = s->types[t].num_cells;
    }
    for (int32_t d = 0; d < s->num_devices; d++) {
        change(c, d, 1);
    }
    return c;
}

struct free_counts *free_counts_copy(const struct free_counts *from)
{
    struct free_counts *c = need(1, sizeof *c);
    c->shape = from->shape;
    atomic_fetch_add(&c->shape->refs, 1);
    c->num = need((size_t)c->shape->num_types, sizeof *c->num);
    c->count = need((size_t)c->shape->num_counts, sizeof *c->count);
    free_counts_set(c, from);
    return c;
}

void free_counts_set(struct free_counts *c, const struct free_counts *from)
{
    ASSERT(c->shape == from->shape);
    memcpy(c->num, from->num, (size_t)c->shape->num_types * sizeof *c->num);
    memcpy(c->count, from->count, (size_t)c->shape->num_counts * sizeof *c->count);
}

void free_counts_free(struct free_counts *c)
{
    if (c) {
        shape_unref(c->shape);
        free(c->num);
        free(c->count);
        free(c);
    }
}

void free_counts_take(struct free_counts *c, int32_t device)
{
    change(c, device, -1);
}

void free_counts_give(struct free_counts *c, int32_t device)
{
    change(c, device, 1);
}

const struct free_cells *free_counts_cells(const struct free_counts *c, int32_t type)
{
    return &c->shape->types[type];
}

const int32_t *free_counts_by_cell(const struct free_counts *c, int32_t type)
{
    return &c->count[c->shape->first_cell[type]];
}

const int32_t *free_counts_by_leaf(const struct free_counts *c, int32_t type)
{
    return &c->count[c->shape->first_leaf[type]];
}

const int32_t *free_counts_cells_with(const struct free_counts *c, int32_t type)
{
    return &c->count[c->shape->first_with[type]];
}

int32_t free_counts_num(const struct free_counts *c, int32_t type)
{
    return c->num[type];
}

int32_t free_counts_cell_of(const struct free_counts *c, int32_t device)
{
    return c->shape->device_cell[device];
}
