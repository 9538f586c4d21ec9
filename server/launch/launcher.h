/* How an attempt gets onto hosts. Blocking; called on the launch thread from committed intents.
 *
 * A launch has two steps, so that no gang can run that the database doesn't know: start gives a
 * process without its ticket; once its handle is committed, the ticket is written to ticket_fd. A
 * tandem-node whose descriptor 3 ends without a whole ticket leaves at once. */
#ifndef TANDEM_SERVER_LAUNCH_LAUNCHER_H
#define TANDEM_SERVER_LAUNCH_LAUNCHER_H

#include <stdint.h>

#include "base/error.h"
#include "proto/names.h"

/* A started tandem-node. start_time and boot_id tell a reused pid from the same process. */
struct launch_handle {
    int64_t pid;
    int64_t start_time; /* ticks since boot: /proc/PID/stat, field 22 */
    char boot_id[48];
};

struct launcher {
    const char *name;
    /* Starts tandem-node. Its stdout and stderr go to log_path (its folder exists). *ticket_fd: the
     * writing end of its descriptor 3; the caller writes the packed LaunchTicket and closes it. */
    int (*start)(struct launcher *l, int64_t job_id, int32_t attempt, const char *log_path,
                 struct launch_handle *out, int *ticket_fd, struct error *err);
    /* Kills it and every descendant; returns when they are gone, or -1 after timeout_ms. */
    int (*kill)(struct launcher *l, const struct launch_handle *h, int64_t timeout_ms,
                struct error *err);
    /* 1: it or one of its descendants is alive; 0: all are gone. */
    int (*alive)(struct launcher *l, const struct launch_handle *h);
    void (*free)(struct launcher *l);
};

/* posix_spawn on this host; bin_dir: where tandem-node is. */
int launcher_local_new(struct launcher **out, const char *bin_dir, struct error *err);

#endif
