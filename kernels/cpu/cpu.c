#include "kernels/cpu/cpu.h"

#include <cblas.h>
#include <pthread.h>

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

static struct level best_level(void)
{
#if TANDEM_CPU_LEVELS
    __builtin_cpu_init();
    bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
              __builtin_cpu_supports("bmi2");
    if (v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl")) {
        return (struct level){"avx512", &loops_cpu_f32_v4, &loops_cpu_f64_v4};
    }
    if (v3) {
        return (struct level){"avx2", &loops_cpu_f32_v3, &loops_cpu_f64_v3};
    }
#endif
    return (struct level){"baseline", &loops_cpu_f32_base, &loops_cpu_f64_base};
}

/* The pool shares out the work; a library that starts threads of its own would fight it. */
static void quieten_blas(void)
{
    openblas_set_num_threads(1);
}

const struct loops *cpu_loops(enum dtype t)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, quieten_blas);
    struct level level = best_level();
    return t == DTYPE_F32 ? level.f32 : t == DTYPE_F64 ? level.f64 : NULL;
}

const char *cpu_level_name(void)
{
    return best_level().name;
}
