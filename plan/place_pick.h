/* Which cells a gang gets: so many whole chains (the atoms of all stages of a column block, under
 * one leaf) in few leaves, few cells, and little left over beside them.
 *
 * An atom is a block of devices that stays in one cell. */
#ifndef TANDEM_PLAN_PLACE_PICK_H
#define TANDEM_PLAN_PLACE_PICK_H

#include "plan/place_room.h"

struct place_portion {
    int32_t cell, atoms;
};

/* The cell with the fewest free devices that has `devices` of them, under the leaf with the fewest;
 * -1 = none. */
int32_t place_pick_cell(const struct place_room *room, int32_t devices);

/* num_atoms = chains * stages atoms of atom_devices each; the room has that many. out[at most
 * num_atoms], cells ascending; returns the count. */
int32_t place_pick(const struct place_room *room, int32_t atom_devices, int32_t chains,
                   int32_t stages, struct place_portion *out);

#endif
