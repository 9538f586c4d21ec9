/* Which instructions the loops of this process may use. */
#ifndef TANDEM_KERNELS_HOST_LEVEL_H
#define TANDEM_KERNELS_HOST_LEVEL_H

enum host_level {
    HOST_BASELINE, /* what every processor of the architecture has */
    HOST_AVX2,     /* with fused multiply-add: x86-64-v3 */
    HOST_AVX512,   /* x86-64-v4 */
};

/* The highest of this processor. TANDEM_CPU_LEVEL in the environment can hold it down (avx2,
 * baseline): for tests, and to leave out what a processor does badly. */
enum host_level host_level(void);
/* "baseline", "avx2", "avx512". */
const char *host_level_name(void);

#endif
