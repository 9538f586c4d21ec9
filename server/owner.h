/* The owner thread: a loop around controller_step. */
#ifndef TANDEM_SERVER_OWNER_H
#define TANDEM_SERVER_OWNER_H

#include "server/controller.h"

struct owner;

/* c is open; nobody else touches it until owner_free, but for its mailbox. */
int owner_new(struct owner **out, struct controller *c, struct error *err);
/* Commits what is in hand and ends the thread. */
void owner_free(struct owner *o);

#endif
