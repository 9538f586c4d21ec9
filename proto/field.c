#include "proto/field.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

static char *member(const ProtobufCMessage *message, unsigned offset)
{
    return (char *)(uintptr_t)message + offset;
}

static bool in_oneof(const ProtobufCFieldDescriptor *field)
{
    return field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF;
}

static size_t value_size(ProtobufCType type)
{
    switch (type) {
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_DOUBLE:
        return 8;
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_MESSAGE:
        return sizeof(void *);
    case PROTOBUF_C_TYPE_BYTES:
        return sizeof(ProtobufCBinaryData);
    default:
        return 4;
    }
}

ProtobufCMessage *field_new_message(const ProtobufCMessageDescriptor *descriptor)
{
    ProtobufCMessage *message = calloc(1, descriptor->sizeof_message);
    ASSERT(message);
    descriptor->message_init(message);
    return message;
}

const ProtobufCFieldDescriptor *field_find(const ProtobufCMessageDescriptor *descriptor,
                                           const char *name, size_t len)
{
    for (unsigned i = 0; i < descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &descriptor->fields[i];
        if (strlen(field->name) == len && memcmp(field->name, name, len) == 0) {
            return field;
        }
    }
    return NULL;
}

static bool pointer_is_set(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field)
{
    const void *value = *(void **)(void *)member(message, field->offset);
    return value != NULL && value != field->default_value;
}

bool field_is_set(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field)
{
    if (field->label == PROTOBUF_C_LABEL_REPEATED) {
        return field_count(message, field) > 0;
    }
    if (in_oneof(field) &&
        *(uint32_t *)(void *)member(message, field->quantifier_offset) != field->id) {
        return false;
    }
    if (field->type == PROTOBUF_C_TYPE_STRING || field->type == PROTOBUF_C_TYPE_MESSAGE) {
        return pointer_is_set(message, field);
    }
    if (in_oneof(field) || field->label == PROTOBUF_C_LABEL_REQUIRED) {
        return true;
    }
    return *(protobuf_c_boolean *)(void *)member(message, field->quantifier_offset);
}

size_t field_count(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field)
{
    if (field->label == PROTOBUF_C_LABEL_REPEATED) {
        return *(size_t *)(void *)member(message, field->quantifier_offset);
    }
    return field_is_set(message, field);
}

const void *field_at(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field,
                     size_t i)
{
    ASSERT(i < field_count(message, field));
    char *at = member(message, field->offset);
    if (field->label == PROTOBUF_C_LABEL_REPEATED) {
        at = *(char **)(void *)at + i * value_size(field->type);
    }
    return at;
}

ProtobufCMessage *field_message(const ProtobufCMessage *message,
                                const ProtobufCFieldDescriptor *field, size_t i)
{
    ASSERT(field->type == PROTOBUF_C_TYPE_MESSAGE);
    return *(ProtobufCMessage *const *)field_at(message, field, i);
}

/* Frees what a value owns, not its place. */
static void release(const ProtobufCFieldDescriptor *field, void *at)
{
    if (field->type == PROTOBUF_C_TYPE_STRING) {
        char *text = *(char **)at;
        if (text != field->default_value) {
            free(text);
        }
    } else if (field->type == PROTOBUF_C_TYPE_BYTES) {
        const ProtobufCBinaryData *fallback = field->default_value;
        ProtobufCBinaryData *bytes = at;
        if (!fallback || bytes->data != fallback->data) {
            free(bytes->data);
        }
    } else if (field->type == PROTOBUF_C_TYPE_MESSAGE && *(ProtobufCMessage **)at) {
        protobuf_c_message_free_unpacked(*(ProtobufCMessage **)at, NULL);
    }
}

static void clear_repeated(ProtobufCMessage *message, const ProtobufCFieldDescriptor *field)
{
    size_t *count = (void *)member(message, field->quantifier_offset);
    char **array = (void *)member(message, field->offset);
    for (size_t i = 0; i < *count; i++) {
        release(field, *array + i * value_size(field->type));
    }
    free(*array);
    *array = NULL;
    *count = 0;
}

void field_clear(ProtobufCMessage *message, const ProtobufCFieldDescriptor *field)
{
    if (field->label == PROTOBUF_C_LABEL_REPEATED) {
        clear_repeated(message, field);
        return;
    }
    char *at = member(message, field->offset);
    if (in_oneof(field)) {
        uint32_t *which = (void *)member(message, field->quantifier_offset);
        if (*which != field->id) {
            return;
        }
        *which = 0;
    } else if (field->type != PROTOBUF_C_TYPE_STRING && field->type != PROTOBUF_C_TYPE_MESSAGE &&
               field->label == PROTOBUF_C_LABEL_OPTIONAL) {
        *(protobuf_c_boolean *)(void *)member(message, field->quantifier_offset) = 0;
    }
    release(field, at);
    memset(at, 0, value_size(field->type));
    if (field->type == PROTOBUF_C_TYPE_STRING) {
        *(const void **)(void *)at = field->default_value;
    } else if (field->default_value) {
        memcpy(at, field->default_value, value_size(field->type));
    }
}

