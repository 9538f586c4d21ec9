/* What comes off the wire: unpacked under a cap, then checked string by string. */
#include "proto/text.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/field.h"
#include "proto/text_scalar.h"
#include "proto/text_wire.h"

/* Deepest nesting of any message; protobuf-c itself has no bound, but our types don't recurse. */
#define MAX_DEPTH 32
#define FIELD_NUMBER_MAX 536870911u

static int check_field(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field,
                       size_t max_len, int depth, struct error *err);

static int check_fields(const ProtobufCMessage *message, size_t max_len, int depth,
                        struct error *err)
{
    if (depth > MAX_DEPTH) {
        return error_set(err, ERR_INVALID_ARGUMENT, ": nested deeper than %d", MAX_DEPTH);
    }
    for (unsigned i = 0; i < message->descriptor->n_fields; i++) {
        if (check_field(message, &message->descriptor->fields[i], max_len, depth, err)) {
            return -1;
        }
    }
    /* Fields of a newer version pass, but protobuf-c also lets numbers through that no version can
     * have, and that it doesn't read back after packing. */
    for (unsigned i = 0; i < message->n_unknown_fields; i++) {
        uint32_t tag = message->unknown_fields[i].tag;
        if (tag == 0 || tag > FIELD_NUMBER_MAX) {
            return error_set(err, ERR_INVALID_ARGUMENT, ": malformed: field number %u", tag);
        }
    }
    return 0;
}

static int check_value(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field,
                       size_t i, size_t max_len, int depth, struct error *err)
{
    const void *at = field_at(message, field, i);
    if (field->type == PROTOBUF_C_TYPE_STRING) {
        const char *text = *(const char *const *)at;
        const char *fault = text_scalar_fault(text, strlen(text), max_len);
        if (fault) {
            return error_set(err, ERR_INVALID_ARGUMENT, ": %s", fault);
        }
    } else if (field->type == PROTOBUF_C_TYPE_ENUM) {
        int number = (int)field_int(field->type, at);
        if (!protobuf_c_enum_descriptor_get_value(field->descriptor, number)) {
            return error_set(err, ERR_INVALID_ARGUMENT, ": unknown value %d", number);
        }
    } else if (field->type == PROTOBUF_C_TYPE_MESSAGE) {
        return check_fields(*(ProtobufCMessage *const *)at, max_len, depth + 1, err);
    }
    return 0;
}

/* Puts the field's part of the dotted path in front of what a value's check said (": fault"). */
static void add_path(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field,
                     size_t i, struct error *err)
{
    if (!err || field_is_choice(message->descriptor)) {
        return;
    }
    char tail[ERROR_TEXT_MAX], idx[24] = "";
    strcpy(tail, err->text);
    if (field->label == PROTOBUF_C_LABEL_REPEATED) {
        snprintf(idx, sizeof idx, ".%zu", i);
    }
    error_set(err, err->code, ".%s%s%s", field->name, idx, tail);
}

static int check_field(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field,
                       size_t max_len, int depth, struct error *err)
{
    size_t num = field_count(message, field);
    for (size_t i = 0; i < num; i++) {
        if (check_value(message, field, i, max_len, depth, err)) {
            add_path(message, field, i, err);
            return -1;
        }
    }
    return 0;
}

int text_check_message(const ProtobufCMessage *message, size_t max_len, struct error *err)
{
    if (check_fields(message, max_len, 0, err) == 0) {
        return 0;
    }
    if (err) {
        /* ".a.b: fault" or ": fault". */
        size_t skip = err->text[0] == '.' ? 1 : 2;
        memmove(err->text, err->text + skip, strlen(err->text) + 1 - skip);
    }
    return -1;
}

/* ---- unpacking under a cap --------------------------------------------------------------------
 */

/* Live bytes are capped by max; all bytes ever asked for by a few times that, because merging a
 * field that is sent again and again copies what is there already each time. */
struct cap {
    size_t live, total, max;
};

#define CAP_TOTAL_FACTOR 4

static void *cap_alloc(void *data, size_t size)
{
    struct cap *cap = data;
    if (size > cap->max || cap->live > cap->max - size ||
        cap->total > CAP_TOTAL_FACTOR * cap->max - size) {
        return NULL;
    }
    void *p = malloc(size ? size : 1);
    if (p) {
        size_t usable = malloc_usable_size(p);
        cap->live += usable;
        cap->total += usable;
    }
    return p;
}

static void cap_free(void *data, void *p)
{
    struct cap *cap = data;
    if (p) {
        cap->live -= malloc_usable_size(p);
        free(p);
    }
}

int text_unpack(const ProtobufCMessageDescriptor *descriptor, const void *data, size_t len,
                size_t max_bytes, ProtobufCMessage **out, struct error *err)
{
    ASSERT(max_bytes <= SIZE_MAX / 8);
    struct cap cap = {.max = max_bytes};
    ProtobufCAllocator allocator = {.alloc = cap_alloc, .free = cap_free, .allocator_data = &cap};
    static const uint8_t nothing[1];
    ProtobufCMessage *message =
        protobuf_c_message_unpack(descriptor, &allocator, len, len ? data : nothing);
    if (!message) {
        return error_set(err, ERR_INVALID_ARGUMENT,
                         "%s of %zu bytes is malformed or takes more than %zu bytes of memory",
                         descriptor->short_name, len, max_bytes);
    }
    const ProtobufCFieldDescriptor *cut = text_wire_nul(descriptor, data, len);
    if (cut) {
        error_set(err, ERR_INVALID_ARGUMENT, "%s: has a NUL byte inside", cut->name);
    }
    if (cut || text_check_message(message, len, err)) {
        protobuf_c_message_free_unpacked(message, NULL);
        return -1;
    }
    *out = message;
    return 0;
}

ProtobufCMessage *text_clone(const ProtobufCMessage *message)
{
    size_t len = protobuf_c_message_get_packed_size(message);
    uint8_t *packed = malloc(len ? len : 1);
    ASSERT(packed);
    protobuf_c_message_pack(message, packed);
    ProtobufCMessage *copy = protobuf_c_message_unpack(message->descriptor, NULL, len, packed);
    ASSERT(copy);
    free(packed);
    return copy;
}
