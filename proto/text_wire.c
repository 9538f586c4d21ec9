#include "proto/text_wire.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* As deep as text_check_message goes; deeper ones are refused there. */
#define MAX_DEPTH 32

enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

static bool take_varint(const uint8_t **p, const uint8_t *end, uint64_t *out)
{
    *out = 0;
    for (unsigned shift = 0; *p < end && shift < 64; shift += 7) {
        uint8_t byte = *(*p)++;
        *out |= (uint64_t)(byte & 0x7F) << shift;
        if (!(byte & 0x80)) {
            return true;
        }
    }
    return false;
}

static const ProtobufCFieldDescriptor *find(const ProtobufCMessageDescriptor *descriptor,
                                            const uint8_t *p, size_t len, int depth)
{
    const uint8_t *end = p + len;
    uint64_t tag, n;
    while (p < end && take_varint(&p, end, &tag)) {
        unsigned wire = tag & 7;
        if (wire == WIRE_VARINT) {
            if (!take_varint(&p, end, &n)) {
                return NULL;
            }
            continue;
        }
        if (wire == WIRE_BYTES) {
            if (!take_varint(&p, end, &n)) {
                return NULL;
            }
        } else if (wire == WIRE_64 || wire == WIRE_32) {
            n = wire == WIRE_64 ? 8 : 4;
        } else {
            return NULL;
        }
        if (n > (uint64_t)(end - p)) {
            return NULL;
        }
        const ProtobufCFieldDescriptor *field =
            tag >> 3 > UINT32_MAX
                ? NULL
                : protobuf_c_message_descriptor_get_field(descriptor, (unsigned)(tag >> 3));
        const ProtobufCFieldDescriptor *found = NULL;
        if (field && wire == WIRE_BYTES && field->type == PROTOBUF_C_TYPE_STRING) {
            found = memchr(p, 0, (size_t)n) ? field : NULL;
        } else if (field && wire == WIRE_BYTES && field->type == PROTOBUF_C_TYPE_MESSAGE &&
                   depth < MAX_DEPTH) {
            found = find(field->descriptor, p, (size_t)n, depth + 1);
        }
        if (found) {
            return found;
        }
        p += n;
    }
    return NULL;
}

const ProtobufCFieldDescriptor *text_wire_nul(const ProtobufCMessageDescriptor *descriptor,
                                              const void *data, size_t len)
{
    return len ? find(descriptor, data, len, 0) : NULL;
}
