/* The stream to the controller, kept up by two threads of its own: one opens it, listens, and opens
 * it again after a pause when it breaks; one sends what the outbox holds. Acknowledgements and the
 * lease are dealt with here; commands go to the owner's mailbox. */
#ifndef TANDEM_RUNTIME_NODE_ATTACH_H
#define TANDEM_RUNTIME_NODE_ATTACH_H

#include <stdint.h>

#include "base/error.h"
#include "base/mailbox.h"
#include "proto/names.h"
#include "runtime/node/outbox.h"

/* Until the controller has said another. */
#define ATTACH_FIRST_LEASE_MS ((int64_t)30 * 60 * 1000)

struct attach;

/* What is posted; the receiver frees it with attach_event_free. */
struct attach_event {
    struct mailbox_node node;
    WorkerDown *command; /* owned; NULL: the controller refuses the attempt, for ever */
    char refusal[512];
};
void attach_event_free(struct attach_event *e);

/* Everything is borrowed and must live until attach_stop. The mailbox is also woken after each
 * acknowledgement. */
int attach_start(struct attach **out, const LaunchTicket *ticket, struct outbox *outbox,
                 struct mailbox *owner, struct error *err);
/* Ends the stream and both threads. */
void attach_stop(struct attach *a);

/* How long the attempt may go on without a word from the controller. */
int64_t attach_lease_left_ms(struct attach *a);

#endif
