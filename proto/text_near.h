/* What is said of a name that isn't known. Private to text_*. */
#ifndef TANDEM_PROTO_TEXT_NEAR_H
#define TANDEM_PROTO_TEXT_NEAR_H

#include <protobuf-c/protobuf-c.h>
#include <stddef.h>

#include "base/buf.h"

/* What to say of a key that descriptor lacks: unknown field; did you mean ...? Where its name
 * stands nowhere near, the known ones. root: where else a field of that name is looked for. */
void text_near_unknown(struct buf *out, const ProtobufCMessageDescriptor *root,
                       const ProtobufCMessageDescriptor *descriptor, const char *key, size_t len);

#endif
