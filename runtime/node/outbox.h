/* What goes up to the controller. Everything that must arrive gets a number and stays here until
 * the controller has acknowledged it, through any number of broken streams. What may be lost is
 * kept as the latest only (progress of each rank, one note).
 *
 * One thread puts, one takes, one acknowledges. Memory is bounded by its user: outbox_is_full says
 * when to stop listening to the ranks. */
#ifndef TANDEM_RUNTIME_NODE_OUTBOX_H
#define TANDEM_RUNTIME_NODE_OUTBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/names.h"

struct outbox;

int outbox_new(struct outbox **out, int64_t job_id, int32_t attempt, size_t max_bytes);
void outbox_free(struct outbox *o);

/* Numbers the message and keeps a copy of it. Sets job_id, attempt and seq in it. */
void outbox_put(struct outbox *o, WorkerUp *message);
/* Replaces what this rank's latest progress was, if it hasn't gone yet. */
void outbox_put_progress(struct outbox *o, const Progress *progress);
void outbox_put_note(struct outbox *o, const char *text);

/* Over its bound. */
bool outbox_is_full(struct outbox *o);
/* Nothing waits for an acknowledgement. */
bool outbox_is_settled(struct outbox *o);
int64_t outbox_acked_seq(struct outbox *o);

/* A new stream: everything that isn't acknowledged goes again, oldest first. */
void outbox_rewind(struct outbox *o);
/* The next message to send, which the caller frees with worker_up__free_unpacked. Waits for one;
 * NULL after outbox_interrupt (until the next rewind). */
WorkerUp *outbox_take(struct outbox *o);
void outbox_interrupt(struct outbox *o);
/* All up to seq have arrived. A number that was never sent counts as the last that was. */
void outbox_ack(struct outbox *o, int64_t seq);

#endif
