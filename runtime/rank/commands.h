/* What tandem-node asks of a running rank, and what becomes of it at a step boundary.
 *
 * Rank 0 alone decides; its decision crosses to the others as one word in the loss's exchange, so
 * all ranks stop or save after the same step. */
#ifndef TANDEM_RUNTIME_RANK_COMMANDS_H
#define TANDEM_RUNTIME_RANK_COMMANDS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "runtime/comm/comm_provider.h"
#include "runtime/link/link.h"

enum boundary {
    BOUNDARY_NONE,
    BOUNDARY_SAVE, /* write a checkpoint and go on */
    BOUNDARY_STOP, /* write a checkpoint and leave */
};

/* Zero = nothing asked. */
struct commands {
    bool save;
    bool stop;
    int64_t stop_step; /* not before this step's end */
    /* What the communicators find each other by, until they have; 0 bytes = not heard of yet. */
    size_t comm_id_len;
    uint8_t comm_id[COMM_ID_MAX];
};

/* Takes the next command, waiting for it at most timeout_ms. */
int commands_await(struct commands *c, struct link *link, int64_t timeout_ms, struct error *err);
/* Takes all commands that lie in the link, without waiting. -1: the other side is gone. */
int commands_poll(struct commands *c, struct link *link, struct error *err);

/* What is due at the end of step, as far as is known now. A save that was asked for is due once. */
enum boundary commands_take(struct commands *c, int64_t step);

#endif
