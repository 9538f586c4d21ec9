#include "plan/place_pick.h"

#include "plan/place_spread.h"

/* Where cells differ in what doesn't suit, too. */
static int32_t particular_cell(const struct place_room *room, int32_t devices)
{
    int32_t best = -1, leaf = 0, best_leaf = 0;
    for (int32_t c = 0; c < room->num_cells; c++) {
        leaf += c >= room->leaf_cell[leaf + 1];
        if (room->free[c] >= devices && (best < 0 || room->left[c] < room->left[best] ||
                                         (room->left[c] == room->left[best] &&
                                          room->leaf_free[leaf] < room->leaf_free[best_leaf]))) {
            best = c;
            best_leaf = leaf;
        }
    }
    return best;
}

int32_t place_pick_cell(const struct place_room *room, int32_t devices)
{
    if (room->left) {
        return particular_cell(room, devices);
    }
    int32_t num = devices;
    while (num <= room->max && room->with[num] == 0) {
        num++;
    }
    if (num > room->max) {
        return -1;
    }
    int32_t best = -1, left = INT32_MAX, seen = 0;
    for (int32_t l = 0; l < room->num_leaves && seen < room->with[num]; l++) {
        if (room->leaf_free[l] < num) {
            continue;
        }
        for (int32_t c = room->leaf_cell[l]; c < room->leaf_cell[l + 1]; c++) {
            if (room->free[c] != num) {
                continue;
            }
            seen++;
            if (room->leaf_free[l] < left) {
                best = c;
                left = room->leaf_free[l];
            }
        }
    }
    return best;
}

/* ---- one leaf ---- */

void place_pick_in(struct place_picking *p, int32_t first, int32_t end, int64_t atoms)
{
    if (atoms > 0) {
        place_kinds_sort(&p->kinds, first, end);
        place_kinds_choose(&p->kinds, atoms);
        p->num_out += place_kinds_take(&p->kinds, first, end, atoms, &p->out[p->num_out]);
    }
}

place_cost place_pick_cost(struct place_picking *p, int32_t leaf, int64_t atoms)
{
    const int32_t *first = &p->room->leaf_cell[leaf];
    if ((int64_t)p->room->leaf_free[leaf] < atoms * p->kinds.atom ||
        place_kinds_sort(&p->kinds, first[0], first[1]) < atoms) {
        return -1;
    }
    return place_kinds_choose(&p->kinds, atoms);
}

/* Of the leaves that have so many atoms, the one where they cost least; -1 = none. */
static int32_t best_leaf(struct place_picking *p, int64_t atoms)
{
    const int32_t *left = p->room->leaf_free;
    int32_t best = -1;
    place_cost least = 0;
    for (int32_t l = 0; l < p->room->num_leaves; l++) {
        place_cost cost = place_pick_cost(p, l, atoms);
        if (cost >= 0 && (best < 0 || cost < least || (cost == least && left[l] < left[best]))) {
            best = l;
            least = cost;
        }
    }
    return best;
}

int32_t place_pick(const struct place_room *room, int32_t atom_devices, int32_t chains,
                   int32_t stages, struct place_portion *out)
{
    struct place_picking p = {.room = room, .stages = stages, .out = out};
    if (room->num_leaves == room->num_cells &&
        place_room_groups(room, atom_devices * stages) >= chains) {
        /* Each cell its own leaf: chains take the place of atoms. */
        place_kinds_new(&p.kinds, room, atom_devices * stages);
        place_pick_in(&p, 0, room->num_cells, chains);
        for (int32_t i = 0; i < p.num_out; i++) {
            out[i].atoms *= stages;
        }
        place_kinds_free(&p.kinds);
        return p.num_out;
    }
    place_kinds_new(&p.kinds, room, atom_devices);
    int64_t atoms = (int64_t)chains * stages;
    int32_t leaf = best_leaf(&p, atoms);
    if (leaf >= 0) {
        place_pick_in(&p, room->leaf_cell[leaf], room->leaf_cell[leaf + 1], atoms);
    } else {
        place_spread(&p, chains);
    }
    place_kinds_free(&p.kinds);
    return p.num_out;
}
