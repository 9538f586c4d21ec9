/* A management library like NVIDIA's for tests of discovery. TANDEM_FAKE_NVML says what it has:
 *   dgx        8 H100, NVLinks to switches          bridge     4 A100, two pairs by direct links
 *   rack       4 GB200 in clique 7 of a fabric      none       no GPU at all
 *   lost       dgx, but GPU 3 doesn't answer        broken     does not initialise
 *   many       says that it has 4000000000 GPUs     strange    names and words that aren't text
 *   uncounted  can't count                          crash      dies of a bad pointer
 *   volta      2 cards of a name that says nothing, of compute capability 7.0
 * TANDEM_FAKE_NVML_FAULTS names a file of what has happened to them since, a line each:
 *   GPU xid N     GPU ecc N     GPU pending 1     GPU remap 1     GPU slow REASONS     GPU degrees
 * N GPU lost 1    0 crash 1 FAKE_OLD (when compiled): a driver of the time before fabrics. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    OK = 0,
    UNKNOWN = 999,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    TIMEOUT = 10,
    LOST = 15,
    MISMATCH = 18
};

struct memory {
    unsigned long long total, free, used;
};
struct pci_info {
    char bus_id_legacy[16];
    unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
};
struct fabric_info {
    unsigned char cluster_uuid[16];
    int status;
    unsigned clique;
    unsigned char state;
};
struct gpu {
    int index;
};

int nvmlInit_v2(void);
int nvmlShutdown(void);
const char *nvmlErrorString(int rc);
int nvmlDeviceGetCount_v2(unsigned *num);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct gpu **out);
int nvmlDeviceGetName(struct gpu *g, char *name, unsigned size);
int nvmlSystemGetDriverVersion(char *version, unsigned size);
int nvmlDeviceGetUUID(struct gpu *g, char *uuid, unsigned size);
int nvmlDeviceGetCudaComputeCapability(struct gpu *g, int *major, int *minor);
int nvmlDeviceGetEccMode(struct gpu *g, unsigned *current, unsigned *pending);
int nvmlDeviceGetMemoryAffinity(struct gpu *g, unsigned size, unsigned long *nodes, unsigned scope);
int nvmlDeviceGetMemoryInfo(struct gpu *g, struct memory *m);
int nvmlDeviceGetPciInfo_v3(struct gpu *g, struct pci_info *p);
int nvmlDeviceGetNvLinkState(struct gpu *g, unsigned link, unsigned *state);
int nvmlDeviceGetNvLinkRemoteDeviceType(struct gpu *g, unsigned link, unsigned *type);
int nvmlDeviceGetNvLinkRemotePciInfo_v2(struct gpu *g, unsigned link, struct pci_info *p);
#ifndef FAKE_OLD
int nvmlDeviceGetGpuFabricInfo(struct gpu *g, struct fabric_info *info);
#endif

struct event {
    struct gpu *device;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
};
struct event_set {
    unsigned long devices; /* bits */
    int num_told;
};

int nvmlDeviceGetTotalEccErrors(struct gpu *g, int kind, int since, unsigned long long *num);
int nvmlDeviceGetRemappedRows(struct gpu *g, unsigned *corrected, unsigned *uncorrected,
                              unsigned *pending, unsigned *failed);
int nvmlDeviceGetCurrentClocksThrottleReasons(struct gpu *g, unsigned long long *reasons);
int nvmlDeviceGetTemperature(struct gpu *g, int sensor, unsigned *degrees);
int nvmlDeviceGetTemperatureThreshold(struct gpu *g, int which, unsigned *degrees);
int nvmlEventSetCreate(struct event_set **out);
int nvmlEventSetFree(struct event_set *set);
int nvmlDeviceRegisterEvents(struct gpu *g, unsigned long long types, struct event_set *set);
int nvmlEventSetWait_v2(struct event_set *set, struct event *out, unsigned timeout_ms);

static struct gpu gpus[64];

static int is(const char *mode)
{
    const char *word = getenv("TANDEM_FAKE_NVML");
    return word && strcmp(word, mode) == 0;
}

