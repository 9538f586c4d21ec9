#include "plan/place_room.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

bool place_room_suits(const struct free_map *m, const struct place_request *r, int32_t type)
{
    const struct fabric_type *t = &free_map_fabric(m)->types[type];
    if ((r->cpu_only && !t->is_cpu) || (r->gpu_only && t->is_cpu) ||
        (t->capability > 0 && t->capability < r->capability)) {
        return false;
    }
    return !r->type || strcmp(r->type, "any") == 0 || strcmp(r->type, t->name) == 0;
}

/* Does every device of the type have the memory, as far as is known? */
static bool all_have_memory(const struct free_cells *c, int64_t mem_bytes)
{
    return mem_bytes <= 0 || c->min_mem_bytes == 0 || c->min_mem_bytes >= mem_bytes;
}

/* ---- counted anew ---- */

static bool *allowed_devices(const struct fabric *f, const struct place_request *r, int32_t type)
{
    bool *allowed = calloc((size_t)f->num_devices + 1, sizeof *allowed);
    ASSERT(allowed);
    if (r->num_nodes == 0) {
        memset(allowed, 1, (size_t)f->num_devices);
    }
    for (size_t i = 0; i < r->num_nodes; i++) {
        int32_t n = fabric_find_node(f, r->nodes[i]);
        if (n >= 0) {
            memset(&allowed[f->nodes[n].first_device], 1, (size_t)f->nodes[n].num_devices);
        }
    }
    for (int32_t d = 0; d < f->num_devices; d++) {
        const struct fabric_device *dev = &f->devices[d];
        if (dev->type != type || (dev->mem_bytes > 0 && dev->mem_bytes < r->mem_bytes)) {
            allowed[d] = false;
        }
    }
    return allowed;
}

static void count_anew(struct place_room *room, const struct free_map *m,
                       const struct place_request *r, bool whole)
{
    const struct fabric *f = free_map_fabric(m);
    bool *allowed = allowed_devices(f, r, room->type);
    const struct free_cells *c = free_counts_cells(free_map_counts(m), room->type);
    size_t cells = (size_t)c->num_cells, leaves = (size_t)c->num_leaves;
    int32_t *own = calloc(3 * cells + 3 * leaves + (size_t)c->max_devices + 2, sizeof *own);
    ASSERT(own);
    int32_t *count = own, *domain = count + cells, *leaf_cell = domain + cells,
            *leaf_free = leaf_cell + leaves + 1, *leaf_key = leaf_free + leaves,
            *left = leaf_key + leaves, *with = left + cells;
    int32_t last_domain = -1, last_key = 0;
    for (int32_t d = 0; d < f->num_devices; d++) {
        if (!allowed[d] || (!whole && !free_map_has(m, d))) {
            continue;
        }
        if (f->devices[d].domain != last_domain) {
            last_domain = f->devices[d].domain;
            int32_t key = free_counts_leaf(f, last_domain);
            if (room->num_cells == 0 || key != last_key) {
                last_key = leaf_key[room->num_leaves] = key;
                leaf_cell[room->num_leaves++] = room->num_cells;
            }
            left[room->num_cells] = free_counts_by_cell(
                free_map_counts(m), room->type)[free_counts_cell_of(free_map_counts(m), d)];
            domain[room->num_cells++] = last_domain;
        }
        count[room->num_cells - 1]++;
        leaf_free[room->num_leaves - 1]++;
        room->total++;
    }
    leaf_cell[room->num_leaves] = room->num_cells;
    room->max = c->max_devices;
    for (int32_t i = 0; i < room->num_cells; i++) {
        with[count[i]]++;
    }
    room->free = count;
    room->left = left;
    room->domain = domain;
    room->leaf_cell = leaf_cell;
    room->leaf_free = leaf_free;
    room->leaf_key = leaf_key;
    room->with = with;
    room->own = own;
    room->allowed = allowed;
}

void place_room_open(struct place_room *room, const struct free_map *m,
                     const struct place_request *r, int32_t type, bool whole)
{
    const struct free_counts *counts = free_map_counts(m);
    const struct free_cells *c = free_counts_cells(counts, type);
    *room = (struct place_room){.map = m, .type = type};
    if (r->num_nodes > 0 || !all_have_memory(c, r->mem_bytes)) {
        count_anew(room, m, r, whole);
        return;
    }
    room->num_cells = c->num_cells;
    room->num_leaves = c->num_leaves;
    room->max = c->max_devices;
    room->domain = c->domain;
    room->leaf_cell = c->leaf_cell;
    room->leaf_key = c->leaf_key;
    room->free = free_counts_by_cell(counts, type);
    room->leaf_free = free_counts_by_leaf(counts, type);
    room->with = whole ? c->cells_of : free_counts_cells_with(counts, type);
    room->total = whole ? c->num_devices : free_counts_num(counts, type);
}

void place_room_close(struct place_room *room)
{
    free(room->own);
    free((void *)room->allowed);
}

int64_t place_room_groups(const struct place_room *room, int32_t devices)
{
    if (devices == 1) {
        return room->total;
    }
    int64_t sum = 0;
    for (int32_t n = devices; n <= room->max; n++) {
        sum += (int64_t)room->with[n] * (n / devices);
    }
    return sum;
}

void place_room_list(const struct place_room *room, int32_t cell, int32_t skip, int32_t num,
                     int32_t *devices)
{
    const struct fabric *f = free_map_fabric(room->map);
    const struct fabric_part *p = &f->domains[room->domain[cell]];
    for (int32_t d = p->first_device; num > 0; d++) {
        ASSERT(d < p->first_device + p->num_devices);
        if (f->devices[d].type != room->type || (room->allowed && !room->allowed[d]) ||
            !free_map_has(room->map, d)) {
            continue;
        }
        if (skip > 0) {
            skip--;
            continue;
        }
        *devices++ = d;
        num--;
    }
}
