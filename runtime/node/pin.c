#include "runtime/node/pin.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Of set_mempolicy(2): memory of the nodes named, else from anywhere; as the process began. */
#define POLICY_DEFAULT 0
#define POLICY_PREFERRED 1
#define MAX_NODES 1024
#define LINE_MAX_BYTES 8192

static bool has(const unsigned char *set, int i)
{
    return set[i / 8] >> (i % 8) & 1;
}

static void add(unsigned char *set, int i)
{
    set[i / 8] = (unsigned char)(set[i / 8] | 1u << (i % 8));
}

static int count(const unsigned char *set)
{
    int num = 0;
    for (int i = 0; i < PIN_CPUS; i++) {
        num += has(set, i);
    }
    return num;
}

/* ---- sysfs ---- */

static bool read_line(const char *sysfs, const char *name, char *line, size_t size)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/%s", sysfs, name) >= (int)sizeof path) {
        return false;
    }
    FILE *f = fopen(path, "re");
    bool ok = f && fgets(line, (int)size, f);
    if (f) {
        fclose(f);
    }
    return ok;
}

/* "0-3,8" into a set; what is no such list is left out. */
static void read_list(const char *sysfs, const char *name, unsigned char *set)
{
    char line[LINE_MAX_BYTES];
    memset(set, 0, PIN_CPUS / 8);
    if (!read_line(sysfs, name, line, sizeof line)) {
        return;
    }
    for (char *at = line; isdigit((unsigned char)*at);) {
        long first = strtol(at, &at, 10), last = first;
        if (*at == '-') {
            last = strtol(at + 1, &at, 10);
        }
        for (long i = first; i >= 0 && i <= last && i < PIN_CPUS; i++) {
            add(set, (int)i);
        }
        at += *at == ',';
    }
}

/* By the kernel, else by the driver; -1 = neither knows. */
static int32_t node_of(const char *sysfs, const DeviceInfo *d)
{
    char name[96], line[32];
    unsigned domain, bus, device, function;
    if (d->pci && sscanf(d->pci, "%8x:%2x:%2x.%1x", &domain, &bus, &device, &function) == 4) {
        snprintf(name, sizeof name, "bus/pci/devices/%04x:%02x:%02x.%x/numa_node", domain, bus,
                 device, function);
        if (read_line(sysfs, name, line, sizeof line)) {
            long node = strtol(line, NULL, 10);
            if (node >= 0 && node < MAX_NODES) {
                return (int32_t)node;
            }
        }
    }
    return d->numa_node >= 0 && d->numa_node < MAX_NODES ? d->numa_node : -1;
}

