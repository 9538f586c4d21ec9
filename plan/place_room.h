/* What a gang may choose from: the free devices of one type that suit it, by cell and leaf (see
 * plan/free_counts.h). Mostly a view of a free map's counts; counted anew where a job names nodes
 * or memory sets devices of a type apart. */
#ifndef TANDEM_PLAN_PLACE_ROOM_H
#define TANDEM_PLAN_PLACE_ROOM_H

#include "plan/place.h"

struct place_room {
    const struct free_map *map;
    int32_t type;
    int32_t num_cells, num_leaves, total;
    int32_t max; /* no cell has more */
    const int32_t *free, *domain, *leaf_cell, *leaf_free, *leaf_key;
    const int32_t *with; /* [max + 1] cells by free devices */
    const int32_t *left; /* by cell: free devices, those that don't suit, too; NULL = as free */
    const bool *allowed; /* by device; NULL = all of the type. Owned */
    int32_t *own;        /* memory of the arrays where they aren't the map's */
};

/* Of what is free and what there is. */
enum place_result place_lack_result(const struct place_lack *lack);
/* Of a gang that may have any type: does x come nearer than y? */
bool place_lack_is_nearer(enum place_result a, const struct place_lack *x, enum place_result b,
                          const struct place_lack *y);
/* Might type t do at all? */
bool place_room_suits(const struct free_map *m, const struct place_request *r, int32_t type);
/* whole: as if all devices were free (counts only: no devices can be listed). */
void place_room_open(struct place_room *room, const struct free_map *m,
                     const struct place_request *r, int32_t type, bool whole);
void place_room_close(struct place_room *room);
/* Groups of so many devices that fit, each in one cell. */
int64_t place_room_groups(const struct place_room *room, int32_t devices);
/* The num devices of a cell that follow the first skip ones. */
void place_room_list(const struct place_room *room, int32_t cell, int32_t skip, int32_t num,
                     int32_t *devices);

#endif
