#include "proto/text_scalar.h"

#include <float.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "proto/field.h"
#include "proto/number.h"
#include "proto/text.h"

const char *text_scalar_quote(char out[TEXT_QUOTE_MAX], const char *text, size_t len)
{
    const size_t room = TEXT_QUOTE_MAX - 6;
    size_t shown = len <= room ? len : room;
    /* A cut falls between characters. */
    while (shown < len && shown > 0 && ((unsigned char)text[shown] & 0xc0) == 0x80) {
        shown--;
    }
    char *p = out;
    *p++ = '"';
    for (size_t i = 0; i < shown; i++) {
        unsigned char c = (unsigned char)text[i];
        *p++ = c < 0x20 || c == 0x7f ? '?' : (char)c;
    }
    strcpy(p, shown < len ? "...\"" : "\"");
    return out;
}

bool text_scalar_is_null(const char *text, size_t len, bool quoted)
{
    return !quoted && (len == 0 || (len == 1 && *text == '~') ||
                       (len == 4 && (memcmp(text, "null", 4) == 0 || memcmp(text, "Null", 4) == 0 ||
                                     memcmp(text, "NULL", 4) == 0)));
}

/* ---- numbers ------------------------------------------------------------------------------ */

static void int_bounds(ProtobufCType type, uint64_t *below, uint64_t *above)
{
    bool wide = type == PROTOBUF_C_TYPE_INT64 || type == PROTOBUF_C_TYPE_SINT64 ||
                type == PROTOBUF_C_TYPE_SFIXED64 || type == PROTOBUF_C_TYPE_UINT64 ||
                type == PROTOBUF_C_TYPE_FIXED64;
    if (field_type_is_unsigned(type)) {
        *below = 0;
        *above = wide ? UINT64_MAX : UINT32_MAX;
    } else {
        *above = wide ? INT64_MAX : INT32_MAX;
        *below = *above + 1;
    }
}

static int read_int(ProtobufCType type, void *at, const char *text, size_t len, struct error *err)
{
    char quote[TEXT_QUOTE_MAX];
    bool negative, too_large;
    uint64_t size, below, above;
    int_bounds(type, &below, &above);
    if (!number_whole(text, len, &negative, &size, &too_large)) {
        if (!too_large) {
            return error_set(err, ERR_INVALID_ARGUMENT, "wants a whole number, got %s",
                             text_scalar_quote(quote, text, len));
        }
        size = UINT64_MAX;
    }
    if (too_large || size > (negative ? below : above)) {
        return error_set(err, ERR_INVALID_ARGUMENT,
                         "wants a whole number from %s%" PRIu64 " to %" PRIu64 ", got %s",
                         below ? "-" : "", below, above, text_scalar_quote(quote, text, len));
    }
    uint64_t value = negative ? 0 - size : size;
    if (above > UINT32_MAX) {
        memcpy(at, &value, 8);
    } else {
        uint32_t narrow = (uint32_t)value;
        memcpy(at, &narrow, 4);
    }
    return 0;
}

static int read_real(ProtobufCType type, void *at, const char *text, size_t len, struct error *err)
{
    char quote[TEXT_QUOTE_MAX];
    double value;
    bool too_large;
    if (!number_double(text, len, &value, &too_large) && !too_large) {
        return error_set(err, ERR_INVALID_ARGUMENT, "wants a number, got %s",
                         text_scalar_quote(quote, text, len));
    }
    double limit = type == PROTOBUF_C_TYPE_FLOAT ? (double)FLT_MAX : DBL_MAX;
    if (too_large || value > limit || value < -limit) {
        return error_set(err, ERR_INVALID_ARGUMENT, "is too large a number: %s",
                         text_scalar_quote(quote, text, len));
    }
    if (type == PROTOBUF_C_TYPE_FLOAT) {
        float narrow = (float)value;
        memcpy(at, &narrow, 4);
    } else {
        memcpy(at, &value, 8);
    }
    return 0;
}

