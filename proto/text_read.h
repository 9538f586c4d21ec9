/* From YAML to one field; shared by text_parse and text_set. Private to text_*. */
#ifndef TANDEM_PROTO_TEXT_READ_H
#define TANDEM_PROTO_TEXT_READ_H

#include <protobuf-c/protobuf-c.h>
#include <stddef.h>

#include "base/error.h"

/* Reads text as the value of field into message, which keeps its other fields. Errors begin with
 * path (the field's own) and have no line. A null value leaves the field absent. */
int text_read_field(const char *path, const char *text, size_t len, ProtobufCMessage *message,
                    const ProtobufCFieldDescriptor *field, struct error *err);

#endif
