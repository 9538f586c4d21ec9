/* Several leaves for a gang that fits under none: few of them, whole chains under each where that
 * can be, and one switch over all of them. Private to plan/place_pick*. */
#ifndef TANDEM_PLAN_PLACE_SPREAD_H
#define TANDEM_PLAN_PLACE_SPREAD_H

#include "plan/place_kinds.h"

struct place_picking {
    const struct place_room *room;
    struct place_kinds kinds;
    int32_t stages;
    struct place_portion *out;
    int32_t num_out;
};

/* Takes so many atoms in cells first <= c < end. */
void place_pick_in(struct place_picking *p, int32_t first, int32_t end, int64_t atoms);
/* What it would cost to take so many atoms under a leaf; -1: there aren't so many. */
place_cost place_pick_cost(struct place_picking *p, int32_t leaf, int64_t atoms);

/* Takes chains * stages atoms; the room has them. */
void place_spread(struct place_picking *p, int64_t chains);

#endif
