/* YAML events straight into the message: nothing is built that isn't kept, and every bound is
 * checked before the next event is asked for. */
#include "proto/text_read.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "proto/field.h"
#include "proto/text.h"
#include "proto/text_near.h"
#include "proto/text_scalar.h"

#define MAX_DEPTH 32
#define MAX_NODES 200000
#define MAX_FIELDS 256

struct reader {
    yaml_parser_t parser;
    const char *file; /* NULL: messages name no place */
    const char *text;
    size_t len;
    const ProtobufCMessageDescriptor *root;
    struct buf path; /* dotted; names of descriptors and indices only */
    size_t num_nodes;
    int depth;
    struct error *err;
};

/* ---- messages ------------------------------------------------------------------------------- */

static int fail_at(struct reader *r, size_t line, size_t column, const char *what)
{
    char place[32] = "";
    if (r->file) {
        snprintf(place, sizeof place, ":%zu:%zu: ", line + 1, column + 1);
    }
    return error_set(r->err, ERR_INVALID_ARGUMENT, "%s%s%s%s%s", r->file ? r->file : "", place,
                     r->path.len ? r->path.data : "", r->path.len ? ": " : "", what);
}

static int __attribute__((format(printf, 3, 4)))
fail(struct reader *r, yaml_mark_t mark, const char *fmt, ...)
{
    char what[ERROR_TEXT_MAX];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    return fail_at(r, mark.line, mark.column, what);
}

static int fail_syntax(struct reader *r)
{
    const yaml_parser_t *p = &r->parser;
    const char *problem = p->problem ? p->problem : "out of memory";
    size_t line = p->problem_mark.line, column = p->problem_mark.column;
    if (p->error == YAML_READER_ERROR) {
        /* The bytes themselves are at fault; only their offset is known. */
        size_t start = 0;
        line = 0;
        for (size_t i = 0; i < p->problem_offset && i < r->len; i++) {
            if (r->text[i] == '\n') {
                line++;
                start = i + 1;
            }
        }
        column = p->problem_offset - start;
    }
    r->path.len = 0;
    char what[256];
    snprintf(what, sizeof what, "not valid YAML: %s", problem);
    return fail_at(r, line, column, what);
}

/* ---- events --------------------------------------------------------------------------------- */

/* The next event, within the bounds and without anchors, aliases and tags. */
static int next_event(struct reader *r, yaml_event_t *event)
{
    if (!yaml_parser_parse(&r->parser, event)) {
        return fail_syntax(r);
    }
    const yaml_char_t *anchor = NULL, *tag = NULL;
    if (event->type == YAML_SCALAR_EVENT) {
        anchor = event->data.scalar.anchor;
        tag = event->data.scalar.tag;
    } else if (event->type == YAML_MAPPING_START_EVENT) {
        anchor = event->data.mapping_start.anchor;
        tag = event->data.mapping_start.tag;
    } else if (event->type == YAML_SEQUENCE_START_EVENT) {
        anchor = event->data.sequence_start.anchor;
        tag = event->data.sequence_start.tag;
    }
    int rc = 0;
    if (event->type == YAML_ALIAS_EVENT || anchor) {
        rc = fail(r, event->start_mark, "anchors and aliases are not accepted");
    } else if (tag) {
        rc = fail(r, event->start_mark, "tags are not accepted");
    } else if (++r->num_nodes > MAX_NODES) {
        rc = fail(r, event->start_mark, "more than %d values", MAX_NODES);
    }
    if (rc) {
        yaml_event_delete(event);
    }
    return rc;
}

static bool is_quoted(const yaml_event_t *event)
{
    return event->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
}

static bool is_null(const yaml_event_t *event)
{
    return event->type == YAML_SCALAR_EVENT &&
           text_scalar_is_null((const char *)event->data.scalar.value, event->data.scalar.length,
                               is_quoted(event));
}

