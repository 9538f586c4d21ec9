#include "server/topology.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "server/msg.h"

static void read_boot_id(char *out, size_t size)
{
    out[0] = 0;
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (f) {
        if (fgets(out, (int)size, f)) {
            out[strcspn(out, "\n")] = 0;
        }
        fclose(f);
    }
}

static void read_cpu_model(char *out, size_t size)
{
    snprintf(out, size, "unknown");
    FILE *f = fopen("/proc/cpuinfo", "re");
    char line[512];
    while (f && fgets(line, sizeof line, f)) {
        char *colon = strchr(line, ':');
        if (colon && strncmp(line, "model name", 10) == 0) {
            colon[strcspn(colon, "\n")] = 0;
            snprintf(out, size, "%s", colon + 1 + strspn(colon + 1, " "));
            break;
        }
    }
    if (f) {
        fclose(f);
    }
}

int topology_init_local(struct topology *t, int32_t num_devices, struct error *err)
{
    memset(t, 0, sizeof *t);
    if (gethostname(t->node, sizeof t->node - 1) != 0 || !*t->node) {
        snprintf(t->node, sizeof t->node, "localhost");
    }
    read_cpu_model(t->cpu_model, sizeof t->cpu_model);
    read_boot_id(t->boot_id, sizeof t->boot_id);
    cpu_set_t cpus;
    t->cores = sched_getaffinity(0, sizeof cpus, &cpus) == 0
                   ? (int32_t)CPU_COUNT(&cpus)
                   : (int32_t)sysconf(_SC_NPROCESSORS_ONLN);
    t->mem_bytes = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    t->num_devices = num_devices > 0 ? num_devices : t->cores;
    if (t->num_devices > DEVICES_MAX) {
        return error_set(err, ERR_OUT_OF_RANGE, "--devices %d: at most %d", t->num_devices,
                         DEVICES_MAX);
    }
    return 0;
}

void topology_devices(const struct topology *t, struct sched_device *devices)
{
    for (int32_t i = 0; i < t->num_devices; i++) {
        devices[i] = (struct sched_device){.node = t->node, .type = "cpu"};
    }
}

ClusterSpec *topology_cluster(const struct topology *t, const int64_t *holders)
{
    ClusterSpec *cluster = msg_new(&cluster_spec__descriptor);
    NodeInfo *node = msg_new(&node_info__descriptor);
    msg_push(&cluster->nodes, &cluster->n_nodes, node);
    msg_text(&node->name, t->node);
    msg_text(&node->cpu_model, t->cpu_model);
    msg_text(&node->boot_id, t->boot_id);
    MSG_SET(node, mem_bytes, t->mem_bytes);
    MSG_SET(node, cores, t->cores);
    for (int32_t i = 0; i < t->num_devices; i++) {
        DeviceInfo *d = msg_new(&device_info__descriptor);
        MSG_SET(d, index, i);
        d->type = NULL;
        msg_text(&d->type, "cpu");
        MSG_SET(d, mem_bytes, t->mem_bytes / t->num_devices);
        MSG_SET(d, peak_flops_fp32, t->peak_fp32);
        MSG_SET(d, peak_flops_fp64, t->peak_fp64);
        MSG_SET(d, job_id, holders ? holders[i] : 0);
        msg_push(&node->devices, &node->n_devices, d);
    }
    return cluster;
}