static int read_bool(void *at, const char *text, size_t len, bool quoted, struct error *err)
{
    static const char *const words[] = {"false", "False", "FALSE", "true", "True", "TRUE"};
    for (size_t i = 0; !quoted && i < sizeof words / sizeof *words; i++) {
        if (strlen(words[i]) == len && memcmp(text, words[i], len) == 0) {
            *(protobuf_c_boolean *)at = i >= 3;
            return 0;
        }
    }
    char quote[TEXT_QUOTE_MAX];
    return error_set(err, ERR_INVALID_ARGUMENT, "wants true or false, got %s",
                     text_scalar_quote(quote, text, len));
}

/* ---- enums -------------------------------------------------------------------------------- */

/* Length of the prefix, up to an underscore, that all names share. */
static size_t enum_prefix(const ProtobufCEnumDescriptor *descriptor)
{
    const char *first = descriptor->values[0].name;
    size_t len = strlen(first);
    for (unsigned i = 1; i < descriptor->n_values; i++) {
        size_t same = 0;
        while (same < len && first[same] == descriptor->values[i].name[same]) {
            same++;
        }
        len = same;
    }
    while (len > 0 && first[len - 1] != '_') {
        len--;
    }
    return len;
}

const char *text_enum_word(const ProtobufCEnumDescriptor *descriptor, int number)
{
    const ProtobufCEnumValue *value = protobuf_c_enum_descriptor_get_value(descriptor, number);
    return value ? value->name + enum_prefix(descriptor) : NULL;
}

#define ENUM_WORDS_MAX 64

static bool same_word(const char *word, const char *text, size_t len)
{
    return strlen(word) == len && strncasecmp(word, text, len) == 0;
}

/* also: what else could stand there. */
static int fail_word(const char *const *words, const char *also, const char *text, size_t len,
                     struct error *err)
{
    struct buf list = {0};
    for (size_t i = 0; words[i]; i++) {
        buf_printf(&list, "%s%s", i ? ", " : "", words[i]);
    }
    char quote[TEXT_QUOTE_MAX];
    const char *near = NULL;
    if (len < TEXT_QUOTE_MAX) {
        char word[TEXT_QUOTE_MAX] = {0};
        memcpy(word, text, len);
        near = text_nearest(word, words);
    }
    error_set(err, ERR_INVALID_ARGUMENT, "wants %sone of %s, got %s%s%s%s", also, list.data,
              text_scalar_quote(quote, text, len), near ? "; did you mean " : "", near ? near : "",
              near ? "?" : "");
    buf_free(&list);
    return -1;
}

static int read_enum(const ProtobufCEnumDescriptor *descriptor, const char *also, int32_t *out,
                     const char *text, size_t len, struct error *err)
{
    size_t prefix = enum_prefix(descriptor);
    const char *words[ENUM_WORDS_MAX + 1] = {0};
    ASSERT(descriptor->n_values <= ENUM_WORDS_MAX);
    for (unsigned i = 0; i < descriptor->n_values; i++) {
        const char *full = descriptor->values[i].name;
        words[i] = full + prefix;
        if (same_word(full, text, len) || same_word(words[i], text, len)) {
            *out = descriptor->values[i].value;
            return 0;
        }
    }
    return fail_word(words, also, text, len, err);
}

/* A whole number, or one of the names for some. */
static int read_named(const ProtobufCEnumDescriptor *names, void *at, const char *text, size_t len,
                      struct error *err)
{
    int32_t value = 0;
    if (read_enum(names, "a whole number or ", &value, text, len, err) != 0) {
        return -1;
    }
    int64_t wide = value;
    memcpy(at, &wide, sizeof wide);
    return 0;
}

static bool looks_like_number(const char *text, size_t len)
{
    return len > 0 && memchr("+-.0123456789", *text, 13) != NULL;
}

/* ---- text and bytes ----------------------------------------------------------------------- */

/* Length of the UTF-8 character at p, 0: malformed. *c: its code point.
 * Source: Unicode 15, table 3-7. */
static size_t utf8_char(const unsigned char *p, size_t left, uint32_t *c)
{
    size_t n = p[0] < 0x80 ? 1 : p[0] < 0xc2 ? 0 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
    if (n == 0 || n > left || p[0] > 0xf4) {
        return 0;
    }
    *c = n == 1 ? p[0] : p[0] & (0xffu >> (n + 1));
    for (size_t i = 1; i < n; i++) {
        if ((p[i] & 0xc0) != 0x80) {
            return 0;
        }
        *c = *c << 6 | (p[i] & 0x3f);
    }
    static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    bool fine = *c >= smallest[n] && *c <= 0x10ffff && (*c < 0xd800 || *c > 0xdfff);
    return fine ? n : 0;
}

