/* Messages as JSON and YAML: one walk, two ways to put what it meets. */
#include "proto/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "proto/field.h"
#include "proto/number.h"
#include "proto/text_scalar.h"

/* ---- scalars -------------------------------------------------------------------------------- */

/* Bytes of a character that JSON allows but YAML readers fold or refuse (line separators, the byte
 * order mark, non-characters), with its code point; 0: none of them. */
static size_t yaml_unsafe(const char *p, unsigned *c)
{
    static const struct {
        const char *bytes;
        unsigned c;
    } all[] = {{"\xe2\x80\xa8", 0x2028},
               {"\xe2\x80\xa9", 0x2029},
               {"\xef\xbb\xbf", 0xfeff},
               {"\xef\xbf\xbe", 0xfffe},
               {"\xef\xbf\xbf", 0xffff}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (strncmp(p, all[i].bytes, 3) == 0) {
            *c = all[i].c;
            return 3;
        }
    }
    return 0;
}

/* Always a valid JSON string, which is a valid YAML one too. */
static void put_string(struct buf *out, const char *text)
{
    size_t len = strlen(text);
    bool clean = text_scalar_fault(text, len, len) == NULL;
    buf_putc(out, '"');
    for (const char *p = text; *p; p++) {
        unsigned char c = (unsigned char)*p;
        unsigned escaped;
        size_t skip = c >= 0x80 && clean ? yaml_unsafe(p, &escaped) : 0;
        if (skip) {
            buf_printf(out, "\\u%04x", escaped);
            p += skip - 1;
        } else if (c == '"' || c == '\\') {
            buf_printf(out, "\\%c", c);
        } else if (c == '\n') {
            buf_puts(out, "\\n");
        } else if (c == '\t') {
            buf_puts(out, "\\t");
        } else if (c < 0x20 || c == 0x7f) {
            buf_printf(out, "\\u%04x", c);
        } else if (c >= 0x80 && !clean) {
            /* Not what a checked message holds; a mark in place of each byte keeps the rest. */
            buf_puts(out, "\\ufffd");
        } else {
            buf_putc(out, (char)c);
        }
    }
    buf_putc(out, '"');
}

/* JSON has no nan and no inf: null, a number that isn't there. */
static void put_real(struct buf *out, double value)
{
    char text[NUMBER_TEXT_MAX];
    number_format(text, value);
    buf_puts(out, isfinite(value) ? text : "null");
}

static void put_scalar(struct buf *out, const ProtobufCFieldDescriptor *field, const void *at)
{
    ProtobufCType type = field->type;
    if (type == PROTOBUF_C_TYPE_STRING) {
        const char *text = *(const char *const *)at;
        put_string(out, text ? text : "");
    } else if (type == PROTOBUF_C_TYPE_BYTES) {
        buf_putc(out, '"');
        text_scalar_base64(out, at);
        buf_putc(out, '"');
    } else if (type == PROTOBUF_C_TYPE_BOOL) {
        buf_puts(out, field_int(type, at) ? "true" : "false");
    } else if (type == PROTOBUF_C_TYPE_ENUM) {
        const char *word = text_enum_word(field->descriptor, (int)field_int(type, at));
        buf_printf(out, "\"%s\"", word ? word : "unknown");
    } else if (!field_type_is_int(type)) {
        put_real(out, field_real(type, at));
    } else if (field_type_is_unsigned(type)) {
        buf_printf(out, "%" PRIu64, (uint64_t)field_int(type, at));
    } else {
        buf_printf(out, "%" PRId64, field_int(type, at));
    }
}

/* ---- JSON ----------------------------------------------------------------------------------- */

static void json_newline(struct buf *out, int indent, int depth)
{
    if (indent > 0) {
        buf_printf(out, "\n%*s", indent * depth, "");
    }
}

static void json_message(struct buf *out, const ProtobufCMessage *message, int indent, int depth);

static void json_one(struct buf *out, const ProtobufCMessage *message,
                     const ProtobufCFieldDescriptor *field, size_t i, int indent, int depth)
{
    if (field->type == PROTOBUF_C_TYPE_MESSAGE) {
        json_message(out, field_message(message, field, i), indent, depth);
    } else {
        put_scalar(out, field, field_at(message, field, i));
    }
}

static void json_field(struct buf *out, const ProtobufCMessage *message,
                       const ProtobufCFieldDescriptor *field, int indent, int depth)
{
    if (field->label != PROTOBUF_C_LABEL_REPEATED) {
        json_one(out, message, field, 0, indent, depth);
        return;
    }
    bool tall = field->type == PROTOBUF_C_TYPE_MESSAGE;
    buf_putc(out, '[');
    for (size_t i = 0; i < field_count(message, field); i++) {
        buf_puts(out, i ? "," : "");
        if (tall) {
            json_newline(out, indent, depth + 1);
        } else if (i && indent > 0) {
            buf_putc(out, ' ');
        }
        json_one(out, message, field, i, indent, depth + 1);
    }
    if (tall) {
        json_newline(out, indent, depth);
    }
    buf_putc(out, ']');
}

