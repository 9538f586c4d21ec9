/* How an attempt gets onto hosts. Called on the launch thread from committed intents; nothing here
 * waits for a process to do something.
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
    char user[33]; /* whose processes they are; "" = tandemd's own */
    int64_t job_id;
    int32_t attempt;
    int64_t pid;
    int64_t start_time; /* ticks since boot: /proc/PID/stat, field 22 */
    char boot_id[48];
};

enum launch_presence {
    LAUNCH_GONE,    /* nothing: zombies don't count */
    LAUNCH_ALIVE,   /* tandem-node itself lives */
    LAUNCH_REMAINS, /* it is gone, something that it started isn't */
};

struct launch_left {
    int64_t pid;
    char name[32]; /* as the kernel has it, made printable */
    char state;    /* R S D ... */
    int64_t num;
};

struct launcher {
    const char *name;
    /* Starts tandem-node. Its stdout and stderr go to log_path, whose folder is made if need be.
     * *ticket_fd: the writing end of its descriptor 3; the caller writes the packed LaunchTicket
     * and closes it. out->user says whose it is to be; the rest of *out is filled. */
    int (*start)(struct launcher *l, int64_t job_id, int32_t attempt, const char *log_path,
                 struct launch_handle *out, int *ticket_fd, struct error *err);
    /* Sends KILL to it and to every descendant. Whether they went is for look to say. */
    void (*kill)(struct launcher *l, const struct launch_handle *h);
    /* What is there of it. left: one of those that are there, and how many; may be NULL. */
    enum launch_presence (*look)(struct launcher *l, const struct launch_handle *h,
                                 struct launch_left *left);
    void (*free)(struct launcher *l);
};

/* posix_spawn on this host. bin_dir: where tandem-node and tandem-spawn are; borrowed. data_dir:
 * tells our processes from those of another tandemd of the same user. */
int launcher_local_new(struct launcher **out, const char *bin_dir, const char *data_dir,
                       struct error *err);

#endif
