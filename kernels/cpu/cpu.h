/* The fast host backend: its loops for this machine. */
#ifndef TANDEM_KERNELS_CPU_H
#define TANDEM_KERNELS_CPU_H

#include "kernels/host/loops.h"

/* The best variant that this processor runs. Also puts the BLAS library on one thread a call. */
const struct loops *cpu_loops(enum dtype t);
/* "avx512", "avx2" or "baseline". */
const char *cpu_level_name(void);

#endif
