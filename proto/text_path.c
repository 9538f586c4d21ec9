/* One field by its dotted path, and names that are nearly right. */
#include "proto/text.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proto/field.h"
#include "proto/number.h"
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
            text_read_unknown(&what, root, message->descriptor, segment, len);
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
            return fail_path(err, whole, path, "a list: wants an index here");
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

/* ---- nearly right --------------------------------------------------------------------------- */

#define WORD_MAX 48

/* Lower case, dashes as underscores. */
static size_t fold(char out[WORD_MAX], const char *word)
{
    size_t len = strnlen(word, WORD_MAX - 1);
    for (size_t i = 0; i < len; i++) {
        char c = word[i];
        out[i] = c == '-' ? '_' : c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
    }
    out[len] = 0;
    return len;
}

static int min3(int a, int b, int c)
{
    int least = a < b ? a : b;
    return least < c ? least : c;
}

/* Insertions, deletions, replacements and swaps of neighbours between two words.
 * Source: Damerau-Levenshtein, optimal string alignment. */
static int distance(const char *a, size_t num_a, const char *b, size_t num_b)
{
    int rows[WORD_MAX + 1][WORD_MAX + 1];
    for (size_t i = 0; i <= num_a; i++) {
        for (size_t j = 0; j <= num_b; j++) {
            if (i == 0 || j == 0) {
                rows[i][j] = (int)(i + j);
                continue;
            }
            int differs = a[i - 1] != b[j - 1];
            int least = min3(rows[i - 1][j] + 1, rows[i][j - 1] + 1, rows[i - 1][j - 1] + differs);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                rows[i - 2][j - 2] + 1 < least) {
                least = rows[i - 2][j - 2] + 1;
            }
            rows[i][j] = least;
        }
    }
    return rows[num_a][num_b];
}

const char *text_nearest(const char *word, const char *const *names)
{
    char folded[WORD_MAX], name[WORD_MAX];
    size_t len = fold(folded, word);
    const char *best = NULL;
    int best_distance = 1 + (int)len / 5;
    if (len < 2) {
        return NULL;
    }
    for (size_t i = 0; names[i]; i++) {
        size_t name_len = fold(name, names[i]);
        int d = distance(folded, len, name, name_len);
        /* The beginning of a name (micro_batch for micro_batch_size) is as near as one slip. */
        if (len >= 3 && name_len > len && strncmp(folded, name, len) == 0 && d > 1) {
            d = 1;
        }
        if (d < best_distance || (d == best_distance && !best)) {
            best_distance = d;
            best = names[i];
        }
    }
    return best;
}
