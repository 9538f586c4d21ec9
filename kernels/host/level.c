#include "kernels/host/level.h"

#include <stdlib.h>
#include <string.h>

static enum host_level level_of_processor(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
        !__builtin_cpu_supports("bmi2")) {
        return HOST_BASELINE;
    }
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl")) {
        return HOST_AVX512;
    }
    return HOST_AVX2;
#else
    return HOST_BASELINE;
#endif
}

enum host_level host_level(void)
{
    enum host_level level = level_of_processor();
    const char *limit = getenv("TANDEM_CPU_LEVEL");
    if (limit && strcmp(limit, "baseline") == 0) {
        return HOST_BASELINE;
    }
    if (limit && strcmp(limit, "avx2") == 0 && level > HOST_AVX2) {
        return HOST_AVX2;
    }
    return level;
}

const char *host_level_name(void)
{
    static const char *const names[] = {"baseline", "avx2", "avx512"};
    return names[host_level()];
}