static int fail_kind(struct reader *r, const yaml_event_t *event, const char *wanted)
{
    char quote[TEXT_QUOTE_MAX];
    const char *got = event->type == YAML_MAPPING_START_EVENT    ? "a mapping"
                      : event->type == YAML_SEQUENCE_START_EVENT ? "a list"
                                                                 : quote;
    if (event->type == YAML_SCALAR_EVENT) {
        text_scalar_quote(quote, (const char *)event->data.scalar.value, event->data.scalar.length);
    }
    return fail(r, event->start_mark, "wants %s, got %s", wanted, got);
}

/* ---- values --------------------------------------------------------------------------------- */

static int read_value(struct reader *r, const yaml_event_t *event, ProtobufCMessage *message,
                      const ProtobufCFieldDescriptor *field);

static int read_key(struct reader *r, const yaml_event_t *event,
                    const ProtobufCMessageDescriptor *descriptor, bool *seen,
                    const ProtobufCFieldDescriptor **out)
{
    if (event->type != YAML_SCALAR_EVENT) {
        return fail(r, event->start_mark, "a key must be a word");
    }
    const char *key = (const char *)event->data.scalar.value;
    size_t len = event->data.scalar.length;
    *out = field_find(descriptor, key, len);
    size_t before = r->path.len;
    int rc = 0;
    if (!*out) {
        char quote[TEXT_QUOTE_MAX];
        text_scalar_quote(quote, key, len);
        buf_printf(&r->path, "%s%.*s", before ? "." : "", (int)strlen(quote) - 2, quote + 1);
        struct buf what = {0};
        text_near_unknown(&what, r->root, descriptor, key, len);
        rc = fail(r, event->start_mark, "%s", what.data);
        buf_free(&what);
    } else if (seen[*out - descriptor->fields]) {
        buf_printf(&r->path, "%s%s", before ? "." : "", (*out)->name);
        rc = fail(r, event->start_mark, "stands twice");
    } else {
        seen[*out - descriptor->fields] = true;
    }
    return rc;
}

/* After the start of a mapping, through its end. */
static int read_members(struct reader *r, ProtobufCMessage *message)
{
    bool seen[MAX_FIELDS] = {0};
    ASSERT(message->descriptor->n_fields <= MAX_FIELDS);
    size_t before = r->path.len;
    for (;;) {
        yaml_event_t event;
        const ProtobufCFieldDescriptor *field = NULL;
        if (next_event(r, &event)) {
            return -1;
        }
        if (event.type == YAML_MAPPING_END_EVENT) {
            yaml_event_delete(&event);
            return 0;
        }
        int rc = read_key(r, &event, message->descriptor, seen, &field);
        yaml_event_delete(&event);
        if (rc) {
            return -1;
        }
        buf_printf(&r->path, "%s%s", before ? "." : "", field->name);
        if (next_event(r, &event)) {
            return -1;
        }
        rc = read_value(r, &event, message, field);
        yaml_event_delete(&event);
        if (rc) {
            return -1;
        }
        r->path.len = before;
        r->path.data[before] = 0;
    }
}

static int read_message(struct reader *r, const yaml_event_t *event, ProtobufCMessage *message);

/* A value that stands for a whole choice: its scalar or its message member. */
static int read_choice(struct reader *r, const yaml_event_t *event, ProtobufCMessage *choice)
{
    bool mapping = event->type == YAML_MAPPING_START_EVENT;
    const ProtobufCFieldDescriptor *field = field_choice_member(choice->descriptor, mapping);
    if (event->type == YAML_SEQUENCE_START_EVENT || !field) {
        return fail_kind(r, event, "a word or a mapping");
    }
    return read_value(r, event, choice, field);
}

static int read_message(struct reader *r, const yaml_event_t *event, ProtobufCMessage *message)
{
    if (field_is_choice(message->descriptor)) {
        return read_choice(r, event, message);
    }
    if (event->type != YAML_MAPPING_START_EVENT) {
        return fail_kind(r, event, "a mapping");
    }
    if (++r->depth > MAX_DEPTH) {
        return fail(r, event->start_mark, "nested deeper than %d", MAX_DEPTH);
    }
    int rc = read_members(r, message);
    r->depth--;
    return rc;
}

