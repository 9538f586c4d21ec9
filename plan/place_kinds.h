/* Cells of a leaf, sorted by how much they have free, and which of them hold so many atoms in the
 * fewest cells, with the least left over. Private to plan/place_pick*. */
#ifndef TANDEM_PLAN_PLACE_KINDS_H
#define TANDEM_PLAN_PLACE_KINDS_H

#include "plan/place_pick.h"

/* Cells that have the same number of devices free are alike. */
struct place_kind {
    int32_t free, atoms;
    int32_t left; /* free, with those that don't suit: what is broken up */
    int32_t have, chosen;
};

struct place_kinds {
    const struct place_room *room;
    int32_t atom;            /* devices */
    struct place_kind *kind; /* atoms descending, left ascending among equals */
    int32_t num;
    int32_t *tally; /* by free devices; zero between uses */
};

/* Cells in the upper half, what is free in them in the lower: smaller is better, sums add up. */
typedef int64_t place_cost;
#define PLACE_COST_CELL ((place_cost)1 << 32)

/* Work of an exact choice: cells x atoms. */
#define PLACE_KINDS_EXACT_MAX 2048

void place_kinds_new(struct place_kinds *k, const struct place_room *room, int32_t atom_devices);
void place_kinds_free(struct place_kinds *k);
/* Looks at cells first <= c < end; returns their atoms. */
int64_t place_kinds_sort(struct place_kinds *k, int32_t first, int32_t end);
/* Chooses cells for so many atoms (there are as many). Exact where the work is small or a bound is
 * met; else the fewest cells, and mostly the best. */
place_cost place_kinds_choose(struct place_kinds *k, int64_t atoms);
/* costs[0..atoms] of each number of atoms up to this; false: too much work, nothing is done. */
bool place_kinds_costs(const struct place_kinds *k, int32_t atoms, place_cost *costs);
/* Puts the first of the chosen cells out, `atoms` in all; returns the count. */
int32_t place_kinds_take(struct place_kinds *k, int32_t first, int32_t end, int64_t atoms,
                         struct place_portion *out);

#endif
