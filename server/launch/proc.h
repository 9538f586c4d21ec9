/* /proc as the local launcher reads it. */
#ifndef TANDEM_SERVER_LAUNCH_PROC_H
#define TANDEM_SERVER_LAUNCH_PROC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct proc_stat {
    int64_t pid, ppid, session;
    /* The process itself, or, where its first thread has ended before others (one that hangs in a
     * driver holds all that the process has), one of these: it has an environment yet. */
    int64_t thread;
    char state; /* of thread: R S D ...; Z: all have ended */
    char name[32];
    int64_t start_time;
};

/* False: no such process. */
bool proc_read(int64_t pid, struct proc_stat *out);
/* Living processes (no zombies) of our user that descend from root, are in its session, or have
 * mark ("NAME=VALUE") in their environment: who fled by setsid and lost its parents still has
 * that. root itself is left out, and who started before since (root's own start). Fills pids up to
 * max; returns how many there are. root need not live any more; 0 = by the mark alone. */
size_t proc_descendants(int64_t root, int64_t since, const char *mark, int64_t *pids, size_t max);
void proc_boot_id(char *out, size_t size);

#endif