/* One value: of a singular field, or one element. */
static int read_one(struct reader *r, const yaml_event_t *event, ProtobufCMessage *message,
                    const ProtobufCFieldDescriptor *field)
{
    if (field->type == PROTOBUF_C_TYPE_MESSAGE) {
        return read_message(r, event, field_add_message(message, field));
    }
    if (event->type != YAML_SCALAR_EVENT) {
        const char *wanted = field->type == PROTOBUF_C_TYPE_STRING   ? "text"
                             : field->type == PROTOBUF_C_TYPE_BOOL   ? "true or false"
                             : field->type == PROTOBUF_C_TYPE_ENUM   ? "a word"
                             : field->type == PROTOBUF_C_TYPE_DOUBLE ? "a number"
                             : field->type == PROTOBUF_C_TYPE_FLOAT  ? "a number"
                             : field->type == PROTOBUF_C_TYPE_BYTES  ? "base64"
                                                                     : "a whole number";
        return fail_kind(r, event, wanted);
    }
    struct error what;
    if (text_scalar_read(field, field_add(message, field), (const char *)event->data.scalar.value,
                         event->data.scalar.length, is_quoted(event), &what)) {
        return fail(r, event->start_mark, "%s", what.text);
    }
    return 0;
}

/* After the start of a list, through its end. */
static int read_elements(struct reader *r, ProtobufCMessage *message,
                         const ProtobufCFieldDescriptor *field)
{
    size_t before = r->path.len;
    for (size_t i = 0;; i++) {
        yaml_event_t event;
        if (next_event(r, &event)) {
            return -1;
        }
        if (event.type == YAML_SEQUENCE_END_EVENT) {
            yaml_event_delete(&event);
            return 0;
        }
        buf_printf(&r->path, ".%zu", i);
        int rc = is_null(&event) ? fail(r, event.start_mark, "an element is empty")
                                 : read_one(r, &event, message, field);
        yaml_event_delete(&event);
        if (rc) {
            return -1;
        }
        r->path.len = before;
        r->path.data[before] = 0;
    }
}

static int read_value(struct reader *r, const yaml_event_t *event, ProtobufCMessage *message,
                      const ProtobufCFieldDescriptor *field)
{
    if (is_null(event)) {
        return 0;
    }
    if (field->label != PROTOBUF_C_LABEL_REPEATED) {
        return read_one(r, event, message, field);
    }
    if (event->type != YAML_SEQUENCE_START_EVENT) {
        return fail_kind(r, event, "a list");
    }
    return read_elements(r, message, field);
}

/* ---- documents ------------------------------------------------------------------------------ */

static int hex4(const char *p)
{
    int value = 0;
    for (int i = 0; i < 4; i++) {
        const char *digits = "0123456789abcdef0123456789ABCDEF";
        const char *found = p[i] ? strchr(digits, p[i]) : NULL;
        if (!found) {
            return -1;
        }
        value = value << 4 | (int)((found - digits) & 15);
    }
    return value;
}

/* JSON writes characters above U+FFFF as two escapes, which YAML doesn't know: each pair becomes
 * one \U escape. Outside of quoted text, and in text that doesn't begin like JSON, nothing is
 * touched. Returns NULL if nothing had to change; else the caller frees. */
static char *join_surrogates(const char *text, size_t len, size_t *out_len)
{
    size_t start = 0;
    while (start < len && memchr(" \t\r\n", text[start], 4)) {
        start++;
    }
    if (start == len || (text[start] != '{' && text[start] != '[') ||
        !memmem(text, len, "\\u", 2)) {
        return NULL;
    }
    struct buf out = {0};
    bool quoted = false;
    for (size_t i = 0; i < len; i++) {
        if (quoted && text[i] == '\\' && i + 1 < len) {
            bool pair =
                len - i >= 12 && text[i + 1] == 'u' && text[i + 6] == '\\' && text[i + 7] == 'u';
            int high = pair ? hex4(text + i + 2) : -1, low = pair ? hex4(text + i + 8) : -1;
            if (high >= 0xd800 && high < 0xdc00 && low >= 0xdc00 && low < 0xe000) {
                buf_printf(&out, "\\U%08X",
                           (unsigned)(0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00)));
                i += 11;
            } else {
                buf_append(&out, text + i, 2);
                i++;
            }
            continue;
        }
        quoted ^= text[i] == '"';
        buf_putc(&out, text[i]);
    }
    *out_len = out.len;
    return buf_take(&out);
}

