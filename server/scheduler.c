#include "server/scheduler.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

static bool before(const struct sched_job *a, const struct sched_job *b)
{
    return a->priority != b->priority ? a->priority > b->priority : a->id < b->id;
}

static int compare(const void *a, const void *b)
{
    const struct sched_job *const *x = a, *const *y = b;
    return before(*x, *y) ? -1 : before(*y, *x) ? 1 : 0;
}

/* May the job ever use the device? */
static bool suits(const struct sched_job *j, const struct sched_device *d)
{
    if (d->drained || (strcmp(j->type, "any") != 0 && strcmp(j->type, d->type) != 0)) {
        return false;
    }
    for (size_t i = 0; i < j->num_nodes; i++) {
        if (strcmp(j->nodes[i], d->node) == 0) {
            return true;
        }
    }
    return j->num_nodes == 0;
}

/* The first node, in the order of the devices, with enough free ones. */
static bool place(const struct sched_job *j, const struct sched_device *devices,
                  int32_t num_devices, const struct device_set *taken, struct device_set *out)
{
    for (int32_t first = 0; first < num_devices; first++) {
        if (first > 0 && strcmp(devices[first].node, devices[first - 1].node) == 0) {
            continue;
        }
        int32_t have = 0;
        memset(out, 0, sizeof *out);
        for (int32_t i = first; i < num_devices && have < j->devices; i++) {
            if (strcmp(devices[i].node, devices[first].node) != 0) {
                break;
            }
            if (devices[i].job_id == 0 && !device_set_has(taken, i) && suits(j, &devices[i])) {
                device_set_add(out, i);
                have++;
            }
        }
        if (have == j->devices) {
            return true;
        }
    }
    return false;
}

size_t scheduler_run(const struct sched_job *jobs, size_t num_jobs,
                     const struct sched_device *devices, int32_t num_devices,
                     struct sched_start *starts)
{
    ASSERT(num_devices <= DEVICES_MAX);
    const struct sched_job **order = malloc((num_jobs + 1) * sizeof *order);
    ASSERT(order);
    size_t num_ready = 0, num_starts = 0;
    for (size_t i = 0; i < num_jobs; i++) {
        if (jobs[i].ready) {
            order[num_ready++] = &jobs[i];
        }
    }
    qsort(order, num_ready, sizeof *order, compare);
    /* Given to a job of this round, or kept for one that waits. */
    struct device_set taken = {{0}};
    int32_t num_open = 0;
    for (int32_t i = 0; i < num_devices; i++) {
        num_open += devices[i].job_id == 0 && !devices[i].drained;
    }
    for (size_t k = 0; k < num_ready && num_open > 0; k++) {
        struct device_set got;
        if (place(order[k], devices, num_devices, &taken, &got)) {
            starts[num_starts++] =
                (struct sched_start){.job_idx = (size_t)(order[k] - jobs), .devices = got};
        } else {
            memset(&got, 0, sizeof got);
            for (int32_t i = 0; i < num_devices; i++) {
                if (suits(order[k], &devices[i])) {
                    device_set_add(&got, i);
                }
            }
        }
        for (int32_t i = 0; i < num_devices; i++) {
            if (device_set_has(&got, i) && !device_set_has(&taken, i)) {
                device_set_add(&taken, i);
                num_open -= devices[i].job_id == 0 && !devices[i].drained;
            }
        }
    }
    free(order);
    return num_starts;
}

void scheduler_why(const struct sched_job *jobs, size_t num_jobs,
                   const struct sched_device *devices, int32_t num_devices, size_t job_idx,
                   char *out, size_t size)
{
    const struct sched_job *j = &jobs[job_idx];
    int32_t suitable = 0, open = 0;
    int64_t holder = 0;
    for (int32_t i = 0; i < num_devices; i++) {
        if (suits(j, &devices[i])) {
            suitable++;
            open += devices[i].job_id == 0;
            holder = devices[i].job_id > 0 ? devices[i].job_id : holder;
        }
    }
    if (suitable < j->devices) {
        snprintf(out, size, "needs %d %s device%s; the cluster has %d that are not drained",
                 j->devices, j->type, j->devices == 1 ? "" : "s", suitable);
        return;
    }
    if (open < j->devices) {
        char who[40] = "another tenant's job";
        if (holder > 0) {
            snprintf(who, sizeof who, "job %lld", (long long)holder);
        }
        snprintf(out, size, "needs %d device%s; %d of %d are free (%s holds some)", j->devices,
                 j->devices == 1 ? "" : "s", open, suitable, who);
        return;
    }
    for (size_t i = 0; i < num_jobs; i++) {
        if (jobs[i].ready && before(&jobs[i], j) && jobs[i].hidden) {
            snprintf(out, size, "waits behind a job of another tenant");
            return;
        }
        if (jobs[i].ready && before(&jobs[i], j)) {
            snprintf(out, size,
                     "waits behind job %lld, which needs %d devices (priority %d, here %d)",
                     (long long)jobs[i].id, jobs[i].devices, jobs[i].priority, j->priority);
            return;
        }
    }
    snprintf(out, size, "is about to start");
}
