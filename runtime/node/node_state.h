/* tandem-node's attempt, as node*.c know it (private to those). node.c has the loop, node_reports.c
 * what ranks and devices say on its way up, node_commands.c what the controller says. */
#ifndef TANDEM_RUNTIME_NODE_NODE_STATE_H
#define TANDEM_RUNTIME_NODE_NODE_STATE_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/mailbox.h"
#include "proto/names.h"
#include "runtime/node/attach.h"
#include "runtime/node/gang.h"
#include "runtime/node/health.h"
#include "runtime/node/outbox.h"

#define NODE_OWN_FDS 3 /* of fds; the gang's come behind them */

struct node {
    const LaunchTicket *ticket; /* borrowed */
    struct outbox *outbox;
    struct mailbox *mailbox;
    struct attach *attach;
    struct gang *gang;     /* NULL until Start */
    struct health *health; /* NULL: no GPUs */
    struct pollfd *fds;
    int signal_fd;
    int64_t stop_at_step; /* asked for before the gang ran; -1 = not */
    bool cancelled;
    bool has_comm_id, gave_comm_id; /* rank 0 has said one; the ranks were given one */
    bool ended;                     /* AttemptEnd is in the outbox, or nobody wants it */
    int64_t leave_by_ms; /* told to stop: whether or not anybody hears the end; 0 = not told */
    bool abandoned;      /* refused, or the lease is over: nobody listens any more */
    MemoryUse memory;    /* of the rank that takes most, so far */
    int32_t memory_rank;
    int32_t num_ranks;
    int32_t num_measured; /* ranks that have told theirs behind the first step */
    char reason[512];
};

/* ---- node_reports.c ---- */

/* The gang's and the health watch's callbacks; arg: the node. */
void node_on_up(void *arg, int32_t rank, const RankUp *message);
void node_on_exit(void *arg, const RankExit *gone);
void node_on_device_event(void *arg, const DeviceEvent *e);
void node_on_device_note(void *arg, const char *words);
/* Has this id of communicators a size that one can have? */
bool node_is_usable_id(const CommId *id);
/* Into the outbox: the attempt is over. */
void node_put_end(struct node *n, AttemptEnd *end);
/* It ends without a gang that could say how. */
void node_end_early(struct node *n, const char *why, bool retryable);

/* ---- node_commands.c ---- */

/* Does what the controller has said since the last call. */
void node_take_mail(struct node *n);
/* Stops the gang; without one the attempt ends here. */
void node_stop(struct node *n, int64_t grace_ms, const char *reason);
/* The controller won't have it, or can't be heard: the ranks must not go on. */
void node_abandon(struct node *n, const char *why);

#endif