/* Up to the first event of the content. An empty document gives an empty scalar. */
static int open_document(struct reader *r, yaml_event_t *event)
{
    if (next_event(r, event)) {
        return -1;
    }
    ASSERT(event->type == YAML_STREAM_START_EVENT);
    yaml_event_delete(event);
    if (next_event(r, event)) {
        return -1;
    }
    if (event->type == YAML_STREAM_END_EVENT) {
        yaml_event_delete(event);
        int made = yaml_scalar_event_initialize(event, NULL, NULL, (const yaml_char_t *)"", 0, 1, 1,
                                                YAML_PLAIN_SCALAR_STYLE);
        ASSERT(made);
        return 0;
    }
    yaml_event_delete(event);
    return next_event(r, event);
}

static int close_document(struct reader *r)
{
    for (;;) {
        yaml_event_t event;
        if (next_event(r, &event)) {
            return -1;
        }
        yaml_event_type_t type = event.type;
        yaml_mark_t mark = event.start_mark;
        yaml_event_delete(&event);
        if (type == YAML_STREAM_END_EVENT || type == YAML_NO_EVENT) {
            return 0;
        }
        if (type == YAML_DOCUMENT_START_EVENT) {
            return fail(r, mark, "more than one document");
        }
    }
}

/* field NULL: the text is the whole message. */
static int read_document(struct reader *r, ProtobufCMessage *message,
                         const ProtobufCFieldDescriptor *field)
{
    yaml_event_t event;
    if (open_document(r, &event)) {
        return -1;
    }
    int rc = 0;
    if (field) {
        rc = read_value(r, &event, message, field);
    } else if (!is_null(&event)) {
        rc = read_message(r, &event, message);
    }
    yaml_event_delete(&event);
    return rc ? -1 : close_document(r);
}

static int reader_run(struct reader *r, ProtobufCMessage *message,
                      const ProtobufCFieldDescriptor *field)
{
    if (r->len > TEXT_MAX_BYTES) {
        return error_set(r->err, ERR_INVALID_ARGUMENT, "%s%slarger than %zu bytes",
                         r->file ? r->file : "", r->file ? ": " : "", TEXT_MAX_BYTES);
    }
    if (r->len >= 3 && memcmp(r->text, "\xef\xbb\xbf", 3) == 0) {
        r->text += 3;
        r->len -= 3;
    }
    char *joined = join_surrogates(r->text, r->len, &r->len);
    if (joined) {
        r->text = joined;
    }
    int made = yaml_parser_initialize(&r->parser);
    ASSERT(made);
    yaml_parser_set_encoding(&r->parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&r->parser, (const unsigned char *)r->text, r->len);
    int rc = read_document(r, message, field);
    yaml_parser_delete(&r->parser);
    buf_free(&r->path);
    free(joined);
    return rc;
}

int text_parse(const char *file, const char *text, size_t len,
               const ProtobufCMessageDescriptor *descriptor, ProtobufCMessage **out,
               struct error *err)
{
    struct reader r = {
        .file = file ? file : "text", .text = text, .len = len, .root = descriptor, .err = err};
    ProtobufCMessage *message = field_new_message(descriptor);
    if (reader_run(&r, message, NULL)) {
        protobuf_c_message_free_unpacked(message, NULL);
        return -1;
    }
    *out = message;
    return 0;
}

int text_read_field(const char *path, const char *text, size_t len, ProtobufCMessage *message,
                    const ProtobufCFieldDescriptor *field, struct error *err)
{
    struct reader r = {.text = text, .len = len, .root = message->descriptor, .err = err};
    buf_puts(&r.path, path);
    return reader_run(&r, message, field);
}
