/* A control group (version 2) for each attempt, where a delegated one is ours: then nothing gets
 * out of sight, whatever it does to its session, parents and environment, and all are killed at
 * once. */
#ifndef TANDEM_SERVER_LAUNCH_CGROUP_H
#define TANDEM_SERVER_LAUNCH_CGROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CGROUP_PATH_SIZE 1024

struct cgroup {
    char dir[CGROUP_PATH_SIZE]; /* groups are made in it; "" = there is none for us */
    uint32_t owner;             /* tells the groups of one data folder from another's */
};

/* Ours, if whoever manages groups has delegated it (systemd: Delegate=yes), or the one that
 * TANDEM_CGROUP names. */
void cgroup_find(struct cgroup *out, const char *data_dir);

/* Each does nothing (and finds nothing) where there is none. */
void cgroup_enter(const struct cgroup *g, int64_t job_id, int32_t attempt, int64_t pid);
void cgroup_kill(const struct cgroup *g, int64_t job_id, int32_t attempt);
/* How many processes are in it, and one of them. An empty group is removed. */
size_t cgroup_look(const struct cgroup *g, int64_t job_id, int32_t attempt, int64_t *first);

#endif
