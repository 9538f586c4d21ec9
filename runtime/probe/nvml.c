#include "runtime/probe/nvml.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "runtime/probe/nvml_library.h"

#define NOTE_MAX 256
/* Of the affinity of memory: NUMA nodes that we can tell of. */
#define NUMA_WORDS 16

struct listing {
    struct nvml_library lib;
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
    nvml_clean(words, sizeof words);
    l->note(l->where, words);
}

static struct nvml_pci pci_of(const struct nvml_pci_info *p)
{
    return (struct nvml_pci){p->domain, p->bus, p->device};
}

static void read_links(const struct nvml_library *lib, nvml_handle h, struct nvml_gpu *gpu)
{
    for (unsigned i = 0; lib->link_state && i < NVML_MAX_LINKS; i++) {
        unsigned state = 0, type = NVML_REMOTE_GPU;
        struct nvml_pci_info remote = {0};
        if (lib->link_state(h, i, &state) != NVML_OK || state != NVML_LINK_UP) {
            continue;
        }
        if (lib->link_type && lib->link_type(h, i, &type) != NVML_OK) {
            continue;
        }
        if (type == NVML_REMOTE_SWITCH) {
            gpu->on_switch = true;
        } else if (type == NVML_REMOTE_GPU && lib->link_pci &&
                   lib->link_pci(h, i, &remote) == NVML_OK) {
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

static void read_fabric(const struct nvml_library *lib, nvml_handle h, struct nvml_gpu *gpu)
{
    struct nvml_fabric_info info = {0};
    if (lib->fabric && lib->fabric(h, &info) == NVML_OK && info.state == NVML_FABRIC_COMPLETED &&
        info.status == NVML_OK && !is_zero(info.cluster_uuid)) {
        gpu->has_fabric = true;
        memcpy(gpu->fabric_uuid, info.cluster_uuid, sizeof gpu->fabric_uuid);
        gpu->fabric_clique = info.clique;
    }
}

/* Absent from drivers of some cards: then it isn't known. */
static void read_facts(const struct nvml_library *lib, nvml_handle h, struct nvml_gpu *gpu)
{
    int major = 0, minor = 0;
    unsigned ecc = 0, pending = 0;
    if (lib->uuid && lib->uuid(h, gpu->uuid, sizeof gpu->uuid) == NVML_OK) {
        nvml_clean(gpu->uuid, sizeof gpu->uuid);
    } else {
        gpu->uuid[0] = 0;
    }
    if (lib->capability && lib->capability(h, &major, &minor) == NVML_OK && major > 0 &&
        major < 100 && minor >= 0 && minor < 10) {
        gpu->capability = 10 * major + minor;
    }
    if (lib->ecc_mode && lib->ecc_mode(h, &ecc, &pending) == NVML_OK) {
        gpu->has_ecc = true;
        gpu->ecc = ecc == 1;
    }
}

/* The first NUMA node of the host that it is near to; -1: not told. */
static int32_t near_node(const struct nvml_library *lib, nvml_handle h)
{
    unsigned long nodes[NUMA_WORDS] = {0};
    const int bits = 8 * (int)sizeof *nodes;
    if (!lib->near_memory || lib->near_memory(h, NUMA_WORDS, nodes, NVML_SCOPE_NODE) != NVML_OK) {
        return -1;
    }
    for (int i = 0; i < NUMA_WORDS * bits; i++) {
        if (nodes[i / bits] >> (i % bits) & 1) {
            return i;
        }
    }
    return -1;
}

static bool read_gpu(const struct listing *l, unsigned index, struct nvml_gpu *gpu)
{
    const struct nvml_library *lib = &l->lib;
    nvml_handle h = NULL;
    memset(gpu, 0, sizeof *gpu);
    gpu->index = (int32_t)index;
    int rc = lib->handle(index, &h);
    if (rc == NVML_OK) {
        rc = lib->name(h, gpu->name, sizeof gpu->name);
    }
    if (rc != NVML_OK) {
        say(l, "GPU %u does not answer: %.100s", index, nvml_words(lib, rc));
        return false;
    }
    nvml_clean(gpu->name, sizeof gpu->name);
    struct nvml_memory mem = {0};
    if (lib->memory && lib->memory(h, &mem) == NVML_OK && mem.total <= INT64_MAX) {
        gpu->mem_bytes = (int64_t)mem.total;
    }
    struct nvml_pci_info pci = {0};
    if (lib->pci && lib->pci(h, &pci) == NVML_OK) {
        gpu->has_pci = true;
        gpu->pci = pci_of(&pci);
    }
    read_facts(lib, h, gpu);
    gpu->numa_node = near_node(lib, h);
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
        say(l, "GPUs can't be counted: %.100s", nvml_words(&l->lib, rc));
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

int32_t nvml_list(struct nvml_gpu gpus[NVML_MAX_GPUS], char driver[NVML_DRIVER_MAX],
                  void (*note)(void *where, const char *words), void *where)
{
    struct listing l = {.note = note, .where = where};
    char why[NOTE_MAX];
    driver[0] = 0;
    if (!nvml_open(&l.lib, why)) {
        if (why[0]) {
            say(&l, "%s", why);
        }
        return 0;
    }
    if (l.lib.driver && l.lib.driver(driver, NVML_DRIVER_MAX) == NVML_OK) {
        nvml_clean(driver, NVML_DRIVER_MAX);
    } else {
        driver[0] = 0;
    }
    int32_t num = list(&l, gpus);
    nvml_close(&l.lib);
    return num;
}