static void *add_repeated(ProtobufCMessage *message, const ProtobufCFieldDescriptor *field)
{
    size_t *count = (void *)member(message, field->quantifier_offset);
    char **array = (void *)member(message, field->offset);
    size_t size = value_size(field->type);
    /* Doubled: one at a time, a long list is quadratic where realloc copies. An array that came
     * from elsewhere has just its own size, so the count alone doesn't tell the room. */
    if (malloc_usable_size(*array) < (*count + 1) * size) {
        char *grown = realloc(*array, (*count < 4 ? 4 : 2 * *count) * size);
        ASSERT(grown);
        *array = grown;
    }
    char *at = *array + *count * size;
    memset(at, 0, size);
    (*count)++;
    return at;
}

static void clear_oneof(ProtobufCMessage *message, unsigned quantifier_offset)
{
    const ProtobufCMessageDescriptor *descriptor = message->descriptor;
    for (unsigned i = 0; i < descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &descriptor->fields[i];
        if (in_oneof(field) && field->quantifier_offset == quantifier_offset) {
            field_clear(message, field);
        }
    }
}

void *field_add(ProtobufCMessage *message, const ProtobufCFieldDescriptor *field)
{
    if (field->label == PROTOBUF_C_LABEL_REPEATED) {
        return add_repeated(message, field);
    }
    char *at = member(message, field->offset);
    if (in_oneof(field)) {
        clear_oneof(message, field->quantifier_offset);
        *(uint32_t *)(void *)member(message, field->quantifier_offset) = field->id;
    } else {
        field_clear(message, field);
        if (field->type != PROTOBUF_C_TYPE_STRING && field->type != PROTOBUF_C_TYPE_MESSAGE &&
            field->label == PROTOBUF_C_LABEL_OPTIONAL) {
            *(protobuf_c_boolean *)(void *)member(message, field->quantifier_offset) = 1;
        }
    }
    memset(at, 0, value_size(field->type));
    return at;
}

ProtobufCMessage *field_add_message(ProtobufCMessage *message,
                                    const ProtobufCFieldDescriptor *field)
{
    ASSERT(field->type == PROTOBUF_C_TYPE_MESSAGE);
    ProtobufCMessage *added = field_new_message(field->descriptor);
    *(ProtobufCMessage **)field_add(message, field) = added;
    return added;
}

void field_fill_default(ProtobufCMessage *message, const ProtobufCFieldDescriptor *field)
{
    if (!field->default_value || field->label != PROTOBUF_C_LABEL_OPTIONAL ||
        field_is_set(message, field)) {
        return;
    }
    ASSERT(field->type != PROTOBUF_C_TYPE_BYTES);
    void *at = field_add(message, field);
    if (field->type == PROTOBUF_C_TYPE_STRING) {
        *(char **)at = strdup(field->default_value);
        ASSERT(*(char **)at);
    } else {
        memcpy(at, field->default_value, value_size(field->type));
    }
}

bool field_is_choice(const ProtobufCMessageDescriptor *descriptor)
{
    unsigned num_messages = 0;
    for (unsigned i = 0; i < descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &descriptor->fields[i];
        if (!in_oneof(field) ||
            field->quantifier_offset != descriptor->fields[0].quantifier_offset) {
            return false;
        }
        num_messages += field->type == PROTOBUF_C_TYPE_MESSAGE;
    }
    return descriptor->n_fields > 0 && num_messages <= 1 &&
           descriptor->n_fields - num_messages <= 1;
}

const ProtobufCFieldDescriptor *field_choice_member(const ProtobufCMessageDescriptor *descriptor,
                                                    bool message)
{
    for (unsigned i = 0; i < descriptor->n_fields; i++) {
        if ((descriptor->fields[i].type == PROTOBUF_C_TYPE_MESSAGE) == message) {
            return &descriptor->fields[i];
        }
    }
    return NULL;
}

const ProtobufCFieldDescriptor *field_chosen(const ProtobufCMessage *message)
{
    for (unsigned i = 0; i < message->descriptor->n_fields; i++) {
        if (field_is_set(message, &message->descriptor->fields[i])) {
            return &message->descriptor->fields[i];
        }
    }
    return NULL;
}

bool field_type_is_int(ProtobufCType type)
{
    return type != PROTOBUF_C_TYPE_FLOAT && type != PROTOBUF_C_TYPE_DOUBLE &&
           type != PROTOBUF_C_TYPE_STRING && type != PROTOBUF_C_TYPE_BYTES &&
           type != PROTOBUF_C_TYPE_MESSAGE;
}

bool field_type_is_unsigned(ProtobufCType type)
{
    return type == PROTOBUF_C_TYPE_UINT32 || type == PROTOBUF_C_TYPE_FIXED32 ||
           type == PROTOBUF_C_TYPE_UINT64 || type == PROTOBUF_C_TYPE_FIXED64;
}

int64_t field_int(ProtobufCType type, const void *at)
{
    ASSERT(field_type_is_int(type));
    if (value_size(type) == 8) {
        return *(const int64_t *)at;
    }
    if (field_type_is_unsigned(type)) {
        return *(const uint32_t *)at;
    }
    return *(const int32_t *)at;
}

double field_real(ProtobufCType type, const void *at)
{
    if (type == PROTOBUF_C_TYPE_FLOAT) {
        return (double)*(const float *)at;
    }
    ASSERT(type == PROTOBUF_C_TYPE_DOUBLE);
    return *(const double *)at;
}
