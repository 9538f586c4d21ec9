/* Who starts next, and where: a pure function of the queue and the devices. Higher priority first,
 * then the older job; a gang gets all its devices, on one node if they fit there, or none. Where
 * the first job that is ready doesn't fit, nobody behind it overtakes it on the devices that it
 * could use. */
#ifndef TANDEM_SERVER_SCHEDULER_H
#define TANDEM_SERVER_SCHEDULER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "plan/device_set.h"

struct sched_job {
    int64_t id;
    int32_t priority;
    int32_t devices;
    const char *type;         /* "any" or a device type */
    const char *const *nodes; /* allowed ones; num_nodes 0 = all */
    size_t num_nodes;
    bool ready;  /* false: in a backoff, or its old attempt isn't gone yet */
    bool hidden; /* scheduler_why doesn't tell which it is */
};

struct sched_device {
    const char *node;
    const char *type;
    int64_t job_id; /* who holds it; 0 = free, -1 = a job that isn't told */
    bool drained;
};

struct sched_start {
    size_t job_idx;
    struct device_set *devices; /* indices into the devices given; the caller frees it */
};

/* Fills starts (room for num_jobs) and returns how many. */
size_t scheduler_run(const struct sched_job *jobs, size_t num_jobs,
                     const struct sched_device *devices, int32_t num_devices,
                     struct sched_start *starts);

/* Why jobs[job_idx] doesn't start now, as a sentence. */
void scheduler_why(const struct sched_job *jobs, size_t num_jobs,
                   const struct sched_device *devices, int32_t num_devices, size_t job_idx,
                   char *out, size_t size);

#endif
