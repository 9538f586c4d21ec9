#include "runtime/data/row_json.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int row_json_fail(const struct row_json *j, struct error *err, const char *fmt, ...)
{
    if (j->failed) {
        return -1;
    }
    char text[ERROR_TEXT_MAX];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return error_set(err, ERR_INVALID_ARGUMENT, "%s", text);
}

/* ---- bytes ---------------------------------------------------------------------------------- */

static bool refill(struct row_json *j, struct error *err)
{
    while (j->at == j->end && !j->ended && !j->failed) {
        int rc = j->more ? j->more(j->ctx, &j->at, &j->end, err) : 0;
        j->ended = rc == 0;
        j->failed = rc < 0;
    }
    return j->at < j->end;
}

int row_json_peek(struct row_json *j, struct error *err)
{
    if (j->at == j->end && !refill(j, err)) {
        return -1;
    }
    return *j->at == '\n' ? -1 : (unsigned char)*j->at;
}

int row_json_next(struct row_json *j, struct error *err)
{
    int c = row_json_peek(j, err);
    while (c == ' ' || c == '\t' || c == '\r') {
        j->at++;
        c = row_json_peek(j, err);
    }
    return c;
}

const char *row_json_shown(int c, char out[32])
{
    if (c < 0) {
        snprintf(out, 32, "the line ends");
    } else if (c == 0) {
        snprintf(out, 32, "a zero byte stands");
    } else if (c > 0x20 && c < 0x7f) {
        snprintf(out, 32, "\"%c\" stands", c);
    } else {
        snprintf(out, 32, "byte 0x%02x stands", (unsigned)c);
    }
    return out;
}

int row_json_unexpected(const struct row_json *j, int c, const char *wanted, struct error *err)
{
    char word[32];
    return row_json_fail(j, err, "%s where %s should%s%s", row_json_shown(c, word), wanted,
                         c < 0 ? "; a row stands on one line" : "",
                         c == 0 ? "; is the file UTF-16? UTF-8 is wanted" : "");
}

int row_json_take(struct row_json *j, char c, const char *what, struct error *err)
{
    int got = row_json_next(j, err);
    if (got != (unsigned char)c) {
        return row_json_unexpected(j, got, what, err);
    }
    j->at++;
    return 0;
}

int row_json_end_line(struct row_json *j, struct error *err)
{
    int c = row_json_next(j, err);
    if (c >= 0) {
        return row_json_unexpected(j, c, "the end of the line, behind the row's },", err);
    }
    if (j->failed) {
        return -1;
    }
    j->at += j->at < j->end; /* the newline */
    return 0;
}

/* ---- strings -------------------------------------------------------------------------------- */

static int hex4(struct row_json *j, unsigned *out, struct error *err)
{
    *out = 0;
    for (int i = 0; i < 4; i++) {
        int c = row_json_peek(j, err);
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0) {
            return row_json_unexpected(j, c, "a digit of \\uXXXX", err);
        }
        *out = *out * 16 + (unsigned)digit;
        j->at++;
    }
    return 0;
}

/* Behind a backslash. *out: the character, '?' if it is no ASCII. */
static int escape(struct row_json *j, char *out, struct error *err)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    int c = row_json_peek(j, err);
    const char *known = c > 0 ? strchr(from, c) : NULL;
    if (known) {
        j->at++;
        *out = to[known - from];
        return 0;
    }
    if (c != 'u') {
        return row_json_unexpected(j, c, "an escape of JSON", err);
    }
    j->at++;
    unsigned code, low;
    if (hex4(j, &code, err) != 0) {
        return -1;
    }
    if (code >= 0xdc00 && code < 0xe000) {
        return row_json_fail(j, err, "a string holds half a character (\\u%04x)", code);
    }
    if (code >= 0xd800 && code < 0xdc00) {
        if (row_json_peek(j, err) != '\\') {
            return row_json_unexpected(j, row_json_peek(j, err), "the other half of a \\u escape",
                                       err);
        }
        j->at++;
        if (row_json_peek(j, err) != 'u') {
            return row_json_unexpected(j, row_json_peek(j, err), "the other half of a \\u escape",
                                       err);
        }
        j->at++;
        if (hex4(j, &low, err) != 0) {
            return -1;
        }
        if (low < 0xdc00 || low >= 0xe000) {
            return row_json_fail(j, err, "a string holds half a character (\\u%04x)", code);
        }
    }
    *out = code > 0 && code < 0x80 ? (char)code : '?';
    return 0;
}