int nvmlInit_v2(void)
{
    if (is("crash")) {
        raise(SIGSEGV);
    }
    return is("broken") ? MISMATCH : OK;
}

int nvmlShutdown(void)
{
    return OK;
}

const char *nvmlErrorString(int rc)
{
    if (is("strange")) {
        return "\x1b[31m\xff\xfe words";
    }
    return rc == LOST       ? "GPU is lost"
           : rc == MISMATCH ? "Driver/library version mismatch"
                            : "other";
}

int nvmlDeviceGetCount_v2(unsigned *num)
{
    *num = is("dgx") || is("lost") || is("strange") ? 8
           : is("rack") || is("bridge")             ? 4
           : is("volta")                            ? 2
           : is("many")                             ? 4000000000u
                                                    : 0;
    return is("uncounted") ? UNKNOWN : OK;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct gpu **out)
{
    if (index >= sizeof gpus / sizeof *gpus) {
        return NOT_FOUND;
    }
    if ((is("lost") || is("strange")) && index == 3) {
        return LOST;
    }
    gpus[index].index = (int)index;
    *out = &gpus[index];
    return OK;
}

int nvmlDeviceGetName(struct gpu *g, char *name, unsigned size)
{
    (void)g;
    if (is("strange")) {
        memset(name, '\xe9', size); /* no end, no UTF-8 */
        return OK;
    }
    snprintf(name, size, "%s",
             is("rack")     ? "NVIDIA GB200"
             : is("bridge") ? "NVIDIA A100-SXM4-80GB"
             : is("volta")  ? "NVIDIA Graphics Device"
                            : "NVIDIA H100 80GB HBM3");
    return OK;
}

int nvmlSystemGetDriverVersion(char *version, unsigned size)
{
    snprintf(version, size, "580.65.06");
    return OK;
}

int nvmlDeviceGetUUID(struct gpu *g, char *uuid, unsigned size)
{
    if (is("strange")) {
        memset(uuid, '\xe9', size);
        return OK;
    }
    snprintf(uuid, size, "GPU-00000000-0000-0000-0000-%012d", g->index);
    return OK;
}

int nvmlDeviceGetCudaComputeCapability(struct gpu *g, int *major, int *minor)
{
    (void)g;
    *major = is("strange") ? 2000000000 : is("bridge") ? 8 : is("volta") ? 7 : is("rack") ? 10 : 9;
    *minor = 0;
    return OK;
}

int nvmlDeviceGetEccMode(struct gpu *g, unsigned *current, unsigned *pending)
{
    (void)g;
    *current = *pending = is("dgx") ? 1u : 0u;
    return is("volta") ? NOT_SUPPORTED : OK;
}

/* Half of them near either node of the host. */
int nvmlDeviceGetMemoryAffinity(struct gpu *g, unsigned size, unsigned long *nodes, unsigned scope)
{
    (void)scope;
    if (is("strange")) {
        memset(nodes, 0xff, size * sizeof *nodes);
        return OK;
    }
    nodes[0] = 1ul << (g->index / 4);
    return size > 0 && is("dgx") ? OK : NOT_SUPPORTED;
}

int nvmlDeviceGetMemoryInfo(struct gpu *g, struct memory *m)
{
    (void)g;
    m->total = is("strange") ? ~0ull : 85520809984ull;
    m->free = m->total;
    m->used = 0;
    return OK;
}

static void set_pci(struct pci_info *p, int index)
{
    memset(p, 0, sizeof *p);
    p->domain = 1;
    p->bus = (unsigned)(0x10 + index);
}

int nvmlDeviceGetPciInfo_v3(struct gpu *g, struct pci_info *p)
{
    set_pci(p, g->index);
    return OK;
}

int nvmlDeviceGetNvLinkState(struct gpu *g, unsigned link, unsigned *state)
{
    (void)g;
    *state = link < (is("bridge") ? 4u : 18u);
    return OK;
}

