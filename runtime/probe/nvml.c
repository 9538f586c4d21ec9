#include "runtime/probe/nvml.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define LIBRARY "libnvidia-ml.so.1"
#define NOTE_MAX 256

/* The library's interface, as far as we need it, after its documentation (docs.nvidia.com/deploy/
 * nvml-api). Structs are followed by room: a newer library may know them larger. */
typedef struct nvml_device *nvml_handle;
enum { NVML_OK = 0, LINK_UP = 1, REMOTE_GPU = 0, REMOTE_SWITCH = 2, FABRIC_COMPLETED = 3 };

struct memory {
    unsigned long long total, free, used;
    char room[64];
};
struct pci_info {
    char bus_id_legacy[16];
    unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
    char room[64];
};
struct fabric_info {
    unsigned char cluster_uuid[16];
    int status;
    unsigned clique;
    unsigned char state;
    char room[64];
};

struct library {
    void *so;
    int (*init)(void);
    int (*shutdown)(void);
    const char *(*error_string)(int rc);
    int (*count)(unsigned *num);
    int (*handle)(unsigned index, nvml_handle *h);
    int (*name)(nvml_handle h, char *name, unsigned size);
    int (*memory)(nvml_handle h, struct memory *m);
    int (*pci)(nvml_handle h, struct pci_info *p);
    int (*link_state)(nvml_handle h, unsigned link, unsigned *state);
    int (*link_type)(nvml_handle h, unsigned link, unsigned *type);
    int (*link_pci)(nvml_handle h, unsigned link, struct pci_info *p);
    int (*fabric)(nvml_handle h, struct fabric_info *info);
};

struct listing {
    struct library lib;
    void (*note)(void *where, const char *words);
    void *where;
};

static void say(const struct listing *l, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

static void say(const struct listing *l, const char *fmt, ...)
{
    char words[NOTE_MAX];
    va_list args;
    va_start(args, fmt);
    vsnprintf(words, sizeof words, fmt, args);
    va_end(args);
    for (char *c = words; *c; c++) {
        *c = *c >= 0x20 && *c < 0x7f ? *c : '?';
    }
    l->note(l->where, words);
}

/* A function of that name; NULL where this library has none. */
static void *look(struct library *lib, const char *name)
{
    return dlsym(lib->so, name);
}

/* A void pointer isn't a function pointer in ISO C, but is by POSIX. */
#define LOOK(lib, field, name)                                                                     \
    do {                                                                                           \
        void *found = look(lib, name);                                                             \
        memcpy(&(lib)->field, &found, sizeof found);                                               \
    } while (0)

static bool open_library(struct listing *l)
{
    struct library *lib = &l->lib;
    lib->so = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!lib->so) {
        return false; /* no driver: no GPUs */
    }
    LOOK(lib, init, "nvmlInit_v2");
    LOOK(lib, shutdown, "nvmlShutdown");
    LOOK(lib, error_string, "nvmlErrorString");
    LOOK(lib, count, "nvmlDeviceGetCount_v2");
    LOOK(lib, handle, "nvmlDeviceGetHandleByIndex_v2");
    LOOK(lib, name, "nvmlDeviceGetName");
    LOOK(lib, memory, "nvmlDeviceGetMemoryInfo");
    LOOK(lib, pci, "nvmlDeviceGetPciInfo_v3");
    LOOK(lib, link_state, "nvmlDeviceGetNvLinkState");
    LOOK(lib, link_type, "nvmlDeviceGetNvLinkRemoteDeviceType");
    LOOK(lib, link_pci, "nvmlDeviceGetNvLinkRemotePciInfo_v2");
    LOOK(lib, fabric, "nvmlDeviceGetGpuFabricInfo");
    if (!lib->init || !lib->count || !lib->handle || !lib->name) {
        say(l, "%s lacks what it has to have", LIBRARY);
        dlclose(lib->so);
        return false;
    }
    return true;
}

static const char *words_of(const struct listing *l, int rc)
{
    const char *words = l->lib.error_string ? l->lib.error_string(rc) : NULL;
    return words ? words : "no words for it";
}

static struct nvml_pci pci_of(const struct pci_info *p)
{
    return (struct nvml_pci){p->domain, p->bus, p->device};
}

