/* What there is to run on: this host as one node of CPU devices. */
#ifndef TANDEM_SERVER_TOPOLOGY_H
#define TANDEM_SERVER_TOPOLOGY_H

#include <stdint.h>

#include "base/error.h"
#include "server/scheduler.h"

struct topology {
    char node[65];
    char cpu_model[128];
    char boot_id[48];
    int32_t cores;
    int64_t mem_bytes;
    int32_t num_devices;
    double peak_fp32, peak_fp64; /* FLOP/s of one device; 0 = not measured yet */
};

/* num_devices 0 = the cores that this process may use. */
int topology_init_local(struct topology *out, int32_t num_devices, struct error *err);

/* For the scheduler: devices[num_devices], all free. Strings live as long as t. */
void topology_devices(const struct topology *t, struct sched_device *devices);

/* As a message that the caller frees. holders[num_devices]: job ids, 0 = free; NULL = all free. */
ClusterSpec *topology_cluster(const struct topology *t, const int64_t *holders);

#endif
