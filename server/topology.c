#include "server/topology.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "plan/cluster.h"
#include "proto/text.h"
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

void topology_look(struct topology_host *t)
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
}

/* ---- made ---- */

static ClusterSpec *this_host(const struct topology_host *host, int32_t num_devices)
{
    ClusterSpec *cluster = msg_new(&cluster_spec__descriptor);
    NodeInfo *node = msg_new(&node_info__descriptor);
    msg_push(&cluster->nodes, &cluster->n_nodes, node);
    msg_text(&node->name, host->node);
    MSG_SET(node, mem_bytes, host->mem_bytes);
    MSG_SET(node, cores, host->cores);
    for (int32_t i = 0; i < num_devices; i++) {
        DeviceInfo *d = msg_new(&device_info__descriptor);
        MSG_SET(d, index, i);
        d->type = NULL;
        msg_text(&d->type, "cpu");
        MSG_SET(d, mem_bytes, host->mem_bytes / num_devices);
        msg_push(&node->devices, &node->n_devices, d);
    }
    return cluster;
}

static bool is_cpu(const DeviceInfo *d)
{
    return !d->type || strcmp(d->type, "cpu") == 0;
}

/* CPU devices are this host's. */
static void tell_host(const struct topology_host *host, ClusterSpec *cluster)
{
    for (size_t n = 0; n < cluster->n_nodes; n++) {
        NodeInfo *node = cluster->nodes[n];
        if (node->n_devices == 0 || !is_cpu(node->devices[0])) {
            continue;
        }
        if (!node->cpu_model) {
            msg_text(&node->cpu_model, host->cpu_model);
        }
        if (!node->boot_id) {
            msg_text(&node->boot_id, host->boot_id);
        }
    }
}

/* A file may be what another controller answered: whose its devices were is no matter here. */
static void forget_jobs(ClusterSpec *cluster)
{
    for (size_t n = 0; n < cluster->n_nodes; n++) {
        for (size_t i = 0; i < cluster->nodes[n]->n_devices; i++) {
            DeviceInfo *d = cluster->nodes[n]->devices[i];
            d->has_job_id = d->has_claimed_by = 0;
            d->job_id = d->claimed_by = 0;
        }
    }
}

static void index_places(struct topology *t)
{
    const struct fabric *f = t->fabric;
    t->places = calloc((size_t)f->num_devices + 1, sizeof *t->places);
    ASSERT(t->places);
    for (size_t n = 0; n < t->cluster->n_nodes; n++) {
        const NodeInfo *node = t->cluster->nodes[n];
        for (size_t d = 0; d < node->n_devices; d++) {
            int32_t device = fabric_find_device(f, node->name, node->devices[d]->index);
            ASSERT(device >= 0);
            t->places[device] = (struct topology_place){(int32_t)n, (int32_t)d};
        }
    }
}

static void fill_peaks(ClusterSpec *cluster, double fp32, double fp64)
{
    for (size_t n = 0; n < cluster->n_nodes; n++) {
        NodeInfo *node = cluster->nodes[n];
        for (size_t i = 0; i < node->n_devices; i++) {
            DeviceInfo *d = node->devices[i];
            if (is_cpu(d) && !(d->peak_flops_fp32 > 0)) {
                MSG_SET(d, peak_flops_fp32, fp32);
            }
            if (is_cpu(d) && !(d->peak_flops_fp64 > 0)) {
                MSG_SET(d, peak_flops_fp64, fp64);
            }
        }
    }
}

int topology_new(struct topology **out, const struct topology_host *host, ClusterSpec *cluster,
                 int32_t num_devices, struct error *err)
{
    struct topology *t = calloc(1, sizeof *t);
    ASSERT(t);
    t->host = *host;
    t->cluster = cluster ? cluster : this_host(host, num_devices > 0 ? num_devices : host->cores);
    tell_host(host, t->cluster);
    forget_jobs(t->cluster);
    if (host->peak_fp32 > 0) {
        fill_peaks(t->cluster, host->peak_fp32, host->peak_fp64);
    }
    if ((!cluster && cluster_check("this host", t->cluster, err) != 0) ||
        fabric_new(&t->fabric, t->cluster, err) != 0 ||
        drains_new(&t->drains, t->fabric, err) != 0) {
        topology_free(t);
        return -1;
    }
    t->plan_fabric = host->peak_fp32 > 0 ? t->fabric : NULL;
    t->gpu_node = fabric_find_node(t->fabric, t->host.node) >= 0 ? t->host.node : NULL;
    index_places(t);
    *out = t;
    return 0;
}

