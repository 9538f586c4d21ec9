#include "kernels/cpu/cpu.h"

#include <stdlib.h>
#include <string.h>

/* The variants that the build makes. */
extern const struct loops loops_cpu_f32_base;
extern const struct loops loops_cpu_f64_base;
#if TANDEM_CPU_LEVELS
extern const struct loops loops_cpu_f32_v3;
extern const struct loops loops_cpu_f64_v3;
extern const struct loops loops_cpu_f32_v4;
extern const struct loops loops_cpu_f64_v4;
#endif

struct level {
    const char *name;
    const struct loops *f32;
    const struct loops *f64;
};

static const struct level baseline = {"baseline", &loops_cpu_f32_base, &loops_cpu_f64_base};
#if TANDEM_CPU_LEVELS
static const struct level avx2 = {"avx2", &loops_cpu_f32_v3, &loops_cpu_f64_v3};
static const struct level avx512 = {"avx512", &loops_cpu_f32_v4, &loops_cpu_f64_v4};

static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("bmi2");
}

static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
}
#endif

static const struct level *best_level(void)
{
#if TANDEM_CPU_LEVELS
    const char *limit = getenv("TANDEM_CPU_LEVEL");
    if (limit && strcmp(limit, "baseline") == 0) {
        return &baseline;
    }
    bool no_avx512 = limit && strcmp(limit, "avx2") == 0;
    if (!no_avx512 && has_avx512()) {
        return &avx512;
    }
    if (has_avx2()) {
        return &avx2;
    }
#endif
    return &baseline;
}

const struct loops *cpu_loops(enum dtype t)
{
    const struct level *level = best_level();
    return t == DTYPE_F32 ? level->f32 : t == DTYPE_F64 ? level->f64 : NULL;
}

const char *cpu_level_name(void)
{
    return best_level()->name;
}
