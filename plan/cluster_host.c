#include "plan/cluster_host.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "plan/cluster.h"
#include "plan/device_types.h"

#define WORDS_MAX 32
/* Drivers keep some of a card's memory to themselves. */
#define MEM_SHARE 0.9

struct compare {
    const NodeInfo *host;
    void (*say)(void *where, const char *words);
    void *where;
    int num;
};

static void say(struct compare *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void say(struct compare *c, const char *fmt, ...)
{
    char words[512];
    va_list args;
    if (++c->num > WORDS_MAX) {
        if (c->num == WORDS_MAX + 1) {
            c->say(c->where, "there are more differences");
        }
        return;
    }
    va_start(args, fmt);
    vsnprintf(words, sizeof words, fmt, args);
    va_end(args);
    c->say(c->where, words);
}

static bool is_cpu(const DeviceInfo *d)
{
    return strcmp(d->type, "cpu") == 0;
}

static const DeviceInfo *find_device(const NodeInfo *n, int32_t index)
{
    for (size_t i = 0; i < n->n_devices; i++) {
        if (!is_cpu(n->devices[i]) && n->devices[i]->index == index) {
            return n->devices[i];
        }
    }
    return NULL;
}

static void compare_device(struct compare *c, const NodeInfo *n, const DeviceInfo *told)
{
    const DeviceInfo *found = find_device(c->host, told->index);
    if (!found) {
        say(c, "node %s: device %d (%s) is not found", n->name, told->index, told->type);
        return;
    }
    if (strcmp(found->type, told->type) != 0) {
        say(c, "node %s: device %d is of type %s, the cluster file says %s", n->name, told->index,
            found->type, told->type);
    } else if (found->mem_bytes > 0 &&
               (double)found->mem_bytes < MEM_SHARE * (double)told->mem_bytes) {
        say(c, "node %s: device %d has %lld bytes of memory, the cluster file says %lld", n->name,
            told->index, (long long)found->mem_bytes, (long long)told->mem_bytes);
    }
    int32_t capability = told->compute_capability > 0 ? told->compute_capability
                                                      : device_types_capability(told->type);
    if (found->compute_capability > 0 && found->compute_capability < capability) {
        say(c, "node %s: device %d has compute capability %d.%d, by the cluster file %d.%d",
            n->name, told->index, found->compute_capability / 10, found->compute_capability % 10,
            capability / 10, capability % 10);
    }
}

/* With the first that the file has in the same domain. */
static void compare_domain(struct compare *c, const NodeInfo *n, const DeviceInfo *told)
{
    for (size_t i = 0; i < n->n_devices; i++) {
        const DeviceInfo *first = n->devices[i];
        if (first == told) {
            return;
        }
        if (is_cpu(first) || strcmp(cluster_domain(n, first), cluster_domain(n, told)) != 0) {
            continue;
        }
        const DeviceInfo *a = find_device(c->host, first->index);
        const DeviceInfo *b = find_device(c->host, told->index);
        if (a && b && strcmp(cluster_domain(c->host, a), cluster_domain(c->host, b)) != 0) {
            say(c,
                "node %s: devices %d and %d share a fast domain in the cluster file and no NVLink",
                n->name, first->index, told->index);
        }
        return;
    }
}

static int count_gpus(const NodeInfo *n)
{
    int num = 0;
    for (size_t i = 0; i < n->n_devices; i++) {
        num += !is_cpu(n->devices[i]);
    }
    return num;
}

static void compare_gpus(struct compare *c, const ClusterSpec *cluster)
{
    const NodeInfo *here = NULL;
    for (size_t i = 0; i < cluster->n_nodes && !here; i++) {
        here = strcmp(cluster->nodes[i]->name, c->host->name) == 0 ? cluster->nodes[i] : NULL;
    }
    if (!here) {
        int num = count_gpus(c->host);
        if (num > 0) {
            say(c, "%s has %d GPU%s, and no node of the cluster file is called so", c->host->name,
                num, num == 1 ? "" : "s");
        }
        return;
    }
    if (count_gpus(here) > 0 && count_gpus(c->host) == 0) {
        say(c,
            "node %s: no GPU is found of the cluster file's %d: is NVIDIA's driver installed, and "
            "what does nvidia-smi say?",
            here->name, count_gpus(here));
        return;
    }
    for (size_t i = 0; i < here->n_devices; i++) {
        if (!is_cpu(here->devices[i])) {
            compare_device(c, here, here->devices[i]);
            compare_domain(c, here, here->devices[i]);
        }
    }
    for (size_t i = 0; i < c->host->n_devices; i++) {
        const DeviceInfo *found = c->host->devices[i];
        if (!is_cpu(found) && !find_device(here, found->index)) {
            say(c, "node %s: device %d (%s) is found and not in the cluster file", here->name,
                found->index, found->type);
        }
    }
}

static bool has_cpus(const NodeInfo *n)
{
    for (size_t i = 0; i < n->n_devices; i++) {
        if (is_cpu(n->devices[i])) {
            return true;
        }
    }
    return false;
}

static void compare_cpus(struct compare *c, const ClusterSpec *cluster)
{
    int64_t cores = 0;
    double mem_bytes = 0;
    for (size_t i = 0; i < cluster->n_nodes; i++) {
        if (has_cpus(cluster->nodes[i])) {
            cores += cluster->nodes[i]->cores;
            mem_bytes += (double)cluster->nodes[i]->mem_bytes;
        }
    }
    if (c->host->cores > 0 && cores > c->host->cores) {
        say(c, "the nodes of CPU devices have %lld cores together, this host has %d",
            (long long)cores, c->host->cores);
    }
    if (c->host->mem_bytes > 0 && mem_bytes > (double)c->host->mem_bytes) {
        say(c, "the nodes of CPU devices have %.3g GB of memory together, this host has %.3g",
            mem_bytes / 1e9, (double)c->host->mem_bytes / 1e9);
    }
}

void cluster_host_compare(const ClusterSpec *cluster, const NodeInfo *host,
                          void (*words_out)(void *where, const char *words), void *where)
{
    struct compare c = {.host = host, .say = words_out, .where = where};
    compare_gpus(&c, cluster);
    compare_cpus(&c, cluster);
}
