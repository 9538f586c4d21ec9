/* The health of the GPUs that an attempt runs on, and where its ranks run beside them. A process of
 * its own (tandem-probe --watch) asks the driver's library, so that one that crashes or hangs costs
 * no rank. There is none for attempts on CPUs.
 *
 * Same thread as the gang, whose reaping sees the end of that process as well. */
#ifndef TANDEM_RUNTIME_NODE_HEALTH_H
#define TANDEM_RUNTIME_NODE_HEALTH_H

#include <stdbool.h>
#include <sys/types.h>

#include "proto/names.h"
#include "runtime/node/pin.h"

struct health;

struct health_options {
    const char *bin_dir; /* borrowed */
    const Plan *plan;    /* borrowed for health_start only */
    /* Something about a device of the attempt (borrowed; node is set). */
    void (*on_event)(void *arg, const DeviceEvent *e);
    /* What can't be looked at. */
    void (*on_note)(void *arg, const char *words);
    void *arg;
    int64_t found_ms;      /* to wait for what the driver says of the host; 0 = 10 s */
    int64_t again_ms;      /* from the watch's unexpected end to its next start; 0 = 30 s */
    int64_t last_words_ms; /* for it to say the rest when the gang is gone; 0 = 2.5 s */
};

/* NULL: the plan has no GPUs. Else waits some seconds for what the driver has to say of this host,
 * where ranks are pinned by it. */
struct health *health_start(const struct health_options *options);
void health_free(struct health *h);

/* By rank; words of each are in the log. */
const struct pin *health_pins(const struct health *h);

/* To poll for reading; -1: nothing comes any more. h may be NULL. */
int health_fd(const struct health *h);
void health_take(struct health *h);
/* A child of this process is gone that isn't a rank. A watch that ended by itself is started again,
 * some times. */
void health_gone(struct health *h, pid_t pid, int status);
/* What is due; to be called every second or so. */
void health_tick(struct health *h);

/* The ranks are gone: ends the watch. failed: first hears, for a second or two, what is on its way.
 */
void health_finish(struct health *h, bool failed);
/* "GPU 3 of n1 (rank 2): XID 79: GPU has fallen off the bus; ": a fault of the last half minute,
 * which may be why they died; "" = there was none. Lives as long as h. */
const char *health_cause(struct health *h);

#endif
