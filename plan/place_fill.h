/* Lays a gang onto a room: whole groups first, what is left in smaller and smaller parts. */
#ifndef TANDEM_PLAN_PLACE_FILL_H
#define TANDEM_PLAN_PLACE_FILL_H

#include "plan/place_layout.h"
#include "plan/place_room.h"

/* Fills devices[num_ranks] by rank. The room has a place for each tensor group. */
void place_fill(const struct place_room *room, const struct place_layout *l, int32_t *devices);

#endif
