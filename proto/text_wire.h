/* What unpacking hides: a string with a NUL inside is cut there. Walks the bytes of a message that
 * protobuf-c has taken. */
#ifndef TANDEM_PROTO_TEXT_WIRE_H
#define TANDEM_PROTO_TEXT_WIRE_H

#include <protobuf-c/protobuf-c.h>
#include <stddef.h>

/* The first string field, here or below, whose bytes hold a NUL; NULL: none. */
const ProtobufCFieldDescriptor *text_wire_nul(const ProtobufCMessageDescriptor *descriptor,
                                              const void *data, size_t len);

#endif
