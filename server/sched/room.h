/* Counts how large a gang would fit as devices are added one by one or taken off again: groups that
 * lie together in a domain, for each type, or where one node has to have them all for each type on
 * each node. It says whether there is room, place_find where.
 *
 * A cell is the devices of one type in one domain, or in what one node has of it. */
#ifndef TANDEM_SERVER_SCHED_ROOM_H
#define TANDEM_SERVER_SCHED_ROOM_H

#include "server/sched/want.h"

struct room_cell {
    int32_t first, num; /* devices, others between them if mixed */
    int16_t type;
    bool is_mixed;
    int32_t sum; /* where its groups are counted */
};

struct room_grid {
    int32_t *cell_of; /* of each device */
    struct room_cell *cells;
    int32_t num_cells, num_sums;
};

struct room {
    const struct fabric *f;
    const struct want *want;
    struct room_grid wide, narrow; /* of domains; of domains and nodes */
    const struct room_grid *grid;  /* the one that want is about */
    int32_t *num;                  /* devices in each cell */
    int32_t *groups;               /* of each sum */
    int32_t most;                  /* of them; -1 = to be looked for */
};

void room_init(struct room *r, const struct fabric *f);
void room_deinit(struct room *r);
/* Devices count that suit w; there are those whose bits are set. */
void room_start(struct room *r, const struct want *w, const uint64_t *bits);
void room_add(struct room *r, int32_t device);
void room_drop(struct room *r, int32_t device);
/* Devices in whole groups of one type, the most there are of one (on one node, if it is to be). */
int32_t room_size(struct room *r);

#endif
