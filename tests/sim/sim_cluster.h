/* What the simulation's controller is told of its machine: a cluster of named nodes, or one plain
 * host; what of it stands in the file that it was started with; how it schedules. Devices have
 * numbers of our own here, which stay the same whatever the file says: a set of them is a mask. */
#ifndef TANDEM_TESTS_SIM_CLUSTER_H
#define TANDEM_TESTS_SIM_CLUSTER_H

#include "server/topology.h"
#include "tests/sim/sim.h"

#define SIM_NODES_MAX 5
#define SIM_NODE_DEVICES_MAX 5
#define SIM_DEVICES_MAX (SIM_NODES_MAX * SIM_NODE_DEVICES_MAX)

struct sim_place {
    int32_t node, index;
};

struct sim_cluster {
    bool plain; /* no file: this host */
    int32_t num_nodes, num_devices;
    char names[SIM_NODES_MAX][16];
    struct sim_place places[SIM_DEVICES_MAX]; /* by our numbers */
    bool pairs, leaves;                       /* two nodes a domain; two a leaf */
    uint64_t all;
    /* Of the controller that is up, or was up last. */
    uint64_t file;    /* devices that stand in its file */
    uint64_t missing; /* of these the host has not reported */
    int64_t version;  /* counts changes of file */
    SchedulerConfig scheduler;
    bool has_scheduler;
    int32_t numbers[SIM_DEVICES_MAX]; /* by number in its fabric */
    int32_t num_in_file;
};

void sim_cluster_new(struct sim *s);
void sim_cluster_free(struct sim *s);
/* The operator edits the file, or puts it right again (whole); read at the next start. */
void sim_cluster_edit(struct sim *s, bool whole);
/* The host comes up with a device fewer, perhaps. */
void sim_cluster_lose(struct sim *s);
/* What a start finds. */
int sim_cluster_topology(struct sim *s, struct topology **out, struct error *err);
const SchedulerConfig *sim_cluster_scheduler(const struct sim *s);

/* Ours of the controller's. */
uint64_t sim_cluster_mask(const struct sim *s, const struct device_set *set);
uint64_t sim_cluster_bit(const struct sim *s, int32_t in_fabric);
/* 0: no such device. */
uint64_t sim_cluster_named(const struct sim *s, const char *node, int32_t index);
uint64_t sim_cluster_of_node(const struct sim *s, int32_t node);

static inline int32_t sim_cluster_count(uint64_t mask)
{
    return __builtin_popcountll(mask);
}

#endif
