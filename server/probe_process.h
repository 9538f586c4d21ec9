/* One run of tandem-probe: a request in, a reply out, under a deadline. */
#ifndef TANDEM_SERVER_PROBE_PROCESS_H
#define TANDEM_SERVER_PROBE_PROCESS_H

#include <sys/types.h>

#include "base/error.h"
#include "proto/names.h"

#define PROBE_DEADLINE_MS 60000
/* Probes that were killed and hang in a filesystem all the same; no more are started then. */
#define PROBE_STUCK_MAX 16

struct probe_process {
    const char *program; /* borrowed */
    const char *spawner; /* tandem-spawn, for requests of another user; borrowed */
    char *const *env;    /* borrowed */
    int stop_fd;         /* readable: give up at once; borrowed */
    pid_t stuck[PROBE_STUCK_MAX];
    int num_stuck;
};

/* *out: msg_free; a reply that refuses becomes err, with the probe's code and words. Returns within
 * the deadline and a bit, also when the probe can't be killed. */
int probe_process_run(struct probe_process *p, const ProbeRequest *request, ProbeReply **out,
                      struct error *err);

#endif
