/* Counts how large a gang would fit as devices are added one by one or taken off again: groups that
 * lie together in a domain, for each type. It says whether there is room, place_find where.
 *
 * A cell is the devices of one type in one domain. */
#ifndef TANDEM_SERVER_SCHED_ROOM_H
#define TANDEM_SERVER_SCHED_ROOM_H

#include "server/sched/want.h"

struct room_cell {
    int32_t first, num; /* devices, others between them if mixed */
    int16_t type;
    bool is_mixed;
};

struct room {
    const struct fabric *f;
    const struct want *want;
    int32_t *cell_of; /* of each device */
    struct room_cell *cells;
    int32_t num_cells;
    int32_t *num; /* devices in each cell */
    int32_t groups[FABRIC_MAX_TYPES];
};

void room_init(struct room *r, const struct fabric *f);
void room_deinit(struct room *r);
/* Devices count that suit w; there are those whose bits are set. */
void room_start(struct room *r, const struct want *w, const uint64_t *bits);
void room_add(struct room *r, int32_t device);
void room_drop(struct room *r, int32_t device);
/* Devices in whole groups of one type, the most there are of one. */
int32_t room_size(const struct room *r);

#endif
