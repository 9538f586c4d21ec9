/* The part of a rank's memory that grows with the micro-batch. Private to plan/memory*. */
#ifndef TANDEM_PLAN_MEMORY_ACTIVATIONS_H
#define TANDEM_PLAN_MEMORY_ACTIVATIONS_H

#include "plan/memory.h"

/* Saved tensors of blocks and head, over the micro-batches in flight. */
double memory_activations(const ModelConfig *config, const JobSpec *spec,
                          const struct memory_load *load);
/* Logits in fp32 at least, of one micro-batch. */
double memory_logits(const ModelConfig *config, const JobSpec *spec,
                     const struct memory_load *load);

#endif
