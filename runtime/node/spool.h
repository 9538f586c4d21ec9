/* The journal of reports (proto/journal.h) as tandem-node writes it: a folder of segments; records
 * are appended, read back in order, and dropped from the front. Its bounds are its owner's.
 *
 * One thread appends, reads and drops; spool_sync may run on another at the same time. */
#ifndef TANDEM_RUNTIME_NODE_SPOOL_H
#define TANDEM_RUNTIME_NODE_SPOOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"
#include "proto/journal.h"

struct spool;

struct spool_options {
    const char *dir; /* made when it is first needed; copied */
    int64_t job_id;
    int32_t attempt;
    int64_t max_bytes;    /* of all segments; beyond it appending fails */
    size_t segment_bytes; /* 0 = JOURNAL_SEGMENT_BYTES */
};

int spool_new(struct spool **out, const struct spool_options *options, struct error *err);
/* Leaves the files. */
void spool_free(struct spool *s);
/* Removes segments and folder, the spool's last act. */
void spool_remove(struct spool *s);

/* Records as journal_put_record makes them, up to number last_seq: all of them or none. At most
 * JOURNAL_BODY_MAX in all, or one record. */
int spool_append(struct spool *s, const struct buf *records, int64_t last_seq, struct error *err);
/* Calls fn for the records after after_seq, in order, until it returns false or there are no more.
 * -1: one isn't there or is damaged. */
int spool_read(struct spool *s, int64_t after_seq,
               bool (*fn)(void *arg, const struct journal_record *record), void *arg,
               struct error *err);
/* Nothing up to seq is needed any more. */
void spool_drop(struct spool *s, int64_t seq);

/* What was appended before is on the disk afterwards. */
int spool_sync(struct spool *s, struct error *err);

#endif
