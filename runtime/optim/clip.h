/* The factor that clips gradients to a global norm. */
#ifndef TANDEM_RUNTIME_OPTIM_CLIP_H
#define TANDEM_RUNTIME_OPTIM_CLIP_H

/* max_norm / (norm + 1e-6) where that is below 1, else 1. max_norm 0 = off. */
double clip_factor(double norm, double max_norm);

#endif
