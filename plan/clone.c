#include "plan/clone.h"

#include <stdlib.h>

#include "base/error.h"

void *clone_message(const ProtobufCMessage *message)
{
    size_t len = protobuf_c_message_get_packed_size(message);
    uint8_t *bytes = malloc(len ? len : 1);
    ASSERT(bytes);
    protobuf_c_message_pack(message, bytes);
    ProtobufCMessage *copy = protobuf_c_message_unpack(message->descriptor, NULL, len, bytes);
    ASSERT(copy);
    free(bytes);
    return copy;
}
