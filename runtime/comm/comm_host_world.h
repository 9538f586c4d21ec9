/* One rank's view of the gang's segment (private to comm_host*.c). */
#ifndef TANDEM_RUNTIME_COMM_HOST_WORLD_H
#define TANDEM_RUNTIME_COMM_HOST_WORLD_H

#include <stdatomic.h>

#include "runtime/comm/comm_board.h"
#include "runtime/comm/comm_host_segment.h"

struct comm_host_world {
    struct comm_world base;
    struct segment_header *segment;
    int64_t deadline_ms;
    int spins;
    size_t area_used;
    const char *const *hosts; /* borrowed; NULL = not known */
    _Atomic uint64_t turns;
    struct comm_board board;
    struct comm_board_line *lines;         /* of the board, owned */
    int32_t num_comms;                     /* of two or more members */
    uint64_t sets[SEGMENT_COMMS_PER_RANK]; /* hash of each one's members */
};

/* A slot of its own for the next communicator of these members, and its number among this rank's.
 */
int host_world_join(struct comm_host_world *w, const int32_t *members, int32_t num,
                    struct segment_slot **slot, uint32_t *idx, struct error *err);

void host_board_close(struct comm_host_world *w);

#endif
