/* The shared segment's part of a rank's memory: the same cases as in
 * runtime/parallel/store_memory.c. A piece of the segment begins at a multiple of 64 bytes. */
#include "plan/memory.h"

#include "plan/layout_rules.h"

static int64_t piece(int64_t numel, int64_t size)
{
    if (numel > MEMORY_MAX_BYTES / 16) {
        return MEMORY_MAX_BYTES / 16;
    }
    return (numel * size + 63) / 64 * 64;
}

static int64_t slots(const Stage *stage, int64_t size)
{
    int64_t bytes = 0;
    for (size_t i = 0; i < stage->n_grad_slots; i++) {
        bytes += piece(stage->grad_slots[i], size);
    }
    return bytes;
}

int64_t memory_store_shared_bytes(const Stage *stage, const ParallelSpec *layout, int64_t size)
{
    int64_t shards = layout_shards(layout), zero_stage = shards == 1 ? 0 : layout->zero_stage;
    bool replicated = layout->data > shards;
    int64_t slice = piece(stage->flat_numel / shards, size), bytes = 0;
    if (zero_stage < 2 && layout->data > 1) {
        bytes += piece(stage->flat_numel, size);
    }
    if (zero_stage >= 2) {
        bytes += slots(stage, size) + (replicated ? slice : 0);
    }
    if (zero_stage == 3) {
        bytes += slice;
    }
    return bytes < MEMORY_MAX_BYTES ? bytes : MEMORY_MAX_BYTES;
}
