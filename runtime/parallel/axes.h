/* The communicators of a rank, one for each group and stream that it talks in (a communicator
 * belongs to one stream). Groups of one are NULL. All ranks make all of theirs in the same order.
 */
#ifndef TANDEM_RUNTIME_PARALLEL_AXES_H
#define TANDEM_RUNTIME_PARALLEL_AXES_H

#include <stdint.h>

#include "plan/mesh.h"
#include "proto/names.h"
#include "runtime/comm/comm_host.h"

struct axes {
    struct mesh_coord coord;
    int32_t rank, num_ranks;
    /* Data ranks in blocks of shard_size share one shard; replica_idx: which block. */
    int32_t shard_size, shard_idx, num_replicas, replica_idx;
    /* On the compute stream. */
    struct comm *tensor;
    struct comm *kv_replicas; /* tensor ranks that hold the same KV head; NULL unless K < T */
    /* On the reduce stream. */
    struct comm *shard;    /* the block that shares one shard */
    struct comm *replicas; /* data ranks that hold the same shard, one of each block */
    struct comm *world;    /* all ranks: loss, norm, what rank 0 decides */
    /* On the gather stream. */
    struct comm *gather; /* members of shard */
    /* On the saver's stream, in host memory. */
    struct comm *save; /* all ranks */
};

/* Borrowed. With one rank the worlds are NULL. */
struct axes_means {
    struct comm_world *world; /* of what trains */
    struct device *dev;
    struct comm_world *host_world; /* of what is of the host (save); maybe the same */
    struct device *host;
};

/* After a failure there is nothing to free. */
int axes_open(struct axes *out, const Plan *plan, int32_t rank, const struct axes_means *means,
              struct error *err);
void axes_close(struct axes *a);

#endif
