/* What goes up to the controller. Everything that must arrive gets a number and is written to the
 * attempt's journal before it can be sent; it stays until the controller has acknowledged it,
 * through any number of broken streams, and the journal outlives this process. Memory holds a
 * window of it, the rest is read back as it is needed: a controller that is away for hours costs
 * disk. What may be lost is kept as the latest only (progress of each rank).
 *
 * Where the journal can't be written (a full disk), reports are kept in memory and sent as they
 * are; outbox_is_full says when to stop listening to the ranks. They go to disk once that is
 * possible.
 *
 * One thread puts, one takes, one acknowledges; two of its own write and sync the journal
 * (outbox_disk.c), so that none of the others ever waits for a disk. */
#ifndef TANDEM_RUNTIME_NODE_OUTBOX_H
#define TANDEM_RUNTIME_NODE_OUTBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "proto/names.h"

struct outbox;

struct outbox_options {
    int64_t job_id;
    int32_t attempt;
    size_t max_bytes;     /* of memory, where the disk takes nothing; then it is full */
    size_t window_bytes;  /* of memory otherwise */
    const char *dir;      /* of the journal; NULL = none */
    int64_t disk_bytes;   /* of the journal; beyond it memory fills */
    size_t segment_bytes; /* 0 = JOURNAL_SEGMENT_BYTES */
    /* Something has changed that the owner may wait for: room, where outbox_is_full has said that
     * there is none; an end. Any thread; may be NULL. Must not call back. */
    void (*wake)(void *arg);
    void *arg;
};

int outbox_new(struct outbox **out, const struct outbox_options *options, struct error *err);
/* Writes what isn't written. A journal whose records have all been acknowledged is removed, another
 * stays for the controller to read. */
void outbox_free(struct outbox *o);

/* Numbers the message and keeps a copy of it. Sets job_id, attempt and seq in it. */
void outbox_put(struct outbox *o, WorkerUp *message);
/* Replaces what this rank's latest progress was, if it hasn't gone yet. */
void outbox_put_progress(struct outbox *o, const Progress *progress);
/* An id for communicators: a secret, so it has no number and never lies on disk. It goes on every
 * stream anew until outbox_comm_id_heard. */
void outbox_put_comm_id(struct outbox *o, const CommId *id);
void outbox_comm_id_heard(struct outbox *o);
/* For the job's events; arrives like any other report. */
void outbox_put_note(struct outbox *o, const char *text);

/* Over its bound. */
bool outbox_is_full(struct outbox *o);
/* Nothing waits for an acknowledgement. */
bool outbox_is_settled(struct outbox *o);
/* Reports that were only on disk can't be read back: the attempt can't be told to its end. why: in
 * words. */
bool outbox_is_broken(struct outbox *o, char *why, size_t size);
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
