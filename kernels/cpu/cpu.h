/* The fast host backend: its loops for this machine. */
#ifndef TANDEM_KERNELS_CPU_H
#define TANDEM_KERNELS_CPU_H

#include "kernels/host/loops.h"

/* The best variant that this processor runs. TANDEM_CPU_LEVEL in the environment can hold it down
 * (avx2, baseline): for tests, and to leave out what a processor does badly. */
const struct loops *cpu_loops(enum dtype t);
/* "avx512", "avx2" or "baseline". */
const char *cpu_level_name(void);

#endif
