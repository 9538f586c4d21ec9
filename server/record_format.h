/* The file of what the owner took in (server/record.h), and how it is read.
 *
 *   file   "TNDMREC2", then frames
 *   frame  length, first 4 bytes of the content's SHA-256, content: the items of one step
 *   item   a tag, then its fields: numbers of 8 bytes, little-endian, and texts with such a length
 *
 * A frame that isn't whole ends the file: the server was killed while it wrote. */
#ifndef TANDEM_SERVER_RECORD_FORMAT_H
#define TANDEM_SERVER_RECORD_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

#define RECORD_MAGIC "TNDMREC2"
#define RECORD_FRAME_MAX ((size_t)256 << 20)

enum record_tag {
    /* Mail, before a step: */
    RECORD_OPEN = 'o',    /* head of the file: version, data_dir, topology, limits, scheduler */
    RECORD_REQUEST = 'r', /* call, caller, packed message */
    RECORD_CLOSED = 'c',  /* call */
    RECORD_LAUNCH = 'l',  /* the answer to the nth launch, check or kill */
    RECORD_PROBE = 'p',   /* the answer to the nth probe */
    RECORD_OTHER = 'x',   /* of another kind: takes its place in a batch, and no more */
    /* In the step, in this order: */
    RECORD_MONO = 'm',
    RECORD_WALL = 'w',
    RECORD_BUSY = 'b',
    RECORD_TOKEN = 't', /* the hash; the token is never here */
    RECORD_ALLOWED = 'a',
    RECORD_EXISTS = 'e',
    RECORD_OUT = 'd',
    /* Ends: */
    RECORD_FAILED = 'f', /* the step was not committed: nothing is recorded any more */
    RECORD_FULL = 'u',   /* nor is it beyond a file's size */
    RECORD_STOPPED = 'z',
};

void record_put(struct buf *b, enum record_tag tag);
void record_put_number(struct buf *b, int64_t value);
void record_put_bytes(struct buf *b, const void *data, size_t len);
void record_put_text(struct buf *b, const char *text); /* NULL as "" */
/* Head and check in front of items. */
void record_put_frame(struct buf *out, const struct buf *items);

/* Reading: after anything that isn't there, bad is set and all is 0 or "". */
struct record_reader {
    const uint8_t *data; /* borrowed */
    size_t len, at;
    bool bad;
};
/* Puts the next frame's content into *frame; false: there is no whole one. */
bool record_next_frame(struct record_reader *file, struct record_reader *frame);
/* 0 at the end of a frame. */
int record_take(struct record_reader *r);
int record_peek(const struct record_reader *r);
int64_t record_take_number(struct record_reader *r);
const void *record_take_bytes(struct record_reader *r, size_t *len);
/* Cut to size. */
void record_take_text(struct record_reader *r, char *out, size_t size);

#endif