void topology_free(struct topology *t)
{
    if (!t) {
        return;
    }
    drains_free(t->drains);
    fabric_free(t->fabric);
    fabric_free(t->measured);
    msg_free(t->cluster);
    free(t->places);
    free(t);
}

int32_t topology_find_node(const struct topology *t, const char *name, struct error *err)
{
    int32_t node = fabric_find_node(t->fabric, name);
    if (node >= 0) {
        return node;
    }
    size_t num = t->cluster->n_nodes;
    const char **names = calloc(num + 1, sizeof *names);
    ASSERT(names);
    for (size_t i = 0; i < num; i++) {
        names[i] = t->cluster->nodes[i]->name;
    }
    const char *nearest = text_nearest(name, names);
    if (nearest) {
        error_set(err, ERR_NOT_FOUND, "there is no node \"%.64s\"; did you mean %s?", name,
                  nearest);
    } else {
        error_set(err, ERR_NOT_FOUND, "there is no node \"%.64s\"; this cluster has %s%s", name,
                  names[0], num > 1 ? " and others" : "");
    }
    free(names);
    return -1;
}

int32_t topology_num_gpus_gone(const struct topology *t)
{
    const struct fabric *f = t->fabric;
    int32_t node = t->gpu_node ? fabric_find_node(f, t->gpu_node) : -1, num = 0;
    for (int32_t i = 0; node >= 0 && i < f->nodes[node].num_devices; i++) {
        int32_t d = f->nodes[node].first_device + i;
        num += !f->types[f->devices[d].type].is_cpu && drains_is_missing(t->drains, d);
    }
    return num;
}

void topology_set_peaks(struct topology *t, double fp32, double fp64)
{
    t->host.peak_fp32 = fp32;
    t->host.peak_fp64 = fp64;
    if (t->plan_fabric) {
        return;
    }
    fill_peaks(t->cluster, fp32, fp64);
    struct error err = {0};
    if (fabric_new(&t->measured, t->cluster, &err) != 0) {
        log_error("no fabric with the peaks that were measured: %s", err.text);
        return;
    }
    t->plan_fabric = t->measured;
}

/* ---- told ---- */

RankPlacement **topology_places(const struct topology *t, const int32_t *devices, int32_t num)
{
    RankPlacement **places = calloc((size_t)num + 1, sizeof *places);
    ASSERT(places);
    for (int32_t i = 0; i < num; i++) {
        const struct fabric_device *d = &t->fabric->devices[devices[i]];
        places[i] = msg_new(&rank_placement__descriptor);
        msg_text(&places[i]->node, t->fabric->nodes[d->node].name);
        MSG_SET(places[i], device, d->index);
    }
    return places;
}

void topology_free_places(RankPlacement **places, int32_t num)
{
    for (int32_t i = 0; places && i < num; i++) {
        msg_free(places[i]);
    }
    free(places);
}

DeviceInfo *topology_device(const struct topology *t, ClusterSpec *message, int32_t device)
{
    const struct topology_place *p = &t->places[device];
    return message->nodes[p->node]->devices[p->device];
}

ClusterSpec *topology_message(const struct topology *t, const int64_t *holders,
                              const int64_t *claims)
{
    ClusterSpec *m = (ClusterSpec *)text_clone(&t->cluster->base);
    for (int32_t i = 0; i < t->fabric->num_devices; i++) {
        DeviceInfo *d = topology_device(t, m, i);
        const char *reason = drains_reason(t->drains, i);
        MSG_SET(d, job_id, holders ? holders[i] : 0);
        MSG_SET(d, claimed_by, claims ? claims[i] : 0);
        if (reason) {
            MSG_SET(d, drained, 1);
            free(d->reason);
            d->reason = NULL;
            msg_text(&d->reason, reason);
        }
    }
    return m;
}
