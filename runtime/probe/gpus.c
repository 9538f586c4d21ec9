#include "runtime/probe/gpus.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "plan/device_types.h"

/* Words that say nothing about the type. */
static bool is_noise(const char *word)
{
    return strcmp(word, "nvidia") == 0 || strcmp(word, "tesla") == 0;
}

void gpus_type(const char *name, char out[GPUS_TYPE_MAX])
{
    char all[GPUS_TYPE_MAX];
    size_t len = 0, len_all = 0;
    out[0] = all[0] = 0;
    while (*name) {
        char word[GPUS_TYPE_MAX];
        size_t n = 0;
        for (; *name && !isalnum((unsigned char)*name); name++) {
        }
        for (; isalnum((unsigned char)*name); name++) {
            if (n < sizeof word - 1) {
                word[n++] = (char)tolower((unsigned char)*name);
            }
        }
        word[n] = 0;
        if (n == 0) {
            continue;
        }
        if (len_all + 1 + n < sizeof all) {
            len_all += (size_t)snprintf(all + len_all, sizeof all - len_all, "%s%s",
                                        len_all ? "-" : "", word);
        }
        if (!is_noise(word) && len + 1 + n < GPUS_TYPE_MAX) {
            len += (size_t)snprintf(out + len, GPUS_TYPE_MAX - len, "%s%s", len ? "-" : "", word);
        }
    }
    const char *known = device_types_match(all);
    if (known || !out[0]) {
        snprintf(out, GPUS_TYPE_MAX, "%s", known ? known : "gpu");
    }
}

static bool same_fabric(const struct nvml_gpu *a, const struct nvml_gpu *b)
{
    return a->has_fabric && b->has_fabric && a->fabric_clique == b->fabric_clique &&
           memcmp(a->fabric_uuid, b->fabric_uuid, sizeof a->fabric_uuid) == 0;
}

static bool links_to(const struct nvml_gpu *a, const struct nvml_gpu *b)
{
    for (int32_t i = 0; b->has_pci && i < a->num_peers; i++) {
        if (a->peers[i].domain == b->pci.domain && a->peers[i].bus == b->pci.bus &&
            a->peers[i].device == b->pci.device) {
            return true;
        }
    }
    return false;
}

static bool connected(const struct nvml_gpu *a, const struct nvml_gpu *b)
{
    if (a->has_fabric || b->has_fabric) {
        return same_fabric(a, b);
    }
    return (a->on_switch && b->on_switch) || links_to(a, b) || links_to(b, a);
}

/* first[i]: the first GPU that i hangs together with, directly or through others. */
static void group(const struct nvml_gpu *gpus, int32_t num, int32_t first[NVML_MAX_GPUS])
{
    for (int32_t i = 0; i < num; i++) {
        first[i] = i;
    }
    for (int32_t i = 0; i < num; i++) {
        for (int32_t k = 0; k < i; k++) {
            int32_t to = first[k], from = first[i];
            if (to == from || !connected(&gpus[i], &gpus[k])) {
                continue;
            }
            int32_t low = to < from ? to : from, high = to < from ? from : to;
            for (int32_t j = 0; j <= i; j++) {
                first[j] = first[j] == high ? low : first[j];
            }
        }
    }
}

static char *text_copy(const char *text)
{
    char *copy = strdup(text);
    ASSERT(copy);
    return copy;
}

/* At most 64 characters, as a cluster file's names. */
static char *domain_name(const NodeInfo *node, const struct nvml_gpu *first)
{
    char name[65];
    if (first->has_fabric) {
        int n = snprintf(name, sizeof name, "nvlink-");
        for (size_t i = 0; i < sizeof first->fabric_uuid; i++) {
            n += snprintf(name + n, sizeof name - (size_t)n, "%02x", first->fabric_uuid[i]);
        }
        snprintf(name + n, sizeof name - (size_t)n, "-%u", first->fabric_clique);
    } else {
        snprintf(name, sizeof name, "%.48s-gpu%d", node->name, first->index);
    }
    return text_copy(name);
}

static void add_facts(DeviceInfo *d, const struct nvml_gpu *gpu)
{
    char pci[32];
    if (gpu->uuid[0]) {
        d->uuid = text_copy(gpu->uuid);
    }
    if (gpu->has_pci) {
        snprintf(pci, sizeof pci, "%08X:%02X:%02X.0", gpu->pci.domain, gpu->pci.bus,
                 gpu->pci.device);
        d->pci = text_copy(pci);
    }
    d->has_numa_node = gpu->numa_node >= 0;
    d->numa_node = gpu->numa_node;
    d->has_compute_capability = gpu->capability > 0;
    d->compute_capability = gpu->capability;
    d->has_ecc = gpu->has_ecc;
    d->ecc = gpu->ecc;
}

void gpus_add(NodeInfo *node, const struct nvml_gpu *gpus, int32_t num)
{
    int32_t first[NVML_MAX_GPUS];
    bool one_domain = num > 0 && !gpus[0].has_fabric;
    if (num <= 0) {
        return;
    }
    group(gpus, num, first);
    for (int32_t i = 0; i < num; i++) {
        one_domain = one_domain && first[i] == 0;
    }
    node->devices = calloc((size_t)num, sizeof(DeviceInfo *));
    ASSERT(node->devices);
    for (int32_t i = 0; i < num; i++) {
        char type[GPUS_TYPE_MAX];
        DeviceInfo *d = malloc(sizeof *d);
        ASSERT(d);
        device_info__init(d);
        gpus_type(gpus[i].name, type);
        d->has_index = 1;
        d->index = gpus[i].index;
        d->type = strdup(type);
        ASSERT(d->type);
        d->has_mem_bytes = gpus[i].mem_bytes > 0;
        d->mem_bytes = gpus[i].mem_bytes;
        add_facts(d, &gpus[i]);
        if (!one_domain) {
            d->domain = domain_name(node, &gpus[first[i]]);
        }
        node->devices[node->n_devices++] = d;
    }
}
