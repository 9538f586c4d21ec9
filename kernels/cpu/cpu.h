/* The fast host backend: its loops for this machine. */
#ifndef TANDEM_KERNELS_CPU_H
#define TANDEM_KERNELS_CPU_H

#include "kernels/host/loops.h"

/* NULL: a type that it lacks. */
const struct loops *cpu_loops(enum dtype t);

#endif
