#include "server/drains.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Rows by node and device. */
struct list {
    struct drain_row *rows; /* owned */
    size_t num;
};

struct drains {
    const struct fabric *fabric; /* borrowed */
    struct list now, before;     /* before.rows NULL: nothing was changed in this batch */
    bool changed;
    bool *fixed;          /* [num_devices]: the cluster file says so */
    bool *missing;        /* [num_devices] */
    char (*reasons)[128]; /* [num_nodes]: of what is missing */
    bool *flags;          /* [num_devices]: what comes of it all */
};

int drains_new(struct drains **out, const struct fabric *f, struct error *err)
{
    struct drains *d = calloc(1, sizeof *d);
    if (!d) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "out of memory");
    }
    d->fabric = f;
    d->fixed = calloc((size_t)f->num_devices + 1, sizeof *d->fixed);
    d->missing = calloc((size_t)f->num_devices + 1, sizeof *d->missing);
    d->flags = calloc((size_t)f->num_devices + 1, sizeof *d->flags);
    d->reasons = calloc((size_t)f->num_nodes + 1, sizeof *d->reasons);
    ASSERT(d->fixed && d->missing && d->flags && d->reasons);
    for (size_t n = 0; n < f->spec->n_nodes; n++) {
        const NodeInfo *node = f->spec->nodes[n];
        for (size_t i = 0; i < node->n_devices; i++) {
            d->fixed[fabric_find_device(f, node->name, node->devices[i]->index)] =
                node->devices[i]->drained;
        }
    }
    memcpy(d->flags, d->fixed, (size_t)f->num_devices * sizeof *d->flags);
    *out = d;
    return 0;
}

void drains_free(struct drains *d)
{
    if (!d) {
        return;
    }
    free(d->now.rows);
    free(d->before.rows);
    free(d->fixed);
    free(d->missing);
    free(d->flags);
    free(d->reasons);
    free(d);
}

/* ---- rows ---- */

static int compare(const struct drain_row *r, const char *node, int32_t device)
{
    int by_node = strcmp(r->node, node);
    return by_node ? by_node : (r->device > device) - (r->device < device);
}

/* Where that row is, or would be. */
static size_t slot(const struct drains *d, const char *node, int32_t device)
{
    size_t lo = 0, hi = d->now.num;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (compare(&d->now.rows[mid], node, device) < 0) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return lo;
}

static void flag_row(struct drains *d, const struct drain_row *r)
{
    const struct fabric *f = d->fabric;
    int32_t node = fabric_find_node(f, r->node);
    if (node < 0) {
        return;
    }
    if (r->device < 0) {
        const struct fabric_part *p = &f->nodes[node];
        memset(d->flags + p->first_device, true, (size_t)p->num_devices * sizeof *d->flags);
        return;
    }
    int32_t device = fabric_find_device(f, r->node, r->device);
    if (device >= 0) {
        d->flags[device] = true;
    }
}

static void reflag(struct drains *d)
{
    for (int32_t i = 0; i < d->fabric->num_devices; i++) {
        d->flags[i] = d->fixed[i] || d->missing[i];
    }
    for (size_t i = 0; i < d->now.num; i++) {
        flag_row(d, &d->now.rows[i]);
    }
}

static struct list copy_list(const struct drain_row *rows, size_t num)
{
    struct list l = {.rows = malloc((num + 1) * sizeof *l.rows), .num = num};
    ASSERT(l.rows);
    if (num) {
        memcpy(l.rows, rows, num * sizeof *rows);
    }
    return l;
}

/* Before a change: what to put back, and room for one more. */
static void begin(struct drains *d)
{
    struct list next = copy_list(d->now.rows, d->now.num);
    if (d->changed) {
        free(d->now.rows);
    } else {
        d->before = d->now;
        d->changed = true;
    }
    d->now = next;
}

void drains_load(struct drains *d, const struct drain_row *rows, size_t num)
{
    drains_settle(d);
    free(d->now.rows);
    d->now = copy_list(rows, num);
    reflag(d);
}

void drains_put(struct drains *d, const struct drain_row *row)
{
    begin(d);
    size_t at = slot(d, row->node, row->device);
    if (at == d->now.num || compare(&d->now.rows[at], row->node, row->device) != 0) {
        memmove(&d->now.rows[at + 1], &d->now.rows[at], (d->now.num - at) * sizeof *row);
        d->now.num++;
    }
    d->now.rows[at] = *row;
    reflag(d);
}

void drains_remove(struct drains *d, const char *node, int32_t device)
{
    if (!drains_find(d, node, device)) {
        return;
    }
    begin(d);
    size_t at = slot(d, node, device);
    d->now.num--;
    memmove(&d->now.rows[at], &d->now.rows[at + 1], (d->now.num - at) * sizeof *d->now.rows);
    reflag(d);
}

void drains_settle(struct drains *d)
{
    if (d->changed) {
        free(d->before.rows);
        d->before = (struct list){0};
        d->changed = false;
    }
}

void drains_put_back(struct drains *d)
{
    if (d->changed) {
        free(d->now.rows);
        d->now = d->before;
        d->before = (struct list){0};
        d->changed = false;
        reflag(d);
    }
}

/* ---- what a host reports ---- */

bool drains_set_missing(struct drains *d, int32_t node, const bool *missing, const char *reason)
{
    const struct fabric_part *p = &d->fabric->nodes[node];
    bool is_new = false;
    for (int32_t i = p->first_device; i < p->first_device + p->num_devices; i++) {
        is_new = is_new || d->missing[i] != missing[i];
        d->missing[i] = missing[i];
    }
    snprintf(d->reasons[node], sizeof d->reasons[node], "%s", reason);
    reflag(d);
    return is_new;
}

bool drains_is_missing(const struct drains *d, int32_t device)
{
    return d->missing[device];
}

/* ---- answers ---- */

const bool *drains_flags(const struct drains *d)
{
    return d->flags;
}

const struct drain_row *drains_find(const struct drains *d, const char *node, int32_t device)
{
    size_t at = slot(d, node, device);
    bool found = at < d->now.num && compare(&d->now.rows[at], node, device) == 0;
    return found ? &d->now.rows[at] : NULL;
}

bool drains_next(const struct drains *d, const char *node, int32_t *device)
{
    size_t at = slot(d, node, *device);
    while (at < d->now.num && compare(&d->now.rows[at], node, *device) <= 0) {
        at++;
    }
    if (at == d->now.num || strcmp(d->now.rows[at].node, node) != 0) {
        return false;
    }
    *device = d->now.rows[at].device;
    return true;
}

const char *drains_reason(const struct drains *d, int32_t device)
{
    if (!d->flags[device]) {
        return NULL;
    }
    const struct fabric_device *dev = &d->fabric->devices[device];
    if (d->missing[device]) {
        return d->reasons[dev->node];
    }
    const char *name = d->fabric->nodes[dev->node].name;
    const struct drain_row *row = drains_find(d, name, -1);
    row = row ? row : drains_find(d, name, dev->index);
    if (!row && d->fixed[device]) {
        return "the cluster file says so";
    }
    return row && *row->reason ? row->reason : "drained";
}
