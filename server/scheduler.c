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

/* The first node, in the order of the devices, with enough free ones; else the first of all.
 * Fills out[devices of the job]. */
static bool place(const struct sched_job *j, const struct sched_device *devices,
                  int32_t num_devices, const bool *taken, int32_t *out)
{
    for (int pass = 0; pass < 2; pass++) {
        int32_t have = 0;
        for (int32_t i = 0; i < num_devices; i++) {
            if (pass == 0 && i > 0 && strcmp(devices[i].node, devices[i - 1].node) != 0) {
                have = 0;
            }
            if (devices[i].job_id == 0 && !taken[i] && suits(j, &devices[i])) {
                out[have++] = i;
            }
            if (have == j->devices) {
                return true;
            }
        }
    }
    return false;
}

size_t scheduler_run(const struct sched_job *jobs, size_t num_jobs,
                     const struct sched_device *devices, int32_t num_devices,
                     struct sched_start *starts)
{
    const struct sched_job **order = malloc((num_jobs + 1) * sizeof *order);
    /* Given to a job of this round, or kept for one that waits. */
    bool *taken = calloc((size_t)num_devices + 1, sizeof *taken);
    int32_t *got = malloc(((size_t)num_devices + 1) * sizeof *got);
    ASSERT(order && taken && got);
    size_t num_ready = 0, num_starts = 0;
    for (size_t i = 0; i < num_jobs; i++) {
        if (jobs[i].ready) {
            order[num_ready++] = &jobs[i];
        }
    }
    qsort(order, num_ready, sizeof *order, compare);
    int32_t num_open = 0;
    for (int32_t i = 0; i < num_devices; i++) {
        num_open += devices[i].job_id == 0 && !devices[i].drained;
    }
    for (size_t k = 0; k < num_ready && num_open > 0; k++) {
        bool fits = place(order[k], devices, num_devices, taken, got);
        int32_t num = fits ? order[k]->devices : 0;
        if (fits) {
            starts[num_starts++] = (struct sched_start){.job_idx = (size_t)(order[k] - jobs),
                                                        .devices = device_set_new(got, num)};
        }
        for (int32_t i = 0; i < num_devices && !fits; i++) {
            if (suits(order[k], &devices[i])) {
                got[num++] = i;
            }
        }
        for (int32_t i = 0; i < num; i++) {
            const struct sched_device *d = &devices[got[i]];
            num_open -= !taken[got[i]] && d->job_id == 0 && !d->drained;
            taken[got[i]] = true;
        }
    }
    free(order);
    free(taken);
    free(got);
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
