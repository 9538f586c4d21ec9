#include "kernels/cpu/blas_core.h"

#include <cblas.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define VARIABLE "OPENBLAS_CORETYPE"

/* Kernels for AVX2 or more. */
static bool is_modern(const char *core)
{
    static const char *const names[] = {"Haswell",  "Zen",        "Excavator",
                                        "SkylakeX", "Cooperlake", "Sapphirerapids"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcasecmp(core, names[i]) == 0) {
            return true;
        }
    }
    return false;
}

const char *blas_core_wanted(void)
{
#if defined(__x86_64__)
    if (is_modern(openblas_get_corename())) {
        return NULL;
    }
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512cd")) {
        return "SkylakeX";
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        return "Haswell";
    }
#endif
    return NULL;
}

void blas_core_ensure(char *const argv[])
{
    if (getenv(VARIABLE)) {
        return;
    }
    const char *core = blas_core_wanted();
    if (core && setenv(VARIABLE, core, 1) == 0) {
        /* Where this fails the program goes on, slowly. */
        execv("/proc/self/exe", argv);
    }
}
