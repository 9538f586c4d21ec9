/* What must reach the controller, on disk: an attempt's numbered reports, appended by tandem-node
 * before they are sent, read by tandemd where tandem-node died with some of them unheard. A folder
 * of segments, each a head and records; a segment whose records have all been acknowledged is
 * removed.
 *
 *   head    "TNDMJRNL", version, attempt, job id, segment, CRC-32C of these        (32 bytes)
 *   record  length, CRC-32C of number and body, number, body: a packed WorkerUp    (16 + length)
 *
 * All numbers little-endian. Numbers of records only grow. Whoever reads stops at the first record
 * that isn't whole: a process that was killed, a machine that lost its power and a bad disk leave
 * such ends. */
#ifndef TANDEM_PROTO_JOURNAL_H
#define TANDEM_PROTO_JOURNAL_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"

#define JOURNAL_VERSION 1
/* A rank's message is at most 4 MiB. */
#define JOURNAL_BODY_MAX ((size_t)5 << 20)
#define JOURNAL_HEAD_BYTES 32
#define JOURNAL_RECORD_BYTES 16
/* A writer begins the next segment beyond this. */
#define JOURNAL_SEGMENT_BYTES ((size_t)4 << 20)
#define JOURNAL_FILE_MAX (JOURNAL_SEGMENT_BYTES + 2 * JOURNAL_BODY_MAX)
#define JOURNAL_SEGMENTS_MAX 4096
/* Of all segments of an attempt. */
#define JOURNAL_BYTES_MAX ((int64_t)1 << 30)
/* The folder, below logs/attempt-A. */
#define JOURNAL_FOLDER "reports"

struct journal_head {
    int64_t job_id;
    int32_t attempt;
    int32_t segment; /* from 1 */
};

struct journal_record {
    int64_t seq;
    const uint8_t *body; /* in the text that was read */
    size_t len;
};

/* ---- bytes ---- */
void journal_put_head(struct buf *out, const struct journal_head *head);
/* len: at most JOURNAL_BODY_MAX; seq: from 1. */
void journal_put_record(struct buf *out, int64_t seq, const void *body, size_t len);
/* -1: no head, one of another format, or damaged. */
int journal_take_head(const void *data, size_t len, struct journal_head *out, struct error *err);
/* The record at *at, which moves behind it. 1: out; 0: the end, after a whole record; -1: what
 * stands there is torn or damaged, *at stays. */
int journal_take_record(const void *data, size_t len, size_t *at, struct journal_record *out,
                        struct error *err);

/* ---- files ---- */
#define JOURNAL_NAME_MAX 24
void journal_name(char out[JOURNAL_NAME_MAX], int32_t segment);
/* The segments in an open folder, ascending; *out is the caller's. Other files are passed over. */
int journal_list(int dir_fd, int32_t **out, size_t *num, struct error *err);
/* A whole segment, head checked against want; *out is the caller's. Follows no link. */
int journal_read(int dir_fd, const struct journal_head *want, char **out, size_t *len,
                 struct error *err);

#endif
