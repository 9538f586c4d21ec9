/* YAML or JSON text <-> any message, by protobuf-c's descriptors. Job files, cluster files, the
 * controller's config and -o json all go through here.
 *
 * Reading: an unknown key, a wrong type, a number out of range or a duplicate key is an error with
 * file, line, column and the nearest name. Depth, size and number of nodes are bounded. A YAML
 * plain scalar fits a string field as it is written; a plain null, ~ or nothing is an absent field.
 * A message that is one oneof of a scalar and a message (ParallelChoice; see field_is_choice) is
 * flattened: in the file stands the word, the number or the mapping itself. Enums are words without
 * their common prefix (JOB_QUEUED is "QUEUED"), read in either case; so are the names that some
 * whole numbers have (text_names). Bytes are base64. Anchors, aliases, tags, .inf and .nan are
 * refused.
 *
 * Writing: set fields only (has_, non-NULL, non-empty), in descriptor order; doubles with %.17g,
 * shortened where that gives the same number, nan and inf as null; int64 as numbers. */
#ifndef TANDEM_PROTO_TEXT_H
#define TANDEM_PROTO_TEXT_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/error.h"

#define TEXT_MAX_BYTES ((size_t)4 << 20)

/* *out: freed by protobuf_c_message_free_unpacked(out, NULL). file: for messages. JSON is YAML
 * here. */
int text_parse(const char *file, const char *text, size_t len,
               const ProtobufCMessageDescriptor *descriptor, ProtobufCMessage **out,
               struct error *err);

/* The line, from 1, on which a field of such a text stands, by its dotted path ("tls.key_file",
 * "listen.0"); where it is absent, the line of what would hold it; 0 = nothing of it is there. */
size_t text_locate(const char *text, size_t len, const char *path);
/* The same with the column, from 1; false: nothing of it is there. */
bool text_place(const char *text, size_t len, const char *path, size_t *line, size_t *column);

/* Sets one field by its dotted path: "training.steps", "data.train.0.path" (an index may be one
 * past the end); value is YAML, for a text field the word as it stands; null clears. For --set. */
int text_set(ProtobufCMessage *message, const char *path, const char *value, struct error *err);

/* The word of an enum's number without the common prefix; NULL: unknown number. */
const char *text_enum_word(const ProtobufCEnumDescriptor *descriptor, int number);

/* The names that a whole number may be written as; NULL: none. Writing gives the number. */
const ProtobufCEnumDescriptor *text_names(const ProtobufCFieldDescriptor *field);

/* Is the field at a dotted path set (present)? Unknown path: false. */
bool text_is_set(const ProtobufCMessage *message, const char *path);

/* indent: spaces a level; 0 = one line. */
void text_to_json(struct buf *out, const ProtobufCMessage *message, int indent);
void text_to_yaml(struct buf *out, const ProtobufCMessage *message);

/* Every string of a message and below: valid UTF-8, no control characters but tab and newline, at
 * most max_len bytes. Enums: known numbers. For what comes off the wire. */
int text_check_message(const ProtobufCMessage *message, size_t max_len, struct error *err);

/* Unpacks with a cap on the memory it may take (ERR_INVALID_ARGUMENT: malformed or over it), then
 * checks strings and enums. */
int text_unpack(const ProtobufCMessageDescriptor *descriptor, const void *data, size_t len,
                size_t max_bytes, ProtobufCMessage **out, struct error *err);

/* A deep copy. */
ProtobufCMessage *text_clone(const ProtobufCMessage *message);

/* Distance-wise nearest of names, or NULL if none is near. names ends with NULL. */
const char *text_nearest(const char *word, const char *const *names);

#endif
