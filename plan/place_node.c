#include "plan/place_node.h"

#include <stdlib.h>
#include <string.h>

#include "plan/place_room.h"

/* Nodes whose places are compared; the others have more free. */
#define TRIES_MAX 16

/* Devices of one type on one node, and groups of the tensor axis that they have room for. */
struct node_room {
    int32_t node, free, total;
    int32_t free_groups, total_groups;
};

struct candidates {
    struct node_room room[TRIES_MAX]; /* the least free first */
    int32_t num;
};

bool *place_named_nodes(const struct fabric *f, const struct place_request *r)
{
    if (r->num_nodes == 0) {
        return NULL;
    }
    bool *named = calloc((size_t)f->num_nodes + 1, sizeof *named);
    ASSERT(named);
    for (size_t i = 0; i < r->num_nodes; i++) {
        int32_t n = fabric_find_node(f, r->nodes[i]);
        if (n >= 0) {
            named[n] = true;
        }
    }
    return named;
}

/* A domain's devices on a node are neighbours: groups are counted domain by domain. */
static struct node_room count(const struct free_map *m, const struct place_request *r,
                              int32_t tensor, int32_t type, int32_t node)
{
    const struct fabric *f = free_map_fabric(m);
    const struct fabric_part *p = &f->nodes[node];
    struct node_room room = {.node = node};
    int32_t domain = -1, free_here = 0, total_here = 0;
    for (int32_t d = p->first_device; d < p->first_device + p->num_devices; d++) {
        const struct fabric_device *dev = &f->devices[d];
        if (dev->domain != domain) {
            domain = dev->domain;
            free_here = total_here = 0;
        }
        if (dev->type != type || (dev->mem_bytes > 0 && dev->mem_bytes < r->mem_bytes)) {
            continue;
        }
        room.total++;
        room.total_groups += ++total_here % tensor == 0;
        if (free_map_has(m, d)) {
            room.free++;
            room.free_groups += ++free_here % tensor == 0;
        }
    }
    return room;
}

/* Of one type, over all nodes: sums, and what one node has at most. */
static void add_lack(struct place_lack *lack, const struct node_room *room)
{
    lack->free += room->free;
    lack->total += room->total;
    if (room->free_groups > lack->free_groups) {
        lack->free_groups = room->free_groups;
    }
    if (room->total_groups > lack->total_groups) {
        lack->total_groups = room->total_groups;
    }
    if (room->total > lack->node_total) {
        lack->node_total = room->total;
    }
    if (room->free > lack->largest) {
        lack->largest = room->free;
        lack->num_largest = 0;
    }
    lack->num_largest += room->free > 0 && room->free == lack->largest;
}

static void add_candidate(struct candidates *c, const struct node_room *room)
{
    int32_t i = c->num < TRIES_MAX ? c->num++ : TRIES_MAX;
    for (; i > 0 && c->room[i - 1].free > room->free; i--) {
        if (i < TRIES_MAX) {
            c->room[i] = c->room[i - 1];
        }
    }
    if (i < TRIES_MAX) {
        c->room[i] = *room;
    }
}

/* All nodes of a type; named, c may be NULL. */
static void look(const struct free_map *m, const struct place_request *r,
                 const struct place_layout *l, const bool *named, int32_t type,
                 struct place_lack *lack, struct candidates *c)
{
    const struct fabric *f = free_map_fabric(m);
    *lack = (struct place_lack){.need = l->num_ranks,
                                .group = l->tensor,
                                .num_groups = l->num_ranks / l->tensor,
                                .type = r->type,
                                .one_node = true};
    for (int32_t n = 0; n < f->num_nodes; n++) {
        if (named && !named[n]) {
            continue;
        }
        struct node_room room = count(m, r, l->tensor, type, n);
        add_lack(lack, &room);
        if (c && room.free_groups >= lack->num_groups) {
            add_candidate(c, &room);
        }
    }
}

bool place_node_fits(const struct free_map *m, const struct place_request *r,
                     const struct place_layout *l)
{
    bool *named = place_named_nodes(free_map_fabric(m), r), fits = false;
    for (int32_t t = 0; !fits && t < free_map_fabric(m)->num_types; t++) {
        struct place_lack lack;
        if (!place_room_suits(m, r, t)) {
            continue;
        }
        look(m, r, l, named, t, &lack, NULL);
        fits = lack.free_groups >= lack.num_groups;
    }
    free(named);
    return fits;
}

/* The best that was found so far; free_of_type: -1 = nothing. */
struct best {
    int32_t *devices, *other; /* other: for the next try */
    PlacementScore score;
    int32_t free_of_type;
};

static void try_nodes(const struct free_map *m, const struct place_request *r,
                      const struct candidates *c, int32_t type, int32_t free_of_type,
                      struct best *best)
{
    const struct fabric *f = free_map_fabric(m);
    for (int32_t i = 0; i < c->num; i++) {
        PlacementScore score;
        struct place_request here = *r;
        here.type = f->types[type].name;
        here.nodes = &f->nodes[c->room[i].node].name;
        here.num_nodes = 1;
        enum place_result result = place_find(m, &here, best->other, &score, NULL);
        ASSERT(result == PLACE_OK);
        int order = best->free_of_type < 0 ? -1 : place_score_compare(&score, &best->score);
        if (order < 0 || (order == 0 && free_of_type < best->free_of_type)) {
            int32_t *swap = best->devices;
            best->devices = best->other;
            best->other = swap;
            best->score = score;
            best->free_of_type = free_of_type;
        }
    }
}

enum place_result place_node_find(const struct free_map *m, const struct place_request *r,
                                  const struct place_layout *l, int32_t *devices,
                                  PlacementScore *score, struct place_lack *lack)
{
    int32_t *second = malloc((size_t)l->num_ranks * sizeof *second);
    ASSERT(second);
    struct best best = {.devices = second, .other = devices, .free_of_type = -1};
    enum place_result result = PLACE_NEVER;
    *lack = (struct place_lack){.need = l->num_ranks,
                                .group = l->tensor,
                                .num_groups = l->num_ranks / l->tensor,
                                .type = r->type,
                                .one_node = true};
    bool *named = place_named_nodes(free_map_fabric(m), r), found = false;
    for (int32_t t = 0; t < free_map_fabric(m)->num_types; t++) {
        struct place_lack here;
        struct candidates c = {.num = 0};
        if (!place_room_suits(m, r, t)) {
            continue;
        }
        look(m, r, l, named, t, &here, &c);
        try_nodes(m, r, &c, t, here.free, &best);
        enum place_result result_here = place_lack_result(&here);
        if (!found || place_lack_is_nearer(result_here, &here, result, lack)) {
            found = true;
            result = result_here;
            *lack = here;
        }
    }
    ASSERT((best.free_of_type >= 0) == (result == PLACE_OK));
    if (best.free_of_type >= 0 && best.devices != devices) {
        memcpy(devices, best.devices, (size_t)l->num_ranks * sizeof *devices);
    }
    if (best.free_of_type >= 0 && score) {
        *score = best.score;
    }
    free(named);
    free(second);
    return result;
}
