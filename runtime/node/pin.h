/* Where the ranks of GPUs run on their host: on processors near their GPU, each GPU of a NUMA node
 * having an equal share of its cores, and with memory from there. */
#ifndef TANDEM_RUNTIME_NODE_PIN_H
#define TANDEM_RUNTIME_NODE_PIN_H

#include <sched.h>
#include <stdbool.h>

#include "proto/names.h"

/* Processors that are told apart. */
#define PIN_CPUS 4096

struct pin {
    bool is_pinned; /* false: anywhere; words say why */
    int32_t numa_node;
    unsigned char cpus[PIN_CPUS / 8];
    char words[200]; /* "GPU 3: CPUs 12-23 of NUMA node 1" */
};

/* sysfs: "/sys". host: what the driver tells of all GPUs of this host. device: of these, by index.
 * threads: what the rank is to have at least, else it shares all of the node. allowed [PIN_CPUS
 * bits]: this process's own. */
void pin_find(struct pin *out, const char *sysfs, const NodeInfo *host, int32_t device, int threads,
              const unsigned char *allowed);

/* What this process may run on. */
void pin_allowed(unsigned char cpus[PIN_CPUS / 8]);

/* On the calling thread, for what it starts meanwhile: begin makes it so, end puts back what was.
 * Memory comes from the node as long as that has any. Nothing is pinned where that fails. */
struct pin_before {
    bool has_cpus, has_memory;
    unsigned char cpus[PIN_CPUS / 8];
};
void pin_begin(const struct pin *p, struct pin_before *before);
void pin_end(const struct pin_before *before);

#endif