int nvmlDeviceGetNvLinkRemoteDeviceType(struct gpu *g, unsigned link, unsigned *type)
{
    (void)g;
    (void)link;
    *type = is("bridge") ? 0 : is("strange") ? 255 : 2;
    return OK;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(struct gpu *g, unsigned link, struct pci_info *p)
{
    (void)link;
    set_pci(p, g->index ^ 1);
    return OK;
}

#ifndef FAKE_OLD
int nvmlDeviceGetGpuFabricInfo(struct gpu *g, struct fabric_info *info)
{
    (void)g;
    memset(info, 0, sizeof *info);
    if (is("rack")) {
        memset(info->cluster_uuid, 0xab, sizeof info->cluster_uuid);
        info->clique = 7;
    }
    info->state = 3; /* a DGX says completed as well, of no cluster */
    return is("bridge") ? NOT_SUPPORTED : OK;
}
#endif

/* ---- what happens to them ---- */

/* The last value of that kind in the file; 0 = none. */
static unsigned long long fault(int index, const char *kind)
{
    const char *path = getenv("TANDEM_FAKE_NVML_FAULTS");
    FILE *f = path ? fopen(path, "re") : NULL;
    unsigned long long value = 0, last = 0;
    char line[128], word[32];
    int gpu;
    while (f && fgets(line, sizeof line, f)) {
        if (sscanf(line, "%d %31s %lli", &gpu, word, (long long *)&value) == 3 && gpu == index &&
            strcmp(word, kind) == 0) {
            last = value;
        }
    }
    if (f) {
        fclose(f);
    }
    if (strcmp(kind, "crash") != 0 && fault(0, "crash")) {
        raise(SIGSEGV);
    }
    return last;
}

int nvmlDeviceGetTotalEccErrors(struct gpu *g, int kind, int since, unsigned long long *num)
{
    (void)since;
    *num = kind == 1 ? fault(g->index, "ecc") + 5 : 0; /* five from before */
    return fault(g->index, "lost") ? LOST : OK;
}

int nvmlDeviceGetRemappedRows(struct gpu *g, unsigned *corrected, unsigned *uncorrected,
                              unsigned *pending, unsigned *failed)
{
    *corrected = *uncorrected = 0;
    *pending = fault(g->index, "pending") != 0;
    *failed = fault(g->index, "remap") != 0;
    return OK;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(struct gpu *g, unsigned long long *reasons)
{
    *reasons = fault(g->index, "slow") | 0x5; /* idle, and within its power: nothing bad */
    return OK;
}

int nvmlDeviceGetTemperature(struct gpu *g, int sensor, unsigned *degrees)
{
    unsigned long long told = fault(g->index, "degrees");
    (void)sensor;
    *degrees = told ? (unsigned)told : 40;
    return OK;
}

int nvmlDeviceGetTemperatureThreshold(struct gpu *g, int which, unsigned *degrees)
{
    (void)g;
    *degrees = which == 1 ? 90 : 95;
    return OK;
}

int nvmlEventSetCreate(struct event_set **out)
{
    *out = calloc(1, sizeof **out);
    return *out ? OK : UNKNOWN;
}

int nvmlEventSetFree(struct event_set *set)
{
    free(set);
    return OK;
}

int nvmlDeviceRegisterEvents(struct gpu *g, unsigned long long types, struct event_set *set)
{
    set->devices |= 1ul << g->index;
    return types & 0x8 ? OK : NOT_SUPPORTED;
}

/* XIDs of the file in their order, each once, of the devices that are listened to. */
int nvmlEventSetWait_v2(struct event_set *set, struct event *out, unsigned timeout_ms)
{
    const char *path = getenv("TANDEM_FAKE_NVML_FAULTS");
    FILE *f = path ? fopen(path, "re") : NULL;
    char line[128];
    int gpu, xid, at = 0, found = 0;
    while (f && !found && fgets(line, sizeof line, f)) {
        if (sscanf(line, "%d xid %d", &gpu, &xid) == 2 && gpu >= 0 && gpu < 64 &&
            set->devices >> gpu & 1 && at++ == set->num_told) {
            *out =
                (struct event){.device = &gpus[gpu], .type = 0x8, .data = (unsigned long long)xid};
            set->num_told++;
            found = 1;
        }
    }
    if (f) {
        fclose(f);
    }
    if (!found) {
        usleep(timeout_ms * 1000);
    }
    return found ? OK : TIMEOUT;
}
