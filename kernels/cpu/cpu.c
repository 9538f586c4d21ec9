#include "kernels/cpu/cpu.h"

#include "kernels/host/level.h"

/* The variants that the build makes. */
extern const struct loops loops_cpu_f32_base;
extern const struct loops loops_cpu_f64_base;
#if defined(__x86_64__)
extern const struct loops loops_cpu_f32_v3;
extern const struct loops loops_cpu_f64_v3;
extern const struct loops loops_cpu_f32_v4;
extern const struct loops loops_cpu_f64_v4;
#endif

const struct loops *cpu_loops(enum dtype t)
{
    if (t != DTYPE_F32 && t != DTYPE_F64) {
        return NULL;
    }
#if defined(__x86_64__)
    switch (host_level()) {
    case HOST_AVX512:
        return t == DTYPE_F32 ? &loops_cpu_f32_v4 : &loops_cpu_f64_v4;
    case HOST_AVX2:
        return t == DTYPE_F32 ? &loops_cpu_f32_v3 : &loops_cpu_f64_v3;
    case HOST_BASELINE:
        break;
    }
#endif
    return t == DTYPE_F32 ? &loops_cpu_f32_base : &loops_cpu_f64_base;
}
