/* A thread that takes mail and runs it, one piece after the other: how query, feed, probe and
 * launch threads are made. */
#ifndef TANDEM_SERVER_WORKER_H
#define TANDEM_SERVER_WORKER_H

#include <stdint.h>

#include "server/mail.h"

struct worker;

/* Runs mail with owner. A mail whose run fails has its call failed; then it is freed, unless run
 * has kept it by worker_keep. idle: called after each batch and when its time has come; returns
 * milliseconds until it wants to be called again, -1 = with the next mail; may be NULL. */
int worker_new(struct worker **out, const char *name, void *owner, int64_t (*idle)(void *owner),
               struct error *err);
/* Any thread. */
void worker_post(struct worker *w, struct mail *m);
/* On the worker's thread: the mail that is being run isn't freed; its runner has it from now on. */
void worker_keep(struct worker *w, struct mail *m);
/* Lets the piece in hand end, drops the rest, joins. */
void worker_free(struct worker *w);

#endif
