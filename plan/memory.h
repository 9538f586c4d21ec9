/* Bytes of one rank, by formula. State: weights, gradients, optimizer, divided as ZeRO shares them.
 * Activations: what the model's saved tensors add up to for the micro-batches in flight, divided by
 * the tensor and context axes. Snapshot: what a checkpoint saves once more, where it is written in
 * the background.
 *
 * Overhead, as stated: the working set of one block's backward pass (as large as what the block
 * saved), a fixed size for program, libraries and workspace (96 MiB; 2 GiB on a GPU), and 2 % of
 * the rest for fragmentation. */
#ifndef TANDEM_PLAN_MEMORY_H
#define TANDEM_PLAN_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/names.h"

#define MEMORY_FIXED_BYTES ((int64_t)96 << 20)
#define MEMORY_FIXED_GPU_BYTES ((int64_t)2 << 30)
#define MEMORY_FRAGMENTATION 0.02
/* Small exchange areas of the communicator, beside the gradients. */
#define MEMORY_COMM_BYTES ((int64_t)1 << 20)
/* Every figure stops here: more than any machine has. */
#define MEMORY_MAX_BYTES ((int64_t)1 << 58)

/* What a rank of one stage holds. */
struct memory_load {
    int32_t stage;
    int64_t dense_numel;  /* elements of the flat buffers, padding included, without experts */
    int64_t expert_numel; /* of its experts */
    int64_t unit_numel;   /* of the largest unit (embedding, block, head) */
    int64_t weight_slots, grad_slots; /* elements of the stage's slots together; 0 = none yet */
    int64_t num_layers;
    bool has_head;
    bool gpu;
};

/* Bytes of an element of weights and activations, and of gradients. */
int64_t memory_element_size(const TrainingSpec *training);
int64_t memory_grad_size(const TrainingSpec *training);
/* Of the optimizer a parameter: adamw's moments; with bf16 and fp16 the fp32 weights, too. */
int64_t memory_optimizer_size(const TrainingSpec *training);

/* State bytes a parameter: 16 with adamw in fp32, 8 with sgd; twice that in fp64; bf16 18, or 16
 * with grad_dtype bf16. */
int64_t memory_state_size(const TrainingSpec *training);

/* What the ranks of a stage take from the shared segment for gradients that are summed and slices
 * of weights that are gathered (runtime/parallel/store_memory.c), to the byte; without the
 * segment's other uses. size: bytes of an element. */
int64_t memory_store_shared_bytes(const Stage *stage, const ParallelSpec *layout, int64_t size);

/* All that a rank of the stage takes from the segment: that, what the layers sum over the tensor
 * ranks, and the communicators' own. Of a layout with more than one rank on CPU devices. */
int64_t memory_shared_bytes(const Stage *stage, const JobSpec *spec, const ModelConfig *config);

/* Bytes that a block keeps for its backward pass, for one micro-batch of this layout, before
 * recomputation; cheap: of that what selective recomputation drops. */
double memory_block_bytes(const ModelConfig *config, const JobSpec *spec, double *cheap);

/* Micro-batches, of a whole stage each, whose activations a stage holds at once at most. */
double memory_in_flight(const JobSpec *spec, int32_t stage);

void memory_estimate(MemoryEstimate *out, const ModelConfig *config, const JobSpec *spec,
                     const struct memory_load *load);

#endif
