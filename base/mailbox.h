/* A queue from many threads to one: how threads of the controller talk. Bounded by its users (a
 * sender holds what it posts); posting never blocks. The receiver can wait on it, or poll its
 * descriptor together with others. */
#ifndef TANDEM_BASE_MAILBOX_H
#define TANDEM_BASE_MAILBOX_H

#include <stdint.h>

/* Embedded in what is posted. */
struct mailbox_node {
    struct mailbox_node *next;
};

struct mailbox;

int mailbox_new(struct mailbox **out);
/* The nodes still inside are not freed. */
void mailbox_free(struct mailbox *m);
/* Any thread. Order is kept per sender. */
void mailbox_post(struct mailbox *m, struct mailbox_node *node);
/* All that is there, oldest first, as a chain; NULL = nothing. Waits up to timeout_ms for the
 * first (0 = don't wait, -1 = for ever) or until mailbox_wake. May come back early with nothing,
 * where an earlier call has taken what the wake was for. */
struct mailbox_node *mailbox_take(struct mailbox *m, int64_t timeout_ms);
/* Lets a waiting mailbox_take return, with nothing perhaps. */
void mailbox_wake(struct mailbox *m);
/* Readable while something is there (an eventfd; owned by the mailbox). */
int mailbox_fd(const struct mailbox *m);

#endif
