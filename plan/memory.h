/* Bytes of one rank. State: weights, gradients, optimizer. Activations: what the model's saved
 * tensors add up to for one micro-batch, plus logits. Snapshot: weights and moments once more,
 * where checkpoints are written in the background.
 *
 * Overhead, as stated: the working set of one block's backward pass (as large as what the block
 * saved), 96 MiB for program, libraries and workspace, and 2 % of the rest for fragmentation. */
#ifndef TANDEM_PLAN_MEMORY_H
#define TANDEM_PLAN_MEMORY_H

#include <stdint.h>

#include "proto/names.h"

#define MEMORY_FIXED_BYTES ((int64_t)96 << 20)
#define MEMORY_FRAGMENTATION 0.02
/* Small exchange areas of the communicator, beside the gradients. */
#define MEMORY_COMM_BYTES ((int64_t)1 << 20)
/* Every figure stops here: more than any machine has. */
#define MEMORY_MAX_BYTES ((int64_t)1 << 58)

/* Bytes of an element: weights, gradients and moments have the run's precision. */
int64_t memory_element_size(const TrainingSpec *training);

/* State bytes a parameter: 16 with adamw in fp32, 8 with sgd; twice that in fp64. */
int64_t memory_state_size(const TrainingSpec *training);

/* num_params: elements that a rank holds, padding included. */
void memory_estimate(MemoryEstimate *out, const ModelConfig *config, const JobSpec *spec,
                     int64_t num_params, int64_t num_ranks);

#endif
