/* A rank's memory, piece by piece: what the estimate adds up and the arenas are made from. Private
 * to plan/memory*. */
#ifndef TANDEM_PLAN_MEMORY_PARTS_H
#define TANDEM_PLAN_MEMORY_PARTS_H

#include "plan/memory.h"

/* Bytes. */
struct memory_parts {
    double weights, grads, exp_avg, exp_avg_sq;
    double masters; /* fp32 weights beside bf16 or fp16 ones */
    double weight_slots, grad_slots;
    double activations, backward, logits;
    double summed, words, staging;
    double workspace, batch;
    double host; /* the batch as it is read */
    double snapshot;
    double heap; /* of the data's reader */
};

void memory_parts_of(struct memory_parts *out, const ModelConfig *config, const JobSpec *spec,
                     const struct memory_load *load);

/* A piece begins at a multiple of 64 bytes. */
double memory_piece(double elements, double size);
/* Statistics, tables and gradients of parameters are kept in fp32 at least. */
double memory_stat_size(const TrainingSpec *training);
/* Rows of a micro-batch on one rank; of the residual stream those of one tensor rank (padded), and
 * those of all of them together. */
double memory_rows(const JobSpec *spec);
double memory_own_rows(const JobSpec *spec);
double memory_all_rows(const JobSpec *spec);

/* memory_activations.c: saved tensors of blocks and head over the micro-batches in flight, the
 * gradients of one unit's, logits of one micro-batch. */
void memory_add_activations(struct memory_parts *out, const ModelConfig *config,
                            const JobSpec *spec, const struct memory_load *load);
/* memory_scratch.c: what ranks exchange, kernels' scratch space, batch and tables. */
void memory_add_scratch(struct memory_parts *out, const ModelConfig *config, const JobSpec *spec,
                        const struct memory_load *load);

#endif
