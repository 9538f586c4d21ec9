/* The shared segment's part of a rank's memory: the same cases as in
 * runtime/parallel/store_memory.c and runtime/layers/model.h. A piece of the segment begins at a
 * multiple of 64 bytes. */
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

int64_t memory_store_shared_bytes(const Stage *stage, const ParallelSpec *layout,
                                  int64_t weight_size, int64_t grad_size)
{
    int64_t shards = layout_shards(layout), zero_stage = shards == 1 ? 0 : layout->zero_stage;
    bool replicated = layout->data > shards;
    int64_t slice = stage->flat_numel / shards, bytes = 0;
    if (zero_stage < 2 && layout->data > 1) {
        bytes += piece(stage->flat_numel, grad_size);
    }
    if (zero_stage >= 2) {
        bytes += slots(stage, grad_size) + (replicated ? piece(slice, grad_size) : 0);
    }
    if (zero_stage == 3) {
        bytes += piece(slice, weight_size);
    }
    return bytes < MEMORY_MAX_BYTES ? bytes : MEMORY_MAX_BYTES;
}

/* What the tensor ranks sum in the layers: rows of the residual stream, padded for sequence
 * parallel, and three words a row for the loss. */
static int64_t tensor_bytes(const JobSpec *spec, const ModelConfig *config, int64_t size)
{
    const ParallelSpec *l = spec->parallel->layout;
    int64_t rows, room, numel;
    if (l->tensor == 1) {
        return 0;
    }
    if (__builtin_mul_overflow(spec->training->micro_batch_size, spec->training->seq_len, &rows) ||
        rows > MEMORY_MAX_BYTES / 32) {
        return MEMORY_MAX_BYTES / 2;
    }
    room = l->sequence_parallel ? (rows + l->tensor - 1) / l->tensor * l->tensor : rows;
    if (__builtin_mul_overflow(room, config->hidden_size, &numel)) {
        return MEMORY_MAX_BYTES / 2;
    }
    return piece(numel, size) + piece(3 * rows, sizeof(double));
}

int64_t memory_shared_bytes(const Stage *stage, const JobSpec *spec, const ModelConfig *config)
{
    int64_t size = memory_element_size(spec->training);
    const ParallelSpec *l = spec->parallel->layout;
    int64_t ranks = l->data * l->tensor; /* of whom each has a word */
    int64_t bytes = memory_store_shared_bytes(stage, l, size, memory_grad_size(spec->training)) +
                    tensor_bytes(spec, config, size) + piece(MEMORY_WORDS + ranks, sizeof(double));
    if (bytes > MEMORY_MAX_BYTES) {
        bytes = MEMORY_MAX_BYTES;
    }
    return (bytes + 4095) / 4096 * 4096 + MEMORY_COMM_BYTES;
}
