/* The processes below this one. tandem-node is their subreaper: whoever loses its parent, also by
 * setsid or double fork, becomes its child, so nobody gets away. */
#ifndef TANDEM_RUNTIME_NODE_PROCTREE_H
#define TANDEM_RUNTIME_NODE_PROCTREE_H

#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"

/* From now on orphans below this process become its children. */
int proctree_adopt_orphans(struct error *err);

/* The fields of /proc/PID/stat behind the name, in line: the state's letter is the first. NULL:
 * there is no such process. */
#define PROCTREE_STAT_MAX 512
const char *proctree_stat(const char *pid, char line[PROCTREE_STAT_MAX]);

/* The direct children (zombies included), at most max. Returns how many were found. */
int proctree_children(pid_t *pids, int max);

/* Kills (SIGKILL) and reaps until there is no child left: then there is no descendant either.
 * *num_killed counts those that were not zombies yet. -1: some are still there after timeout_ms. */
int proctree_kill_all(int64_t timeout_ms, int *num_killed, struct error *err);

#endif
