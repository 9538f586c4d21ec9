/* The learning rate of a step: warm-up, then cosine, linear, constant or wsd (DESIGN: "LR of step
 * n"). Pure. */
#ifndef TANDEM_RUNTIME_OPTIM_LR_H
#define TANDEM_RUNTIME_OPTIM_LR_H

#include <stdint.h>

#include "proto/names.h"

/* Rate of step n = 1.. . training has passed spec_check. */
double lr_at(const TrainingSpec *training, int64_t total_steps, int64_t n);

#endif