static void read_links(const struct library *lib, nvml_handle h, struct nvml_gpu *gpu)
{
    for (unsigned i = 0; lib->link_state && i < NVML_MAX_LINKS; i++) {
        unsigned state = 0, type = REMOTE_GPU;
        struct pci_info remote = {0};
        if (lib->link_state(h, i, &state) != NVML_OK || state != LINK_UP) {
            continue;
        }
        if (lib->link_type && lib->link_type(h, i, &type) != NVML_OK) {
            continue;
        }
        if (type == REMOTE_SWITCH) {
            gpu->on_switch = true;
        } else if (type == REMOTE_GPU && lib->link_pci && lib->link_pci(h, i, &remote) == NVML_OK) {
            gpu->peers[gpu->num_peers++] = pci_of(&remote);
        }
    }
}

/* All zero: an NVLink of this host alone. */
static bool is_zero(const unsigned char *uuid)
{
    unsigned char any = 0;
    for (int i = 0; i < 16; i++) {
        any |= uuid[i];
    }
    return any == 0;
}

static void read_fabric(const struct library *lib, nvml_handle h, struct nvml_gpu *gpu)
{
    struct fabric_info info = {0};
    if (lib->fabric && lib->fabric(h, &info) == NVML_OK && info.state == FABRIC_COMPLETED &&
        info.status == NVML_OK && !is_zero(info.cluster_uuid)) {
        gpu->has_fabric = true;
        memcpy(gpu->fabric_uuid, info.cluster_uuid, sizeof gpu->fabric_uuid);
        gpu->fabric_clique = info.clique;
    }
}

static bool read_gpu(const struct listing *l, unsigned index, struct nvml_gpu *gpu)
{
    const struct library *lib = &l->lib;
    nvml_handle h = NULL;
    memset(gpu, 0, sizeof *gpu);
    gpu->index = (int32_t)index;
    int rc = lib->handle(index, &h);
    if (rc == NVML_OK) {
        rc = lib->name(h, gpu->name, sizeof gpu->name);
    }
    if (rc != NVML_OK) {
        say(l, "GPU %u does not answer: %.100s", index, words_of(l, rc));
        return false;
    }
    gpu->name[sizeof gpu->name - 1] = 0;
    for (char *c = gpu->name; *c; c++) {
        *c = *c >= 0x20 && *c < 0x7f ? *c : '?';
    }
    struct memory mem = {0};
    if (lib->memory && lib->memory(h, &mem) == NVML_OK && mem.total <= INT64_MAX) {
        gpu->mem_bytes = (int64_t)mem.total;
    }
    struct pci_info pci = {0};
    if (lib->pci && lib->pci(h, &pci) == NVML_OK) {
        gpu->has_pci = true;
        gpu->pci = pci_of(&pci);
    }
    read_links(lib, h, gpu);
    read_fabric(lib, h, gpu);
    return true;
}

static int32_t list(const struct listing *l, struct nvml_gpu gpus[NVML_MAX_GPUS])
{
    unsigned num = 0;
    int32_t found = 0;
    int rc = l->lib.count(&num);
    if (rc != NVML_OK) {
        say(l, "GPUs can't be counted: %.100s", words_of(l, rc));
        return 0;
    }
    if (num > NVML_MAX_GPUS) {
        say(l, "%u GPUs are not believed; the first %d are looked at", num, NVML_MAX_GPUS);
        num = NVML_MAX_GPUS;
    }
    for (unsigned i = 0; i < num; i++) {
        if (read_gpu(l, i, &gpus[found])) {
            found++;
        }
    }
    return found;
}

int32_t nvml_list(struct nvml_gpu gpus[NVML_MAX_GPUS], void (*note)(void *where, const char *words),
                  void *where)
{
    struct listing l = {.note = note, .where = where};
    int32_t num = 0;
    if (!open_library(&l)) {
        return 0;
    }
    int rc = l.lib.init();
    if (rc != NVML_OK) {
        say(&l, "the NVIDIA driver does not answer: %.100s", words_of(&l, rc));
    } else {
        num = list(&l, gpus);
        if (l.lib.shutdown) {
            l.lib.shutdown();
        }
    }
    dlclose(l.lib.so);
    return num;
}
