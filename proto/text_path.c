/* One field by its dotted path. */
#include "proto/text.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proto/field.h"
#include "proto/number.h"
#include "proto/text_near.h"
#include "proto/text_read.h"
#include "proto/text_scalar.h"

/* Cuts the next segment off a dotted path. */
static bool next_segment(const char **path, const char **segment, size_t *len)
{
    if (!**path) {
        return false;
    }
    *segment = *path;
    *len = strcspn(*path, ".");
    *path += *len + ((*path)[*len] == '.');
    return true;
}

static bool parse_index(const char *segment, size_t len, size_t *out)
{
    int64_t value;
    if (len == 0 || strspn(segment, "0123456789") < len || !number_i64(segment, len, &value)) {
        return false;
    }
    *out = (size_t)value;
    return true;
}

/* ---- is it set ------------------------------------------------------------------------------ */

bool text_is_set(const ProtobufCMessage *message, const char *path)
{
    const char *segment;
    size_t len;
    while (next_segment(&path, &segment, &len)) {
        if (field_is_choice(message->descriptor)) {
            const ProtobufCFieldDescriptor *layout = field_choice_member(message->descriptor, true);
            if (!layout || !field_is_set(message, layout)) {
                return false;
            }
            message = field_message(message, layout, 0);
        }
        const ProtobufCFieldDescriptor *field = field_find(message->descriptor, segment, len);
        if (!field || !field_is_set(message, field)) {
            return false;
        }
        size_t i = 0;
        if (field->label == PROTOBUF_C_LABEL_REPEATED && *path) {
            if (!next_segment(&path, &segment, &len) || !parse_index(segment, len, &i) ||
                i >= field_count(message, field)) {
                return false;
            }
        }
        if (!*path) {
            return true;
        }
        if (field->type != PROTOBUF_C_TYPE_MESSAGE) {
            return false;
        }
        message = field_message(message, field, i);
    }
    return false;
}

/* ---- set ------------------------------------------------------------------------------------ */

static int fail_path(struct error *err, const char *whole, const char *rest, const char *what)
{
    size_t len = (size_t)(rest - whole);
    while (len > 0 && whole[len - 1] == '.') {
        len--;
    }
    char quote[TEXT_QUOTE_MAX];
    text_scalar_quote(quote, whole, len);
    return error_set(err, ERR_INVALID_ARGUMENT, "%.*s: %s", (int)strlen(quote) - 2, quote + 1,
                     what);
}

/* A word for a text field is taken as it stands, unless it is quoted. */
static int set_word(ProtobufCMessage *message, const ProtobufCFieldDescriptor *field,
                    const char *path, const char *value, struct error *err)
{
    struct error what;
    size_t len = strlen(value);
    if (text_scalar_is_null(value, len, false)) {
        return 0;
    }
    if (*value == '"' || *value == '\'') {
        return text_read_field(path, value, len, message, field, err);
    }
    if (text_scalar_read(field, field_add(message, field), value, len, false, &what)) {
        return error_set(err, ERR_INVALID_ARGUMENT, "%s: %s", path, what.text);
    }
    return 0;
}

static int set_value(ProtobufCMessage *message, const ProtobufCFieldDescriptor *field,
                     const char *path, const char *value, struct error *err)
{
    field_clear(message, field);
    if (field->type == PROTOBUF_C_TYPE_STRING && field->label != PROTOBUF_C_LABEL_REPEATED) {
        return set_word(message, field, path, value, err);
    }
    return text_read_field(path, value, strlen(value), message, field, err);
}

/* The singular message that path goes on into; made where it is absent. */
static ProtobufCMessage *enter(ProtobufCMessage *message, const ProtobufCFieldDescriptor *field)
{
    ProtobufCMessage *inner = field_is_set(message, field) ? field_message(message, field, 0)
                                                           : field_add_message(message, field);
    const ProtobufCFieldDescriptor *layout = NULL;
    if (field_is_choice(inner->descriptor)) {
        layout = field_choice_member(inner->descriptor, true);
    }
    return layout ? enter(inner, layout) : inner;
}

/* Element i of a list of messages, one more at most; NULL with an error. */
static ProtobufCMessage *enter_element(ProtobufCMessage *message,
                                       const ProtobufCFieldDescriptor *field, size_t i)
{
    size_t num = field_count(message, field);
    if (i > num) {
        return NULL;
    }
    return i < num ? field_message(message, field, i) : field_add_message(message, field);
}

int text_set(ProtobufCMessage *message, const char *path, const char *value, struct error *err)
{
    const ProtobufCMessageDescriptor *root = message->descriptor;
    const char *whole = path;
    const char *segment;
    size_t len;
    while (next_segment(&path, &segment, &len)) {
        const ProtobufCFieldDescriptor *field = field_find(message->descriptor, segment, len);
        if (!field) {
            struct buf what = {0};
            text_near_unknown(&what, root, message->descriptor, segment, len);
            int rc = fail_path(err, whole, path, what.data);
            buf_free(&what);
            return rc;
        }
        if (!*path) {
            return set_value(message, field, whole, value, err);
        }
        if (field->type != PROTOBUF_C_TYPE_MESSAGE) {
            return fail_path(err, whole, path, "has no fields of its own");
        }
        if (field->label != PROTOBUF_C_LABEL_REPEATED) {
            message = enter(message, field);
            continue;
        }
        size_t i;
        if (!next_segment(&path, &segment, &len) || !parse_index(segment, len, &i)) {
            return fail_path(err, whole, path, "a list: wants an index here, from 0 on");
        }
        message = enter_element(message, field, i);
        if (!message || !*path) {
            return fail_path(err, whole, path,
                             message ? "wants a field behind the index"
                                     : "no such element, and not the next one");
        }
    }
    return error_set(err, ERR_INVALID_ARGUMENT, "a field's path is empty");
}
