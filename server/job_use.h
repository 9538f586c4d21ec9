/* What a job had of the devices and how long it waited, from its attempts in the database. */
#ifndef TANDEM_SERVER_JOB_USE_H
#define TANDEM_SERVER_JOB_USE_H

#include "server/store/store.h"

/* Attempts of a job that are shown; the first are left out. */
#define JOB_USE_ATTEMPTS_MAX 200

/* Fills device_seconds, wait_s, borrowed; with_attempts: the list of these too, the mesh, and the
 * names of devices by rank while it holds them. */
int job_use_add(struct store *s, const struct job_row *row, int64_t now_us, bool with_attempts,
                Job *out, struct error *err);

#endif
