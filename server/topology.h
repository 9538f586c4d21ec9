/* What there is to run on: the cluster that the file describes, or this host as one node of CPU
 * devices; and what of it is drained (server/drains.h). All nodes with CPU devices are on this
 * host. */
#ifndef TANDEM_SERVER_TOPOLOGY_H
#define TANDEM_SERVER_TOPOLOGY_H

#include <stdint.h>

#include "base/error.h"
#include "plan/fabric.h"
#include "server/drains.h"

struct topology_host {
    char node[65]; /* what this host is called */
    char cpu_model[128];
    char boot_id[48];
    int32_t cores;
    int64_t mem_bytes;
    double peak_fp32, peak_fp64; /* FLOP/s of one CPU device; 0 = not measured yet */
};

struct topology_place {
    int32_t node, device;
};

struct topology {
    struct topology_host host;
    ClusterSpec *cluster;  /* owned; groups expanded; with the peaks that are known by now */
    struct fabric *fabric; /* owned */
    struct drains *drains; /* owned */
    /* For plans: with the peaks; NULL while they are measured. From then on nothing that a plan is
     * made from changes. */
    const struct fabric *plan_fabric;
    struct fabric
        *measured; /* owned: plan_fabric, where they were measured after the start; or NULL */
    const char *gpu_node; /* this host's own node, whose GPUs jobs can run on; NULL: it is none */
    struct topology_place *places; /* owned; [num_devices]: where each is in cluster */
};

/* Looks at this host; peaks are left out. */
void topology_look(struct topology_host *out);
/* cluster: checked, taken over also on failure; NULL: this host, with num_devices CPU devices (0 =
 * its cores). */
int topology_new(struct topology **out, const struct topology_host *host, ClusterSpec *cluster,
                 int32_t num_devices, struct error *err);
void topology_free(struct topology *t);

/* -1 and err, which names the nearest, where there is no such node. */
int32_t topology_find_node(const struct topology *t, const char *name, struct error *err);
/* GPUs of gpu_node that the file has and this host doesn't report: nobody can have them. */
int32_t topology_num_gpus_gone(const struct topology *t);
/* Peaks of this host, measured after a start: for devices that the file gives no figure. */
void topology_set_peaks(struct topology *t, double fp32, double fp64);

/* Where the devices are, by rank; local ranks are counted. Freed with topology_free_places. */
RankPlacement **topology_places(const struct topology *t, const int32_t *devices, int32_t num);
void topology_free_places(RankPlacement **places, int32_t num);

/* As a message that the caller frees. holders, claims [num_devices]: job ids, 0 = free or
 * unclaimed; NULL = all are. */
ClusterSpec *topology_message(const struct topology *t, const int64_t *holders,
                              const int64_t *claims);
/* The device in such a message. */
DeviceInfo *topology_device(const struct topology *t, ClusterSpec *message, int32_t device);

#endif