static bool is_written(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field)
{
    if (!field_is_set(message, field)) {
        return false;
    }
    if (field->type == PROTOBUF_C_TYPE_MESSAGE && field->label != PROTOBUF_C_LABEL_REPEATED) {
        const ProtobufCMessage *value = field_message(message, field, 0);
        return !field_is_choice(value->descriptor) || field_chosen(value);
    }
    return true;
}

static void json_message(struct buf *out, const ProtobufCMessage *message, int indent, int depth)
{
    if (field_is_choice(message->descriptor)) {
        const ProtobufCFieldDescriptor *chosen = field_chosen(message);
        if (chosen) {
            json_field(out, message, chosen, indent, depth);
        } else {
            buf_puts(out, "null");
        }
        return;
    }
    bool any = false;
    buf_putc(out, '{');
    for (unsigned i = 0; i < message->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &message->descriptor->fields[i];
        if (is_written(message, field)) {
            buf_puts(out, any ? "," : "");
            json_newline(out, indent, depth + 1);
            buf_printf(out, "\"%s\":%s", field->name, indent > 0 ? " " : "");
            json_field(out, message, field, indent, depth + 1);
            any = true;
        }
    }
    if (any) {
        json_newline(out, indent, depth);
    }
    buf_putc(out, '}');
}

void text_to_json(struct buf *out, const ProtobufCMessage *message, int indent)
{
    json_message(out, message, indent, 0);
}

/* ---- YAML ----------------------------------------------------------------------------------- */

/* Would any YAML reader take this word, without quotes, as text? */
static bool is_plain_word(const char *text)
{
    static const char safe[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_/.-+";
    static const char *const taken[] = {"null", "true", "false", "yes", "no",
                                        "on",   "off",  "y",     "n"};
    size_t len = strlen(text);
    bool letter = (*text >= 'a' && *text <= 'z') || (*text >= 'A' && *text <= 'Z') || *text == '/';
    if (!letter || strspn(text, safe) != len) {
        return false;
    }
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
        if (strcasecmp(taken[i], text) == 0) {
            return false;
        }
    }
    return true;
}

static void yaml_scalar(struct buf *out, const ProtobufCFieldDescriptor *field, const void *at)
{
    const char *word = NULL;
    if (field->type == PROTOBUF_C_TYPE_STRING) {
        word = *(const char *const *)at;
    } else if (field->type == PROTOBUF_C_TYPE_ENUM) {
        word = text_enum_word(field->descriptor, (int)field_int(field->type, at));
    }
    if (word && is_plain_word(word)) {
        buf_puts(out, word);
    } else {
        put_scalar(out, field, at);
    }
}

static void yaml_members(struct buf *out, const ProtobufCMessage *message, int depth, bool inside);

/* What follows "key:" or "-"; ends the line. */
static void yaml_one(struct buf *out, const ProtobufCMessage *message,
                     const ProtobufCFieldDescriptor *field, size_t i, int depth, bool element)
{
    while (field->type == PROTOBUF_C_TYPE_MESSAGE) {
        const ProtobufCMessage *value = field_message(message, field, i);
        if (!field_is_choice(value->descriptor)) {
            yaml_members(out, value, depth, element);
            return;
        }
        message = value;
        field = field_chosen(value);
        if (!field) {
            buf_puts(out, " null\n");
            return;
        }
        i = 0;
    }
    buf_putc(out, ' ');
    yaml_scalar(out, field, field_at(message, field, i));
    buf_putc(out, '\n');
}

static void yaml_field(struct buf *out, const ProtobufCMessage *message,
                       const ProtobufCFieldDescriptor *field, int depth)
{
    buf_printf(out, "%s:", field->name);
    if (field->label != PROTOBUF_C_LABEL_REPEATED) {
        yaml_one(out, message, field, 0, depth + 1, false);
        return;
    }
    size_t num = field_count(message, field);
    if (field->type == PROTOBUF_C_TYPE_MESSAGE) {
        buf_putc(out, '\n');
        for (size_t i = 0; i < num; i++) {
            buf_printf(out, "%*s-", 2 * (depth + 1), "");
            yaml_one(out, message, field, i, depth + 2, true);
        }
        return;
    }
    buf_puts(out, " [");
    for (size_t i = 0; i < num; i++) {
        buf_puts(out, i ? ", " : "");
        yaml_scalar(out, field, field_at(message, field, i));
    }
    buf_puts(out, "]\n");
}

/* inside: the first key goes on the line that is begun (behind "-"), one space on. */
static void yaml_members(struct buf *out, const ProtobufCMessage *message, int depth, bool inside)
{
    bool any = false;
    for (unsigned i = 0; i < message->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &message->descriptor->fields[i];
        if (!is_written(message, field)) {
            continue;
        }
        if (any || !inside) {
            buf_printf(out, "%s%*s", any || depth == 0 ? "" : "\n", 2 * depth, "");
        } else {
            buf_putc(out, ' ');
        }
        yaml_field(out, message, field, depth);
        any = true;
    }
    if (!any) {
        buf_puts(out, depth == 0 ? "{}\n" : " {}\n");
    }
}

void text_to_yaml(struct buf *out, const ProtobufCMessage *message)
{
    if (field_is_choice(message->descriptor)) {
        text_to_json(out, message, 0);
        buf_putc(out, '\n');
        return;
    }
    yaml_members(out, message, 0, false);
}
