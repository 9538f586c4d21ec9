/* /proc as the local launcher reads it. */
#ifndef TANDEM_SERVER_LAUNCH_PROC_H
#define TANDEM_SERVER_LAUNCH_PROC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct proc_stat {
    int64_t pid, ppid, session;
    char state; /* R S D Z ... */
    int64_t start_time;
};

/* False: no such process. */
bool proc_read(int64_t pid, struct proc_stat *out);
/* Living processes (no zombies) of our user that descend from root or are in its session, root
 * itself left out, started no earlier than since. Fills pids up to max; returns how many there
 * are. root need not live any more. */
size_t proc_descendants(int64_t root, int64_t since, int64_t *pids, size_t max);
void proc_boot_id(char *out, size_t size);

#endif
