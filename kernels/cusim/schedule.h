/* Which of the orders that CUDA allows is taken, and the random numbers that it takes. */
#ifndef TANDEM_KERNELS_CUSIM_SCHEDULE_H
#define TANDEM_KERNELS_CUSIM_SCHEDULE_H

#include "kernels/cusim/control.h"

namespace cusim
{

struct schedule {
    enum cusim_threads threads;
    enum cusim_streams streams;
    uint64_t state;
};

/* The process's; read from the environment when first asked for. */
struct schedule *schedule_now();
/* A number in 0..below-1. */
unsigned schedule_draw(unsigned below);

} // namespace cusim

#endif
