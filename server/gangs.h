/* Processes of attempts of a data folder, whether a database knows them or not: by the mark that
 * the launcher leaves in their environment. */
#ifndef TANDEM_SERVER_GANGS_H
#define TANDEM_SERVER_GANGS_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* Of this user, on this host. Fills pids up to max; returns how many there are. */
size_t gangs_find(const char *data_dir, int64_t *pids, size_t max);
/* Kills them all and waits until they are gone; *num: how many there were. -1: one won't go, or a
 * gang runs as another user that owns a job's folder here (run_as): whose it is can't be seen. */
int gangs_stop(const char *data_dir, size_t *num, struct error *err);

#endif
