#include "kernels/cpu/cpu.h"

#include <stddef.h>

#include "kernels/host/level.h"

/* The variants that the build makes. */
extern const struct loops loops_cpu_f32_base, loops_cpu_f64_base, loops_cpu_bf16_base;
#if defined(__x86_64__)
extern const struct loops loops_cpu_f32_v3, loops_cpu_f64_v3, loops_cpu_bf16_v3;
extern const struct loops loops_cpu_f32_v4, loops_cpu_f64_v4, loops_cpu_bf16_v4;
#endif

/* By dtype: F32, F64, BF16. */
static const struct loops *const loops[][3] = {
    [HOST_BASELINE] = {&loops_cpu_f32_base, &loops_cpu_f64_base, &loops_cpu_bf16_base},
#if defined(__x86_64__)
    [HOST_AVX2] = {&loops_cpu_f32_v3, &loops_cpu_f64_v3, &loops_cpu_bf16_v3},
    [HOST_AVX512] = {&loops_cpu_f32_v4, &loops_cpu_f64_v4, &loops_cpu_bf16_v4},
#endif
};

const struct loops *cpu_loops(enum dtype t)
{
    return (unsigned)t < 3 ? loops[host_level()][t] : NULL;
}
