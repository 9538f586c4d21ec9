#include "server/secrecy.h"

#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>

extern char **environ;

/* A name that ends with '*': all that begin so. */
static const char *const passed[] = {
    "PATH",           "HOME",         "USER",
    "LOGNAME",        "SHELL",        "LANG",
    "LANGUAGE",       "LC_*",         "TZ",
    "TMPDIR",         "LD_*",         "XDG_*",
    "TANDEM_*",       "OMP_*",        "KMP_*",
    "GOMP_*",         "MKL_*",        "OPENBLAS_*",
    "BLIS_*",         "CUDA_*",       "NVIDIA_*",
    "NCCL_*",         "UCX_*",        "MALLOC_*",
    "GLIBC_TUNABLES", "GRPC_*",       "LLVM_PROFILE_FILE",
    "ASAN_OPTIONS",   "LSAN_OPTIONS", "TSAN_OPTIONS",
    "UBSAN_OPTIONS",
};
/* But not these: whose they are knows where they are. */
static const char *const kept_back[] = {"TANDEM_TOKEN*", "TANDEM_SERVER"};

static bool matches(const char *pattern, const char *name, size_t len)
{
    size_t n = strlen(pattern);
    bool prefix = n && pattern[n - 1] == '*';
    n -= prefix;
    return strncmp(pattern, name, n) == 0 && (prefix ? len >= n : len == n);
}

static bool in_list(const char *const *list, size_t num, const char *name, size_t len)
{
    for (size_t i = 0; i < num; i++) {
        if (matches(list[i], name, len)) {
            return true;
        }
    }
    return false;
}

bool secrecy_passes(const char *variable)
{
    size_t len = strcspn(variable, "=");
    return in_list(passed, sizeof passed / sizeof *passed, variable, len) &&
           !in_list(kept_back, sizeof kept_back / sizeof *kept_back, variable, len);
}

void secrecy_cut_environment(char *const *names, size_t num)
{
    size_t kept = 0;
    for (size_t i = 0; environ[i]; i++) {
        size_t len = strcspn(environ[i], "=");
        bool named = false;
        for (size_t k = 0; k < num && !named; k++) {
            named = strlen(names[k]) == len && strncmp(names[k], environ[i], len) == 0;
        }
        if (named || secrecy_passes(environ[i])) {
            environ[kept++] = environ[i];
        }
    }
    environ[kept] = NULL;
}

void secrecy_guard_memory(void)
{
    struct rlimit core;
    if (getrlimit(RLIMIT_CORE, &core) == 0) {
        /* 1, not 0: a core pattern that is a pipe ignores other limits. */
        core.rlim_cur = core.rlim_max > 0 ? 1 : 0;
        setrlimit(RLIMIT_CORE, &core);
    }
    prctl(PR_SET_DUMPABLE, 0);
}
