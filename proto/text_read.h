/* From YAML to one field; shared by text_parse and text_set. Private to text_*. */
#ifndef TANDEM_PROTO_TEXT_READ_H
#define TANDEM_PROTO_TEXT_READ_H

#include <protobuf-c/protobuf-c.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/error.h"

/* Reads text as the value of field into message, which keeps its other fields. Errors begin with
 * path (the field's own) and have no line. A null value leaves the field absent. */
int text_read_field(const char *path, const char *text, size_t len, ProtobufCMessage *message,
                    const ProtobufCFieldDescriptor *field, struct error *err);

/* What to say of a key that descriptor lacks: unknown field; did you mean ...? Where its name
 * stands nowhere near, the known ones. root: where else a field of that name is looked for. */
void text_read_unknown(struct buf *out, const ProtobufCMessageDescriptor *root,
                       const ProtobufCMessageDescriptor *descriptor, const char *key, size_t len);

#endif
