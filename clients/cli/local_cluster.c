#include "clients/cli/local_cluster.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"

int32_t local_num_cores(void)
{
    cpu_set_t cpus;
    if (sched_getaffinity(0, sizeof cpus, &cpus) == 0) {
        return CPU_COUNT(&cpus);
    }
    return (int32_t)sysconf(_SC_NPROCESSORS_ONLN);
}

static DeviceInfo *device_new(int32_t index, int64_t mem_bytes, double fp32, double fp64)
{
    DeviceInfo *d = malloc(sizeof *d);
    ASSERT(d);
    device_info__init(d);
    d->has_index = d->has_mem_bytes = d->has_peak_flops_fp32 = d->has_peak_flops_fp64 = 1;
    d->index = index;
    d->mem_bytes = mem_bytes;
    d->peak_flops_fp32 = fp32;
    d->peak_flops_fp64 = fp64;
    return d;
}

ClusterSpec *local_cluster_new(double peak_flops_fp32, double peak_flops_fp64)
{
    ClusterSpec *cluster = malloc(sizeof *cluster);
    NodeInfo *node = malloc(sizeof *node);
    char name[65] = "";
    ASSERT(cluster && node);
    cluster_spec__init(cluster);
    node_info__init(node);
    cluster->nodes = calloc(1, sizeof(NodeInfo *));
    ASSERT(cluster->nodes);
    cluster->nodes[cluster->n_nodes++] = node;
    if (gethostname(name, sizeof name - 1) != 0 || !name[0]) {
        memcpy(name, "localhost", sizeof "localhost");
    }
    node->name = strdup(name);
    node->has_cores = node->has_mem_bytes = 1;
    node->cores = local_num_cores();
    node->mem_bytes = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    node->devices = calloc((size_t)node->cores, sizeof(DeviceInfo *));
    ASSERT(node->name && node->devices);
    for (int32_t i = 0; i < node->cores; i++) {
        node->devices[node->n_devices++] =
            device_new(i, node->mem_bytes / node->cores, peak_flops_fp32, peak_flops_fp64);
    }
    return cluster;
}