const char *text_scalar_fault(const char *text, size_t len, size_t max_len)
{
    if (len > max_len) {
        return "is too long";
    }
    for (size_t i = 0; i < len;) {
        uint32_t c;
        size_t n = utf8_char((const unsigned char *)text + i, len - i, &c);
        if (n == 0) {
            return "is not valid UTF-8";
        }
        if ((c < 0x20 && c != '\t' && c != '\n') || (c >= 0x7f && c < 0xa0)) {
            return "holds a control character";
        }
        i += n;
    }
    return NULL;
}

static int read_string(void *at, const char *text, size_t len, struct error *err)
{
    const char *fault = text_scalar_fault(text, len, TEXT_MAX_BYTES);
    if (fault) {
        return error_set(err, ERR_INVALID_ARGUMENT, "%s", fault);
    }
    char *copy = strndup(text, len);
    ASSERT(copy);
    *(char **)at = copy;
    return 0;
}

static const char base64_alphabet[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void text_scalar_base64(struct buf *out, const ProtobufCBinaryData *bytes)
{
    for (size_t i = 0; i < bytes->len; i += 3) {
        size_t left = bytes->len - i;
        uint32_t group = (uint32_t)bytes->data[i] << 16;
        group |= left > 1 ? (uint32_t)bytes->data[i + 1] << 8 : 0;
        group |= left > 2 ? (uint32_t)bytes->data[i + 2] : 0;
        buf_putc(out, base64_alphabet[group >> 18]);
        buf_putc(out, base64_alphabet[group >> 12 & 63]);
        buf_putc(out, left > 1 ? base64_alphabet[group >> 6 & 63] : '=');
        buf_putc(out, left > 2 ? base64_alphabet[group & 63] : '=');
    }
}

static int read_bytes(void *at, const char *text, size_t len, struct error *err)
{
    size_t padding = 0;
    while (padding < 2 && padding < len && text[len - 1 - padding] == '=') {
        padding++;
    }
    uint8_t *data = malloc(len / 4 * 3 + 1);
    ASSERT(data);
    size_t num = 0;
    uint32_t group = 0;
    bool fine = len % 4 == 0;
    for (size_t i = 0; fine && i < len; i++) {
        const char *found = text[i] ? strchr(base64_alphabet, text[i]) : NULL;
        bool pad = i >= len - padding;
        fine = pad || found;
        group = group << 6 | (pad || !found ? 0 : (uint32_t)(found - base64_alphabet));
        if (i % 4 == 3) {
            data[num++] = (uint8_t)(group >> 16);
            data[num++] = (uint8_t)(group >> 8);
            data[num++] = (uint8_t)group;
            group = 0;
        }
    }
    if (!fine) {
        free(data);
        return error_set(err, ERR_INVALID_ARGUMENT, "wants base64");
    }
    *(ProtobufCBinaryData *)at = (ProtobufCBinaryData){.len = num - padding, .data = data};
    return 0;
}

int text_scalar_read(const ProtobufCFieldDescriptor *field, void *at, const char *text, size_t len,
                     bool quoted, struct error *err)
{
    switch (field->type) {
    case PROTOBUF_C_TYPE_STRING:
        return read_string(at, text, len, err);
    case PROTOBUF_C_TYPE_BYTES:
        return read_bytes(at, text, len, err);
    case PROTOBUF_C_TYPE_ENUM:
        return read_enum(field->descriptor, "", at, text, len, err);
    case PROTOBUF_C_TYPE_BOOL:
        return read_bool(at, text, len, quoted, err);
    case PROTOBUF_C_TYPE_FLOAT:
    case PROTOBUF_C_TYPE_DOUBLE:
        return read_real(field->type, at, text, len, err);
    default: {
        const ProtobufCEnumDescriptor *names = text_names(field);
        return names && !looks_like_number(text, len) ? read_named(names, at, text, len, err)
                                                      : read_int(field->type, at, text, len, err);
    }
    }
}