int row_json_string(struct row_json *j, char out[ROW_JSON_KEY_MAX], struct error *err)
{
    size_t len = 0;
    if (row_json_take(j, '"', "a string", err) != 0) {
        return -1;
    }
    for (;;) {
        int c = row_json_peek(j, err);
        char add = c >= 0x80 ? '?' : (char)c;
        if (c < 0x20) {
            return row_json_unexpected(j, c, "the rest of a string", err);
        }
        j->at++;
        if (c == '"') {
            break;
        }
        if (c == '\\' && escape(j, &add, err) != 0) {
            return -1;
        }
        if (len < ROW_JSON_KEY_MAX - 1) {
            out[len++] = add;
        }
    }
    out[len] = 0;
    return 0;
}

/* ---- values that aren't wanted --------------------------------------------------------------- */

static int skip_word(struct row_json *j, const char *word, struct error *err)
{
    for (const char *w = word; *w; w++) {
        int c = row_json_peek(j, err);
        if (c != (unsigned char)*w) {
            return row_json_unexpected(j, c, word, err);
        }
        j->at++;
    }
    return 0;
}

static int skip_digits(struct row_json *j, struct error *err)
{
    int c = row_json_peek(j, err);
    if (c < '0' || c > '9') {
        return row_json_unexpected(j, c, "a digit", err);
    }
    for (; c >= '0' && c <= '9'; c = row_json_peek(j, err)) {
        j->at++;
    }
    return 0;
}

static int skip_number(struct row_json *j, struct error *err)
{
    j->at += row_json_peek(j, err) == '-';
    if (row_json_peek(j, err) == '0') {
        j->at++;
    } else if (skip_digits(j, err) != 0) {
        return -1;
    }
    if (row_json_peek(j, err) == '.') {
        j->at++;
        if (skip_digits(j, err) != 0) {
            return -1;
        }
    }
    int c = row_json_peek(j, err);
    if (c == 'e' || c == 'E') {
        j->at++;
        c = row_json_peek(j, err);
        j->at += c == '+' || c == '-';
        return skip_digits(j, err);
    }
    return 0;
}

static int skip_value(struct row_json *j, int depth, struct error *err);

/* Members of an object, or elements of an array, behind its first byte. */
static int skip_members(struct row_json *j, bool object, int depth, struct error *err)
{
    const char close = object ? '}' : ']';
    char key[ROW_JSON_KEY_MAX];
    if (depth >= ROW_JSON_DEPTH_MAX) {
        return row_json_fail(j, err, "values are nested more than %d deep", ROW_JSON_DEPTH_MAX);
    }
    j->at++;
    int c = row_json_next(j, err);
    if (c == close) {
        j->at++;
        return 0;
    }
    for (;;) {
        if (object && (row_json_string(j, key, err) != 0 ||
                       row_json_take(j, ':', "the : behind a key", err) != 0)) {
            return -1;
        }
        if (skip_value(j, depth + 1, err) != 0) {
            return -1;
        }
        c = row_json_next(j, err);
        if (c != ',' && c != close) {
            return row_json_unexpected(j, c, object ? "a , or }" : "a , or ]", err);
        }
        j->at++;
        if (c == close) {
            return 0;
        }
    }
}

static int skip_value(struct row_json *j, int depth, struct error *err)
{
    char unused[ROW_JSON_KEY_MAX];
    int c = row_json_next(j, err);
    switch (c) {
    case '"':
        return row_json_string(j, unused, err);
    case '{':
    case '[':
        return skip_members(j, c == '{', depth, err);
    case 't':
        return skip_word(j, "true", err);
    case 'f':
        return skip_word(j, "false", err);
    case 'n':
        return skip_word(j, "null", err);
    default:
        if (c == '-' || (c >= '0' && c <= '9')) {
            return skip_number(j, err);
        }
        return row_json_unexpected(j, c, "a value", err);
    }
}

int row_json_skip(struct row_json *j, struct error *err)
{
    return skip_value(j, 1, err);
}

int row_json_null(struct row_json *j, bool *is, struct error *err)
{
    *is = row_json_next(j, err) == 'n';
    return *is ? skip_word(j, "null", err) : 0;
}
