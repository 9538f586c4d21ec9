#include "plan/place.h"

#include <stdlib.h>
#include <string.h>

#include "plan/place_fill.h"
#include "plan/place_layout.h"
#include "plan/place_node.h"
#include "plan/place_room.h"

/* ---- is there room? ---- */

/* Counts of one type. */
static void count_type(const struct free_map *m, const struct place_request *r,
                       const struct place_layout *l, int32_t type, struct place_lack *lack)
{
    struct place_room now, whole;
    place_room_open(&now, m, r, type, false);
    place_room_open(&whole, m, r, type, true);
    int64_t groups = place_room_groups(&now, l->tensor);
    *lack = (struct place_lack){
        .need = l->num_ranks,
        .free = now.total,
        .total = whole.total,
        .group = l->tensor,
        .num_groups = l->num_ranks / l->tensor,
        .free_groups = (int32_t)groups,
        .total_groups = (int32_t)place_room_groups(&whole, l->tensor),
        .type = r->type,
    };
    for (int32_t n = now.max; n > 0 && lack->largest == 0; n--) {
        if (now.with[n] > 0) {
            lack->largest = n;
            lack->num_largest = now.with[n];
        }
    }
    place_room_close(&now);
    place_room_close(&whole);
}

enum place_result place_lack_result(const struct place_lack *lack)
{
    return lack->total_groups < lack->num_groups   ? PLACE_NEVER
           : lack->free_groups >= lack->num_groups ? PLACE_OK
           : lack->free < lack->need               ? PLACE_FEW
                                                   : PLACE_FRAGMENTED;
}

bool place_lack_is_nearer(enum place_result a, const struct place_lack *x, enum place_result b,
                          const struct place_lack *y)
{
    if (a != b) {
        /* OK before fragmented before few before never. */
        static const int rank[] = {
            [PLACE_OK] = 0, [PLACE_FRAGMENTED] = 1, [PLACE_FEW] = 2, [PLACE_NEVER] = 3};
        return rank[a] < rank[b];
    }
    int32_t i = a == PLACE_NEVER ? x->total_groups : x->free_groups;
    int32_t j = a == PLACE_NEVER ? y->total_groups : y->free_groups;
    return i != j ? i > j : x->free > y->free;
}

static enum place_result say_lack(const struct free_map *m, const struct place_request *r,
                                  const struct place_layout *l, struct place_lack *lack)
{
    enum place_result best = PLACE_NEVER;
    bool found = false;
    *lack = (struct place_lack){.need = l->num_ranks,
                                .group = l->tensor,
                                .num_groups = l->num_ranks / l->tensor,
                                .type = r->type};
    for (int32_t t = 0; t < free_map_fabric(m)->num_types; t++) {
        if (!place_room_suits(m, r, t)) {
            continue;
        }
        struct place_lack here;
        count_type(m, r, l, t, &here);
        enum place_result result = place_lack_result(&here);
        if (!found || place_lack_is_nearer(result, &here, best, lack)) {
            best = result;
            *lack = here;
            found = true;
        }
    }
    return best;
}

/* The room of a type has a place for each tensor group. */
static bool type_fits(const struct place_room *room, const struct place_layout *l)
{
    return room->total >= l->num_ranks &&
           place_room_groups(room, l->tensor) >= l->num_ranks / l->tensor;
}

bool place_fits(const struct free_map *m, const struct place_request *r)
{
    struct place_layout l;
    if (!place_layout_init(&l, r) || free_map_num(m) < l.num_ranks) {
        return false;
    }
    if (place_node_open(r)) {
        return place_node_fits(m, r, &l);
    }
    for (int32_t t = 0; t < free_map_fabric(m)->num_types; t++) {
        if (free_map_num_type(m, t) < l.num_ranks || !place_room_suits(m, r, t)) {
            continue;
        }
        struct place_room room;
        place_room_open(&room, m, r, t, false);
        bool fits = type_fits(&room, &l);
        place_room_close(&room);
        if (fits) {
            return true;
        }
    }
    return false;
}

/* ---- find ---- */

struct found {
    int32_t *devices;
    PlacementScore score;
    int32_t total; /* free devices of the type; -1 = nothing found yet */
};

/* Keeps the better one. Equal ones: that of the type of which less is free, so that the more
 * plentiful one stays for gangs that need much of one type. */
static void try_type(struct found *best, struct found *now, const struct place_room *room,
                     const struct place_request *r, const struct place_layout *l)
{
    place_fill(room, l, now->devices);
    now->total = room->total;
    ASSERT(place_score(free_map_fabric(room->map), r, now->devices, room->map, &now->score));
    int order = best->total < 0 ? -1 : place_score_compare(&now->score, &best->score);
    if (order < 0 || (order == 0 && now->total < best->total)) {
        struct found keep = *best;
        *best = *now;
        *now = keep;
    }
}

static bool find(const struct free_map *m, const struct place_request *r,
                 const struct place_layout *l, int32_t *devices, PlacementScore *score)
{
    struct found best = {devices, PLACEMENT_SCORE__INIT, -1},
                 now = {NULL, PLACEMENT_SCORE__INIT, -1};
    int32_t *second = NULL;
    if (free_map_num(m) < l->num_ranks) {
        return false;
    }
    for (int32_t t = 0; t < free_map_fabric(m)->num_types; t++) {
        if (free_map_num_type(m, t) < l->num_ranks || !place_room_suits(m, r, t)) {
            continue;
        }
        struct place_room room;
        place_room_open(&room, m, r, t, false);
        if (type_fits(&room, l)) {
            if (best.total < 0) {
                now.devices = devices;
                best.devices = NULL;
            } else if (!now.devices) {
                now.devices = second = malloc((size_t)l->num_ranks * sizeof *second);
                ASSERT(second);
            }
            try_type(&best, &now, &room, r, l);
        }
        place_room_close(&room);
    }
    if (best.total >= 0 && best.devices != devices) {
        memcpy(devices, best.devices, (size_t)l->num_ranks * sizeof *devices);
    }
    free(second);
    if (best.total >= 0 && score) {
        *score = best.score;
    }
    return best.total >= 0;
}

enum place_result place_find(const struct free_map *m, const struct place_request *r,
                             int32_t *devices, PlacementScore *score, struct place_lack *lack)
{
    struct place_layout l;
    struct place_lack own;
    lack = lack ? lack : &own;
    if (!place_layout_init(&l, r)) {
        *lack = (struct place_lack){
            .need = INT32_MAX, .total = free_map_fabric(m)->num_devices, .type = r->type};
        return PLACE_NEVER;
    }
    if (place_node_open(r)) {
        return place_node_find(m, r, &l, devices, score, lack);
    }
    return find(m, r, &l, devices, score) ? PLACE_OK : say_lack(m, r, &l, lack);
}
