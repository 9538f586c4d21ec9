#include "runtime/probe/nvml_library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define LIBRARY "libnvidia-ml.so.1"
#define WHY_MAX 256

/* A function of that name; NULL where this library has none. */
static void *look(struct nvml_library *lib, const char *name)
{
    return dlsym(lib->so, name);
}

/* A void pointer isn't a function pointer in ISO C, but is by POSIX. */
#define LOOK(lib, field, name)                                                                     \
    do {                                                                                           \
        void *found = look(lib, name);                                                             \
        memcpy(&(lib)->field, &found, sizeof found);                                               \
    } while (0)

static void look_for_facts(struct nvml_library *lib)
{
    LOOK(lib, init, "nvmlInit_v2");
    LOOK(lib, shutdown, "nvmlShutdown");
    LOOK(lib, error_string, "nvmlErrorString");
    LOOK(lib, driver, "nvmlSystemGetDriverVersion");
    LOOK(lib, count, "nvmlDeviceGetCount_v2");
    LOOK(lib, handle, "nvmlDeviceGetHandleByIndex_v2");
    LOOK(lib, name, "nvmlDeviceGetName");
    LOOK(lib, uuid, "nvmlDeviceGetUUID");
    LOOK(lib, capability, "nvmlDeviceGetCudaComputeCapability");
    LOOK(lib, ecc_mode, "nvmlDeviceGetEccMode");
    LOOK(lib, near_memory, "nvmlDeviceGetMemoryAffinity");
    LOOK(lib, memory, "nvmlDeviceGetMemoryInfo");
    LOOK(lib, pci, "nvmlDeviceGetPciInfo_v3");
    LOOK(lib, link_state, "nvmlDeviceGetNvLinkState");
    LOOK(lib, link_type, "nvmlDeviceGetNvLinkRemoteDeviceType");
    LOOK(lib, link_pci, "nvmlDeviceGetNvLinkRemotePciInfo_v2");
    LOOK(lib, fabric, "nvmlDeviceGetGpuFabricInfo");
}

/* Some have got new names, or more in their structs. */
static void look_for_health(struct nvml_library *lib)
{
    LOOK(lib, ecc_errors, "nvmlDeviceGetTotalEccErrors");
    LOOK(lib, remapped, "nvmlDeviceGetRemappedRows");
    LOOK(lib, throttle, "nvmlDeviceGetCurrentClocksEventReasons");
    if (!lib->throttle) {
        LOOK(lib, throttle, "nvmlDeviceGetCurrentClocksThrottleReasons");
    }
    LOOK(lib, temperature, "nvmlDeviceGetTemperature");
    LOOK(lib, temperature_limit, "nvmlDeviceGetTemperatureThreshold");
    LOOK(lib, events_new, "nvmlEventSetCreate");
    LOOK(lib, events_add, "nvmlDeviceRegisterEvents");
    LOOK(lib, events_wait, "nvmlEventSetWait_v2");
    if (!lib->events_wait) {
        LOOK(lib, events_wait, "nvmlEventSetWait");
    }
    LOOK(lib, events_free, "nvmlEventSetFree");
}

bool nvml_open(struct nvml_library *lib, char why[WHY_MAX])
{
    memset(lib, 0, sizeof *lib);
    why[0] = 0;
    lib->so = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!lib->so) {
        return false; /* no driver: no GPUs */
    }
    look_for_facts(lib);
    look_for_health(lib);
    if (!lib->init || !lib->count || !lib->handle || !lib->name) {
        snprintf(why, WHY_MAX, "%s lacks what it has to have", LIBRARY);
    } else {
        int rc = lib->init();
        if (rc == NVML_OK) {
            return true;
        }
        snprintf(why, WHY_MAX, "the NVIDIA driver does not answer: %.100s", nvml_words(lib, rc));
    }
    nvml_clean(why, WHY_MAX);
    dlclose(lib->so);
    return false;
}

void nvml_close(struct nvml_library *lib)
{
    if (lib->shutdown) {
        lib->shutdown();
    }
    dlclose(lib->so);
}

const char *nvml_words(const struct nvml_library *lib, int rc)
{
    const char *words = lib->error_string ? lib->error_string(rc) : NULL;
    return words ? words : "no words for it";
}

void nvml_clean(char *text, unsigned size)
{
    text[size - 1] = 0;
    for (char *c = text; *c; c++) {
        *c = *c >= 0x20 && *c < 0x7f ? *c : '?';
    }
}
