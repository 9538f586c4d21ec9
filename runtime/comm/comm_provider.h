/* Where an accelerator's communicators come from: a table in its plug-in. Rank 0 makes an id, the
 * id travels to all ranks (by tandem-node and the controller), then all of them open their end. */
#ifndef TANDEM_RUNTIME_COMM_PROVIDER_H
#define TANDEM_RUNTIME_COMM_PROVIDER_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "runtime/comm/comm.h"
#include "runtime/comm/comm_board.h"

/* No provider's id is longer. Who knows an id can join the gang: it is never logged. */
#define COMM_ID_MAX 256

struct comm_provider_options {
    const void *id; /* id_bytes, as rank 0 made them */
    int32_t rank, num_ranks;
    int64_t deadline_ms;      /* of every call, and of each communicator's making */
    const char *const *hosts; /* [num_ranks], borrowed; NULL or an entry NULL = not known */
    struct comm_board *board; /* borrowed; NULL = a missing rank has no name */
    struct device *dev;       /* borrowed; where its communicators compute */
};

struct comm_provider {
    const char *name; /* "nccl" */
    size_t id_bytes;
    int (*make_id)(void *id, struct error *err);
    /* Waits until all ranks are there, at most for the deadline. */
    int (*open)(const struct comm_provider_options *o, struct comm_world **out, struct error *err);
};

#endif
