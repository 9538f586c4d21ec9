/* Bytes of one rank, by formula. State: weights, gradients, optimizer, divided as ZeRO shares them.
 * Activations: what the model's saved tensors add up to for the micro-batches in flight, divided by
 * the tensor and context axes. Backward: the gradients of one block's activations. Snapshot: what a
 * checkpoint saves once more, where it is written in the background.
 *
 * Of a layout that can be run, on CPU devices, all but the overhead is to the byte what the ranks
 * set aside (MemoryEstimate.arenas) and a bound of the communicators' staging: a rank gives out no
 * more than that. Overhead, as stated: the rows of packed data that are kept while they are read,
 * and a fixed size for program, libraries, stacks and heap (MEMORY_ FIXED_BYTES); on a GPU one for
 * context, libraries and workspace, one for each communicator, and 2 % for fragmentation. */
#ifndef TANDEM_PLAN_MEMORY_H
#define TANDEM_PLAN_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "model/family.h"
#include "proto/names.h"

#define MEMORY_FIXED_BYTES ((int64_t)8 << 20)
/* Of a GPU, assumed: context, code of kernels and libraries; cublasLt's workspace, 32 MiB for a
 * compute stream. */
#define MEMORY_GPU_CONTEXT_BYTES ((int64_t)1 << 30)
/* Of a communicator of NCCL, assumed: 24 channels, each with a ring's 10 MiB of buffers for its
 * peer. The one that all are split from has one channel. */
#define MEMORY_NCCL_BYTES ((int64_t)256 << 20)
#define MEMORY_NCCL_ROOT_BYTES ((int64_t)16 << 20)
#define MEMORY_FRAGMENTATION 0.02
/* Small exchange areas of the communicator, beside the gradients. */
#define MEMORY_COMM_BYTES ((int64_t)1 << 20)
/* Numbers that all ranks sum in a step, besides one for each rank (runtime/rank/words.h). */
#define MEMORY_WORDS 7
/* Copies of them on the host. */
#define MEMORY_WORD_SETS 7
/* The gradient norm's: runtime/parallel/store_private.h. */
#define MEMORY_NORM_WORDS 8
/* Rows of logits begin at multiples of so many numbers, whatever the vocabulary: an accelerator
 * multiplies matrices well that lie at multiples of 16 bytes. */
#define MEMORY_LOGITS_NUMEL 16
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
    enum family_attention attention;
    /* What its parts are, and what it is run with; backend NULL: not known, then nothing small is
     * counted. */
    int64_t num_params, bucket_numel; /* tensors; elements of the largest bucket */
    bool layer_norm, qk_norm, positions;
    bool packed;
    const char *backend; /* ref, cpu, cuda */
    int64_t num_ranks, threads;
};

/* Numbers from one row of logits to the next, of a vocabulary's part. */
static inline int64_t memory_logits_columns(int64_t vocab)
{
    return (vocab + MEMORY_LOGITS_NUMEL - 1) / MEMORY_LOGITS_NUMEL * MEMORY_LOGITS_NUMEL;
}

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
 * segment's other uses. Sizes: bytes of an element of weights, and of gradients. */
int64_t memory_store_shared_bytes(const Stage *stage, const ParallelSpec *layout,
                                  int64_t weight_size, int64_t grad_size);

/* All that a rank of the stage takes from the segment: that, what the layers sum over the tensor
 * ranks, and the communicators' own. Of a layout with more than one rank on CPU devices. */
int64_t memory_shared_bytes(const Stage *stage, const JobSpec *spec, const ModelConfig *config);

/* Communicators of NCCL that carry a rank's data, and what they, context and libraries take. */
int32_t memory_num_communicators(const ModelConfig *config, const ParallelSpec *layout);
int64_t memory_gpu_fixed_bytes(const ModelConfig *config, const ParallelSpec *layout);

/* Bytes that a block keeps for its backward pass, for one micro-batch of this layout, before
 * recomputation; cheap: of that what selective recomputation drops. */
double memory_block_bytes(const ModelConfig *config, const JobSpec *spec,
                          enum family_attention attention, double *cheap);

/* Micro-batches, of a whole stage each, whose activations a stage holds at once at most. */
double memory_in_flight(const JobSpec *spec, int32_t stage);

void memory_estimate(MemoryEstimate *out, const ModelConfig *config, const JobSpec *spec,
                     const struct memory_load *load);
/* out->arenas (owned by the message's user, as text_clone's are): the same pieces one by one, for
 * the ranks of a stage that can be run. */
void memory_add_arenas(MemoryEstimate *out, const ModelConfig *config, const JobSpec *spec,
                       const struct memory_load *load);

#endif