/* The first processor of the core that cpu is of. */
static int core_of(const char *sysfs, int cpu)
{
    char name[96];
    unsigned char siblings[PIN_CPUS / 8];
    snprintf(name, sizeof name, "devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    read_list(sysfs, name, siblings);
    for (int i = 0; i < cpu; i++) {
        if (has(siblings, i)) {
            return i;
        }
    }
    return cpu;
}

/* ---- shares ---- */

static void print_list(const unsigned char *set, char *out, size_t size)
{
    size_t len = 0;
    out[0] = 0;
    for (int i = 0; i < PIN_CPUS && len < size - 1; i++) {
        int last = i;
        if (!has(set, i)) {
            continue;
        }
        while (last + 1 < PIN_CPUS && has(set, last + 1)) {
            last++;
        }
        int n =
            snprintf(out + len, size - len, last > i ? "%s%d-%d" : "%s%d", len ? "," : "", i, last);
        len = len + (size_t)n < size ? len + (size_t)n : size - 1;
        i = last;
    }
}

/* The part-th of num equal parts of the cores in cpus; a core's threads stay together. */
static void share(const char *sysfs, const unsigned char *cpus, int part, int num,
                  unsigned char *out)
{
    static const unsigned char none[PIN_CPUS / 8];
    unsigned char firsts[PIN_CPUS / 8];
    short *cores = calloc(PIN_CPUS, sizeof *cores);
    memcpy(out, none, sizeof none);
    memcpy(firsts, none, sizeof none);
    for (int i = 0; cores && i < PIN_CPUS; i++) {
        if (has(cpus, i)) {
            cores[i] = (short)core_of(sysfs, i);
            add(firsts, cores[i]);
        }
    }
    int num_cores = count(firsts);
    int begin = num_cores * part / num, end = num_cores * (part + 1) / num;
    for (int i = 0, k = -1; cores && i < PIN_CPUS; i++) {
        k += has(firsts, i);
        for (int cpu = i; has(firsts, i) && k >= begin && k < end && cpu < PIN_CPUS; cpu++) {
            if (has(cpus, cpu) && cores[cpu] == i) {
                add(out, cpu);
            }
        }
    }
    free(cores);
}

/* How many of the host's GPUs are near that node, and which of them device is. */
static int near(const char *sysfs, const NodeInfo *host, int32_t node, int32_t device, int *part)
{
    int num = 0;
    *part = 0;
    for (size_t i = 0; i < host->n_devices; i++) {
        const DeviceInfo *d = host->devices[i];
        if (node_of(sysfs, d) == node) {
            *part += d->index < device;
            num++;
        }
    }
    return num;
}

static const DeviceInfo *find(const NodeInfo *host, int32_t device)
{
    for (size_t i = 0; host && i < host->n_devices; i++) {
        if (host->devices[i]->index == device) {
            return host->devices[i];
        }
    }
    return NULL;
}

void pin_find(struct pin *out, const char *sysfs, const NodeInfo *host, int32_t device, int threads,
              const unsigned char *allowed)
{
    char name[64], list[96];
    unsigned char cpus[PIN_CPUS / 8];
    const DeviceInfo *d = find(host, device);
    memset(out, 0, sizeof *out);
    out->numa_node = d ? node_of(sysfs, d) : -1;
    if (out->numa_node < 0) {
        snprintf(out->words, sizeof out->words, "GPU %d: runs anywhere, as %s", (int)device,
                 d ? "nobody tells which NUMA node it is near to"
                   : "the driver doesn't tell of it");
        return;
    }
    snprintf(name, sizeof name, "devices/system/node/node%d/cpulist", (int)out->numa_node);
    read_list(sysfs, name, cpus);
    for (size_t i = 0; i < sizeof cpus; i++) {
        cpus[i] &= allowed[i];
    }
    if (count(cpus) == 0) {
        snprintf(out->words, sizeof out->words,
                 "GPU %d: runs anywhere, as this process may use no CPU of NUMA node %d",
                 (int)device, (int)out->numa_node);
        return;
    }
    int part, num = near(sysfs, host, out->numa_node, device, &part);
    share(sysfs, cpus, part, num, out->cpus);
    bool is_small = count(out->cpus) < (threads > 1 ? threads : 1);
    if (is_small) {
        memcpy(out->cpus, cpus, sizeof cpus);
    }
    out->is_pinned = true;
    print_list(out->cpus, list, sizeof list);
    snprintf(out->words, sizeof out->words, "GPU %d: CPUs %s of NUMA node %d%s", (int)device, list,
             (int)out->numa_node,
             is_small ? ", shared with its other GPUs, as a share of its own would be too small"
                      : "");
}

/* ---- this thread ---- */

static bool get_cpus(unsigned char *cpus)
{
    memset(cpus, 0, PIN_CPUS / 8);
    return sched_getaffinity(0, PIN_CPUS / 8, (cpu_set_t *)(void *)cpus) == 0;
}

void pin_allowed(unsigned char cpus[PIN_CPUS / 8])
{
    unsigned char aligned[PIN_CPUS / 8] __attribute__((aligned(16)));
    if (!get_cpus(aligned)) {
        memset(aligned, 0xff, sizeof aligned);
    }
    memcpy(cpus, aligned, sizeof aligned);
}

static bool set_cpus(const unsigned char *cpus)
{
    unsigned char aligned[PIN_CPUS / 8] __attribute__((aligned(16)));
    memcpy(aligned, cpus, sizeof aligned);
    return sched_setaffinity(0, sizeof aligned, (const cpu_set_t *)(const void *)aligned) == 0;
}

void pin_begin(const struct pin *p, struct pin_before *before)
{
    unsigned long nodes[MAX_NODES / (8 * sizeof(unsigned long))] = {0};
    memset(before, 0, sizeof *before);
    if (!p || !p->is_pinned) {
        return;
    }
    pin_allowed(before->cpus);
    before->has_cpus = set_cpus(p->cpus);
    nodes[(size_t)p->numa_node / (8 * sizeof *nodes)] =
        1ul << ((size_t)p->numa_node % (8 * sizeof *nodes));
    before->has_memory =
        syscall(SYS_set_mempolicy, POLICY_PREFERRED, nodes, (unsigned long)MAX_NODES) == 0;
}

void pin_end(const struct pin_before *before)
{
    if (before->has_cpus) {
        set_cpus(before->cpus);
    }
    if (before->has_memory) {
        syscall(SYS_set_mempolicy, POLICY_DEFAULT, NULL, 0ul);
    }
}
